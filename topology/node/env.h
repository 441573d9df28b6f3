/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_ENV_H
#define PLAIT_TOPOLOGY_NODE_ENV_H

/* hwloc obeys HWLOC_* variables (read this file instead, load that plugin)
 * and has no call to make it stop. A process that runs as root for someone
 * else hides them while it asks hwloc. */
struct node_env;

/* Let the environment be without HWLOC_* variables, but for those that keep
 * hwloc quick and quiet; NULL with errno. Nothing of the environment that was
 * there is changed, as other threads may read it. Not for two threads at
 * once. */
struct node_env *node_env_hide(void);
/* Put it back as it was. NULL-safe, keeps errno. */
void node_env_restore(struct node_env *env);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_CACHE_H
#define PLAIT_TOPOLOGY_NODE_CACHE_H

#include "topology/node/node.h"

/* What discovery found, kept for other processes until the next boot: the
 * file node.xml in a directory that only root can write to. It holds the
 * whole machine, whatever cgroup its writer was in. */

/* Read it. NULL where there is none, where it is damaged, or where it was
 * written by someone else, before this boot, or by another hwloc, driver or
 * Plait; err says which. */
struct plait_node *plait_node_load_cache(const char *dir,
                                         struct plait_error *err);

/* Could it be read? 0, or -1 with the reason. Does not build the node. */
int plait_node_check_cache(const char *dir, struct plait_error *err);

/* Write it if it could not be read: 0 where it could, 1 where it was
 * written, -1 with the reason. A child process of a minute at most does the
 * discovery, so that no memory, thread or file of it stays here; it makes
 * `dir` if only the last part of that is missing. HWLOC_* is not obeyed. */
int plait_node_refresh_cache(const char *dir, struct plait_error *err);

#endif

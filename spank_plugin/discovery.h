/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_DISCOVERY_H
#define PLAIT_SPANK_PLUGIN_DISCOVERY_H

#include "topology/node/node.h"
#include "topology/start/plugstack.h"

/* Discovery of a node's topology, on the node itself. A driver can hang the
 * process that queries it: only child processes do, for a bounded time. */
struct plait_discovery {
    const struct plait_plugstack *plugstack;
    struct plait_error hung; /* an earlier discovery timed out; or "" */
};

/* When slurmd starts: write the cache in the background, before a step needs
 * it. */
void plait_discovery_start_node(const struct plait_plugstack *plugstack);
/* As root, before the tasks' cgroups exist: write the cache if it is missing or
 * out of date. */
void plait_discovery_start_step(struct plait_discovery *discovery);
/* The part of this node that the step may use; NULL, with the reason in
 * err. */
struct plait_node *plait_discovery_find(const struct plait_discovery *discovery,
                                        struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_DISCOVERY_H
#define PLAIT_SPANK_PLUGIN_DISCOVERY_H

#include "topology/node/node.h"
#include "topology/start/plugstack.h"

/* What a node is made of, on the node itself. Drivers can hang whoever asks
 * them: only child processes do, for a bounded time. */
struct plait_discovery {
    const struct plait_plugstack *plugstack;
    struct plait_error hung; /* this step has waited in vain already; or "" */
};

/* slurmd starts: write the cache behind its back, before a step needs it. */
void plait_discovery_start_node(const struct plait_plugstack *plugstack);
/* As root, before the tasks' cgroups exist: write the cache if need be. */
void plait_discovery_start_step(struct plait_discovery *discovery);
/* The part of this node that the step may use; NULL, with the reason in
 * err. */
struct plait_node *plait_discovery_find(const struct plait_discovery *discovery,
                                        struct plait_error *err);

#endif

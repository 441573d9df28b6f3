/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_SHOW_GROUPS_H
#define PLAIT_TOPOLOGY_START_SHOW_GROUPS_H

#include "topology/fabric/fabric.h"
#include "topology/plan/plan.h"

/* Of a plan with too many nodes to list, one node for all that are alike: those
 * with the same pipeline stages below the same switch. */
struct plait_show_group {
    int node;  /* the first of them, an index in the order of the request */
    int nodes; /* how many they are */
    int first_stage, last_stage, under; /* what they have in common: pp of the
                                           tasks, and a switch, or -1 */
};

/* Write at most `most` groups, in the order of the ranks, and return how many
 * there are. order[NODE_RANK] is a node's index; `fabric` may be NULL. *level:
 * the switches by which nodes are told apart: 0 leaves, 1 those above, ...; -1:
 * none, as there are too many or no fabric. Where even the stages are too many,
 * those of the first ranks. */
int plait_show_groups(const struct plait_plan_request *request,
                      const struct plait_plan *plan, const int *order, int most,
                      struct plait_show_group *groups, int *level);

#endif

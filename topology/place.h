/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PLACE_H
#define PLAIT_PLACE_H

#include "plan.h"

/* Between plan.c, plan_code.c and place.c. Not installed. */

/* A plan with empty tables, or NULL with errno. */
struct plait_plan *plait_plan_allocate(int nnodes);

/* Choose the order of the nodes: order[NODE_RANK] = node index in Slurm's
 * order. Deterministic, and never costlier (cost.h) than Slurm's own order.
 * -1: out of memory. */
int plait_place_nodes(const struct plait_plan_request *request,
                      const struct plait_layout *layout, int *order);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PLACE_H
#define PLAIT_PLACE_H

#include "plan.h"

/* A plan with empty tables, or NULL with errno. Not installed. */
struct plait_plan *plait_plan_allocate(int nnodes);

/* Write the node indices (Slurm's order) in the order of their NODE_RANK.
 * -1: out of memory. Deterministic. Not installed. */
int plait_place_nodes(const struct plait_plan_request *request, int *order);

#endif

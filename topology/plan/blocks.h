/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PLAN_BLOCKS_H
#define PLAIT_TOPOLOGY_PLAN_BLOCKS_H

#include <stdbool.h>

#include "topology/plan/plan.h"

/* Whether tp groups of this size may span nodes: whole nodes of a block (an
 * NVLink domain). */
bool plait_blocks_span(const struct plait_plan_request *request, int tp);

/* After placement: whether every tp group that spans nodes is in one block. -1:
 * the error names the blocks with nodes left over, and these nodes. */
int plait_blocks_check(const struct plait_plan_request *request,
                       const struct plait_layout *layout, const int *order,
                       struct plait_error *err);

/* Number the blocks of the nodes from 1, in Slurm's order: domain[nnodes]. Left
 * as it is where the fabric has no blocks. -1: out of memory. */
int plait_blocks_number(const struct plait_plan_request *request, int *domain);

#endif

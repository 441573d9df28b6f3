/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_SHOW_PLAN_H
#define PLAIT_TOPOLOGY_START_SHOW_PLAN_H

#include <stdio.h>

#include "topology/fabric/fabric.h"
#include "topology/plan/plan.h"

/* Print a plan as a table, one line a node in the order of the ranks.
 * `nodes` are the names in Slurm's order; `fabric` may be NULL. */
void plait_show_plan(FILE *out, const struct plait_plan *plan,
                     const char *const *nodes,
                     const struct plait_fabric *fabric);

#endif

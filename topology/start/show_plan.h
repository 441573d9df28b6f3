/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_SHOW_PLAN_H
#define PLAIT_TOPOLOGY_START_SHOW_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "topology/fabric/fabric.h"
#include "topology/plan/plan.h"

/* Print a plan as a table, one line a node in the order of the ranks.
 * `nodes` are the names in Slurm's order; `fabric` may be NULL. `ids` are as
 * below: there is a column of them where they differ from the ranks; NULL: they
 * are not known. */
void plait_show_plan(FILE *out, const struct plait_plan *plan,
                     const char *const *nodes,
                     const struct plait_fabric *fabric,
                     const uint32_t *const *ids);

/* Is any task's rank another number than its SLURM_PROCID? Then text [size] is
 * a line that says which trainers read which; `variable` has the rank. Of node
 * `i` of the plan, ids[i][k] is the SLURM_PROCID of the task with LOCAL_RANK k;
 * NULL: they count the plan's nodes upwards. */
bool plait_show_ranks(const struct plait_plan *plan, const uint32_t *const *ids,
                      const char *variable, char *text, size_t size);

/* Whether the user wants no such line: PLAIT_QUIET is set, and not to 0. */
bool plait_show_is_quiet(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PLAN_PLACE_H
#define PLAIT_TOPOLOGY_PLAN_PLACE_H

#include "topology/plan/plan.h"

/* Shared by plan.c, plan_code.c and place.c. Not installed. */

/* A plan with empty tables, or NULL with errno. */
struct plait_plan *plait_plan_allocate(int nnodes);

/* A folded order: positions form rows of ranks / per_node positions each
 * (of one more or less where that is no whole number), and the rows are
 * filled in tiles of `tall`, column by column. {1, 1, 1}: not folded. */
struct plait_fold {
    int ranks, per_node, tall;
};
enum { PLAIT_FOLDS_MOST = 512, PLAIT_UNITS_MOST = 24 };

/* position[index] for all n elements of the order. */
void plait_fold_fill(struct plait_fold fold, int n, int *position);
/* The same for one element. */
int plait_fold_position(struct plait_fold fold, int n, int index);
/* The folds of n positions that fit the groups of a layout, where nodes have
 * `per_node` tasks; those that leave no ragged edge come first (*even of
 * them). Returns how many. */
int plait_folds_list(const struct plait_layout *layout, int per_node, int n,
                     struct plait_fold folds[PLAIT_FOLDS_MOST], int *even);
/* Node counts at which groups begin and end. */
int plait_units_list(const struct plait_layout *layout, int per_node, int n,
                     int units[PLAIT_UNITS_MOST]);

/* Choose the order of the nodes: order[NODE_RANK] = node index in Slurm's
 * order. Deterministic, and never costlier (cost.h) than Slurm's own order.
 * -1: out of memory. */
int plait_place_nodes(const struct plait_plan_request *request,
                      const struct plait_layout *layout, int *order);

#endif

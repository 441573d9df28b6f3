/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_REPLICAS_H
#define PLAIT_RUNTIME_OPTIM_REPLICAS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/optim/optim.h"

/* Data-parallel replicas of a model that train apart and meet now and then
 * (topology/job/sync.h; the formulas: averaging.h). A replica is what the ranks
 * of one dp coordinate hold together; with sma these may train several, called
 * learners, one after the other. Each has weights and optimizer state of its
 * own, and the state is never averaged: it stays local, as in Lin et al. (arXiv
 * 1808.07217, local momentum) and in DiLoCo. What they have in common is one
 * model, the average at the last meeting, which validation and checkpoints
 * show, and its momentum.
 *
 * At a meeting one all-reduce of fp32, as long as the gradients, goes over the
 * dp group. */
struct plait_replicas;

/* Of a model whose configuration has them; the optimizer, which outlives them,
 * knows of them from then on (plait_optim_replicas()). The mesh has the DP
 * group. NULL with errno. */
struct plait_replicas *plait_replicas_create(struct plait_optim *optim,
                                             struct plait_error *err);
void plait_replicas_destroy(struct plait_replicas *r);

/* Over all dp coordinates. */
int plait_replicas_count(const struct plait_replicas *r);
/* Trained by this rank. */
int plait_replicas_learners(const struct plait_replicas *r);

/* A checkpoint of `step` steps has been loaded with every replica's state. */
void plait_replicas_resume(struct plait_replicas *r, int64_t step);

/* Before step number `step`, from 0. Where they part the common model is what
 * all of them hold. */
int plait_replicas_begin(struct plait_replicas *r, int64_t step);
/* The model and the optimizer become learner i's. Between steps they are those
 * of learner 0. */
int plait_replicas_select(struct plait_replicas *r, int i);
/* Before and after the optimizer's step of the selected learner. */
int plait_replicas_before_update(struct plait_replicas *r);
int plait_replicas_after_update(struct plait_replicas *r);
/* After the step of all learners: they meet if it is time. Collective over the
 * dp group. */
int plait_replicas_end(struct plait_replicas *r);

/* The model's weights become the common model's until _return(). Uses the
 * gradients' memory. */
int plait_replicas_lend(struct plait_replicas *r);
int plait_replicas_return(struct plait_replicas *r);

/* Before a checkpoint: the common model is up to date. */
int plait_replicas_settle(struct plait_replicas *r);

/* What a checkpoint holds of this rank between two steps: replica.K.NAME for
 * each piece of each of its learners (plait_optim_pieces()),
 * sync.momentum.NAME, and under the tensors' own names the common model. */
int plait_replicas_pieces(const struct plait_replicas *r,
                          const struct plait_optim_piece **pieces);

#endif

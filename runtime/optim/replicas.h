/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_REPLICAS_H
#define PLAIT_RUNTIME_OPTIM_REPLICAS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/optim/optim.h"

/* Data-parallel replicas of a model that train apart and meet now and then
 * (topology/job/sync.h; formulas: averaging.h). A replica is the model that the
 * ranks of one dp coordinate hold together; with sma these may train several,
 * called learners, one after the other. Each has its own weights and optimizer
 * state, and the state is never averaged: it stays local, as in Lin et al.
 * (arXiv 1808.07217, local momentum) and in DiLoCo. They share a common model,
 * the average at the last meeting, which validation and checkpoints use, and
 * its momentum.
 *
 * A meeting is one sum over the dp group, of as many elements as the gradients
 * have, which sync.gradients may have rounded before (exchange.h). With
 * sync.fragments it is one for each run of regions of a fragment (fragments.h),
 * about as many as the fragment has layers; fragments meet in steps of their
 * own, and the common model has each as it was at its last meeting, or with
 * sync.delay at the last arrival (meetings.h). */
struct plait_replicas;

/* What a checkpoint's names of the vector of what is under way begin with. */
#define PLAIT_PENDING "sync.pending."

/* For a model whose configuration has replicas. The optimizer must outlive them
 * and knows them from then on (plait_optim_replicas()). The mesh must have the
 * DP group. NULL with errno. */
struct plait_replicas *plait_replicas_create(struct plait_optim *optim,
                                             struct plait_error *err);
void plait_replicas_destroy(struct plait_replicas *r);

/* Number of replicas, over all dp coordinates. */
int plait_replicas_count(const struct plait_replicas *r);

/* After which step each fragment [PLAIT_SYNC_FRAGMENTS_MOST] has sent what is
 * under way (sync.delay); 0: nothing is. NULL: nothing ever is. */
const int64_t *plait_replicas_sent(const struct plait_replicas *r);
/* Call after loading a checkpoint of `step` steps with every replica's state,
 * and what they had sent. */
void plait_replicas_resume(struct plait_replicas *r, int64_t step,
                           const int64_t *sent);

/* Before step number `step`, from 0. When they part, the common model is the
 * weights that all of them hold. */
int plait_replicas_begin(struct plait_replicas *r, int64_t step);
/* Switches the model and the optimizer to learner i. Between steps learner 0 is
 * selected. */
int plait_replicas_select(struct plait_replicas *r, int i);
/* Before and after the optimizer's step of the selected learner. */
int plait_replicas_before_update(struct plait_replicas *r);
int plait_replicas_after_update(struct plait_replicas *r);
/* After the step of all learners: lets them meet if it is time. Collective over
 * the dp group. */
int plait_replicas_end(struct plait_replicas *r);

/* Switches the model's weights to the common model's until _return(). Uses the
 * gradients' memory. */
int plait_replicas_lend(struct plait_replicas *r);
int plait_replicas_return(struct plait_replicas *r);

/* Before a checkpoint: brings the common model up to date, and waits for what
 * is under way. */
int plait_replicas_settle(struct plait_replicas *r);

/* What a checkpoint stores of this rank between two steps: replica.K.NAME for
 * each piece of each of its learners (plait_optim_pieces()),
 * sync.momentum.NAME, PLAIT_PENDING NAME, and the common model under the
 * tensors' own names. */
int plait_replicas_pieces(const struct plait_replicas *r,
                          const struct plait_optim_piece **pieces);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_CLAIMS_H
#define PLAIT_RUNTIME_TRAIN_CLAIMS_H

#include "runtime/train/session.h"

/* What a run writes to and nobody else may: checkpoint.dir and the metrics
 * file. */
struct plait_claims;

/* Rank 0 claims both, for s->claims, and keeps them until the session is
 * closed, over the losses of an elastic run. Collective; -1 with err: another
 * run has one of them. */
int plait_claims_take(struct plait_session *s,
                      const struct plait_train_args *args,
                      struct plait_error *err);
/* For a process that begins anew: notes the descriptors of the lock files in
 * e->held, so that no other run gets in between. Nothing is written to them
 * until plait_claims_unhold(), if it does not. NULL-safe. */
void plait_claims_hold(const struct plait_claims *claims,
                       struct plait_elastic *e);
void plait_claims_unhold(const struct plait_claims *claims,
                         struct plait_elastic *e);
/* In its new life: goes on to say in the files e->held that the run lives,
 * until plait_claims_take(). */
void plait_claims_go_on(struct plait_elastic *e);
void plait_claims_release(struct plait_claims *claims);

#endif

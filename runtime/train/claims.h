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
void plait_claims_release(struct plait_claims *claims);

#endif

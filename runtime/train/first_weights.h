/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_FIRST_WEIGHTS_H
#define PLAIT_RUNTIME_TRAIN_FIRST_WEIGHTS_H

#include "runtime/train/session.h"

#define PLAIT_INIT_NEW "new" /* of --init and train.init */

/* Where the weights of a run come from that has no checkpoint to go on from:
 * from --init, from train.init, or from the checkpoint whose plait.yaml is the
 * configuration; s->init stays NULL where they are new. Collective. */
int plait_first_weights_find(struct plait_session *s,
                             const struct plait_train_args *args,
                             struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_DATA_VOCAB_H
#define PLAIT_RUNTIME_TRAIN_DATA_VOCAB_H

#include "runtime/train/session.h"

/* Sets s->data_vocab to the number of tokens that data.train and data.val were
 * written with, the larger one. Where model.vocab is not given, it becomes that
 * of the checkpoint or model that the run begins with, else the data's; then
 * data.train that cannot be opened is an error, except for a sample. Otherwise
 * it is not: whoever trains on it says why. Collective, after the ranks have
 * compared their settings and s->init is known. */
int plait_data_vocab_find(struct plait_session *s,
                          const struct plait_train_args *args,
                          struct plait_error *err);

#endif

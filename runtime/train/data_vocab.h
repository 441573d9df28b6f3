/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_DATA_VOCAB_H
#define PLAIT_RUNTIME_TRAIN_DATA_VOCAB_H

#include "runtime/train/session.h"

/* Sets s->data_vocab to the number of tokens that data.train was written with,
 * and model.vocab to the same where it is not given. Data that cannot be opened
 * says nothing here: whoever trains on it will say why. Collective. */
int plait_data_vocab_find(struct plait_session *s, struct plait_error *err);

#endif

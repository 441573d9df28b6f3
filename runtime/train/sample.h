/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SAMPLE_H
#define PLAIT_SAMPLE_H

#include <stdio.h>

#include "runtime/train/step.h"
#include "runtime/train/words.h"

/* Generate `count` tokens after the prompt of `words` and print prompt and
 * text to `out` on rank 0. Collective over the world. */
int plait_sample(struct plait_trainer *t, struct plait_parallel *par,
                 const struct plait_config *config, struct plait_words *words,
                 int64_t count, FILE *out, struct plait_error *err);

/* Draw from softmax(logits / temperature) by one number u in [0, 1). Pure. */
int plait_sample_token(const float *logits, int n, double temperature,
                       double u);

#endif

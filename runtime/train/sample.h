/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_SAMPLE_H
#define PLAIT_RUNTIME_TRAIN_SAMPLE_H

#include <stdio.h>

#include "runtime/parallel/pipeline.h"
#include "runtime/train/detokenize.h"

/* Generate `count` tokens after the prompt of `detokenizer` and print prompt
 * and text to `out` on rank 0. Collective over the world; -1: this rank alone
 * may have failed. */
int plait_sample(struct plait_pipeline *pipe, struct plait_mesh *mesh,
                 const struct plait_job_config *config,
                 struct plait_detokenizer *detokenizer, int64_t count,
                 FILE *out, struct plait_error *err);

/* Draw from softmax(logits / temperature) by one number u in [0, 1). Pure. */
int plait_sample_token(const float *logits, int n, double temperature,
                       double u);

#endif

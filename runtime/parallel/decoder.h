/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_DECODER_H
#define PLAIT_RUNTIME_PARALLEL_DECODER_H

#include "runtime/model/model.h"

/* Texts that grow, over the stages of a pipeline: each keeps the keys and
 * values of its layers. */
struct plait_decoder;

/* Sizes as for plait_model_reserve_texts(). */
struct plait_decoder *plait_decoder_create(struct plait_model *model, int texts,
                                           int length, int rows,
                                           struct plait_error *err);
void plait_decoder_destroy(struct plait_decoder *decoder);

/* One pass through all stages: plait_model_extend(). Collective over the tp-pp
 * group; `logits` are filled in on the last stage alone. */
int plait_decoder_extend(struct plait_decoder *decoder,
                         const struct plait_additions *added, float *logits);

#endif

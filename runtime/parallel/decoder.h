/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_DECODER_H
#define PLAIT_RUNTIME_PARALLEL_DECODER_H

#include "runtime/model/model.h"

/* Extends texts by new tokens, over the stages of a pipeline. Each stage keeps
 * the keys and values of its own layers. */
struct plait_decoder;

/* Sizes as for plait_model_reserve_texts(). */
struct plait_decoder *plait_decoder_create(struct plait_model *model, int texts,
                                           int length, int rows,
                                           struct plait_error *err);
void plait_decoder_destroy(struct plait_decoder *decoder);

/* Runs plait_model_extend() through all stages. Collective over the tp-pp
 * group; only the last stage fills in `logits`. */
int plait_decoder_extend(struct plait_decoder *decoder,
                         const struct plait_additions *added, float *logits);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FOREIGN_LLAMA4_H
#define PLAIT_TOPOLOGY_JOB_FOREIGN_LLAMA4_H

#include "topology/base/error.h"
#include "topology/job/foreign_pairs.h"
#include "topology/job/job_config.h"

/* What a llama4_text says of its `model->layers` layers, by lists or by steps:
 * dense_layers, experts_every, no_rope_every, attention_chunk and qk_l2_norm.
 * -1 with the reason if other keys of `model` cannot say the same. */
int plait_foreign_llama4(const char *path, const struct plait_pairs *p,
                         struct plait_model_config *model,
                         struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 3 8B in bf16, as tests of estimates begin with it. */
#ifndef PLAIT_TESTS_UNIT_LLAMA3_8B_H
#define PLAIT_TESTS_UNIT_LLAMA3_8B_H

#include <string.h>

#include "topology/job/job_config.h"

static inline void llama3_8b(struct plait_job_config *c)
{
    memset(c, 0, sizeof(*c));
    c->model = (struct plait_model_config){.family = PLAIT_LLAMA,
                                           .layers = 32,
                                           .hidden = 4096,
                                           .heads = 32,
                                           .kv_heads = 8,
                                           .ffn = 14336,
                                           .vocab = 128256,
                                           .seq_len = 8192};
    c->parallel.schedule = PLAIT_SCHEDULE_1F1B;
    c->parallel.virtual_stages = 1;
    c->parallel.bucket_mib = 25;
    c->train.precision = PLAIT_BF16;
    c->train.global_batch = 64;
    c->train.micro_batch = 1;
}

#endif

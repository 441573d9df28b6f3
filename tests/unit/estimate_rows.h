/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_ESTIMATE_ROWS_H
#define PLAIT_TESTS_UNIT_ESTIMATE_ROWS_H

/* Published models and layouts, which the tests of estimates begin from. */

#include <math.h>
#include <string.h>

#include "topology/predict/estimate.h"

/* Table 1 of D. Narayanan et al., "Efficient Large-Scale Language Model
 * Training on GPU Clusters Using Megatron-LM", SC21: A100-80G, sequence 2048,
 * vocabulary 51200, fp16, full recompute, no overlap of gradients. test_records
 * compares with the speeds that they measured. */
static const struct row {
    double billions;
    int hidden, layers, heads, tp, pp, micro, global, gpus, chunks;
} rows[] = {
    {1.7, 2304, 24, 24, 1, 1, 16, 512, 32, 1},
    {3.6, 3072, 30, 32, 2, 1, 16, 512, 64, 1},
    {7.5, 4096, 36, 32, 4, 1, 16, 512, 128, 1},
    {18.4, 6144, 40, 48, 8, 1, 8, 1024, 256, 1},
    {39.1, 8192, 48, 64, 8, 2, 4, 1536, 512, 1},
    {76.1, 10240, 60, 80, 8, 4, 2, 1792, 1024, 3},
    {145.6, 12288, 80, 96, 8, 8, 2, 2304, 1536, 2},
    {310.1, 16384, 96, 128, 8, 16, 1, 2160, 1920, 2},
    {529.6, 20480, 105, 128, 8, 35, 1, 2520, 2520, 3},
    {1008, 25600, 128, 160, 8, 64, 1, 3072, 3072, 1},
};
enum { NROWS = sizeof(rows) / sizeof(rows[0]) };

static inline void make(const struct row *row, struct plait_job_config *c,
                        struct plait_layout *l)
{
    memset(c, 0, sizeof(*c));
    c->model = (struct plait_model_config){.family = PLAIT_GPT2,
                                           .layers = row->layers,
                                           .hidden = row->hidden,
                                           .heads = row->heads,
                                           .kv_heads = row->heads,
                                           .ffn = 4 * row->hidden,
                                           .vocab = 51200,
                                           .seq_len = 2048,
                                           .tie_embeddings = true};
    c->parallel.schedule =
        row->chunks > 1 ? PLAIT_SCHEDULE_INTERLEAVED : PLAIT_SCHEDULE_1F1B;
    c->parallel.virtual_stages = row->chunks;
    c->parallel.recompute = PLAIT_RECOMPUTE_FULL;
    c->parallel.bucket_mib = 25;
    c->parallel.grad_reduce = PLAIT_GRAD_BF16; /* 2 bytes, as in fp16 */
    c->train.precision = PLAIT_FP16;
    c->train.global_batch = row->global;
    c->train.micro_batch = row->micro;
    plait_layout_init(l);
    l->size[PLAIT_TP] = row->tp;
    l->size[PLAIT_PP] = row->pp;
    l->size[PLAIT_DP] = row->gpus / (row->tp * row->pp);
}

static inline int near(double a, double b, double share)
{
    return fabs(a - b) <= share * fabs(b);
}

#endif

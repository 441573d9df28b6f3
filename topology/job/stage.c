/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/stage.h"

/* What the head costs, in layers: multiplications per token of each. */
static double head_cost(const struct plait_model_config *c)
{
    double head = plait_model_head_dim(c);
    double q = head * c->heads, kv = head * c->kv_heads;
    double mlp = c->family == PLAIT_LLAMA ? 3.0 * c->ffn : 2.0 * c->ffn;

    if (plait_is_image_model(c))
        return 0;

    if (c->experts)
        mlp = mlp * c->experts_top_k + c->experts;
    return c->vocab / (2 * q + 2 * kv + mlp + c->seq_len * q / c->hidden);
}

/* Layers on the fullest of the other stages if the last one has n. */
static int most_before(int layers, int others, int n)
{
    return (layers - n + others - 1) / others;
}

/* Layers of the last stage: the most for which the slowest stage is as fast
 * as can be. The others' get fewer with n and the last one's more, so the
 * best is where they meet or one before. */
static int last_layers(const struct plait_model_config *c, int others)
{
    int low = 1, high = c->layers - others;
    double head = head_cost(c);

    while (low < high) {
        int n = low + (high - low) / 2;

        if (n + head >= most_before(c->layers, others, n))
            high = n;
        else
            low = n + 1;
    }
    if (low > 1 && most_before(c->layers, others, low - 1) < low + head)
        return low - 1;
    return low;
}

void plait_model_stage(const struct plait_model_config *config, int stages,
                       int stage, int *first, int *count)
{
    int others = stages - 1;
    int last = others ? last_layers(config, others) : config->layers;
    int rest = config->layers - last;

    if (stage == others) {
        *first = rest;
        *count = last;
        return;
    }
    *count = rest / others + (stage < rest % others);
    *first =
        rest / others * stage + (stage < rest % others ? stage : rest % others);
}

int plait_model_chunks(const struct plait_parallel_config *parallel)
{
    return parallel->schedule == PLAIT_SCHEDULE_INTERLEAVED
               ? parallel->virtual_stages
               : 1;
}

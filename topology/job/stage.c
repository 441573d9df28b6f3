/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/stage.h"

#include <stdio.h>

#include "topology/job/model_size.h"

/* The cost of the head in layers, by the multiplications per token of each. One
 * more layer and the head again where a token further is predicted. */
static double head_cost(const struct plait_model_config *c)
{
    double attention, scores, mlp, layer;

    if (plait_is_image_model(c))
        return 0;
    attention = plait_model_attention(c) / c->hidden;
    scores = plait_model_score_width(c) * c->heads;
    mlp = c->family == PLAIT_LLAMA ? 3.0 * c->ffn : 2.0 * c->ffn;
    if (c->experts)
        mlp = mlp * (c->experts_top_k + c->shared_experts) + c->experts;
    layer = attention + mlp + c->seq_len * scores / c->hidden;
    return c->vocab / layer +
           c->mtp_layers * (1 + (c->vocab + 2.0 * c->hidden) / layer);
}

/* Layers on the fullest of the other stages if the last one has n. */
static int most_before(int layers, int others, int n)
{
    return (layers - n + others - 1) / others;
}

/* Layers of the last stage: the most for which the slowest stage is as fast as
 * possible. With more of them the other stages get fewer, so the best number is
 * where both take equally long, or one less. */
static int last_layers(const struct plait_model_config *c, int others)
{
    int low = 0, high = c->layers - others;
    double head = head_cost(c);

    while (low < high) {
        int n = low + (high - low) / 2;

        if (n + head >= most_before(c->layers, others, n))
            high = n;
        else
            low = n + 1;
    }
    if (low > 0 && most_before(c->layers, others, low - 1) < low + head)
        return low - 1;
    return low;
}

/* Megatron's stages: even where the layers divide, or else the embedding and
 * the head count as a layer each. */
static void set_counted(struct plait_stage_split *s, int layers)
{
    int ends = layers % s->stages ? 1 : 0, all = layers + 2 * ends;

    s->each = all / s->stages;
    s->more = all % s->stages;
    s->early = true;
    s->taken = ends;
    s->last = s->each - ends;
}

void plait_stage_split_set(struct plait_stage_split *s,
                           const struct plait_job_config *config, int stages)
{
    const struct plait_model_config *m = &config->model;
    const struct plait_numbers *given = &config->parallel.stages;
    int others = stages - 1;

    *s = (struct plait_stage_split){.stages = stages, .last = m->layers};
    if (given->n == stages)
        s->given = given->at;
    else if (others && (config->framework == PLAIT_FRAMEWORK_MEGATRON ||
                        config->framework == PLAIT_FRAMEWORK_MEGATRON_2021))
        set_counted(s, m->layers);
    else if (others) {
        s->last = last_layers(m, others);
        s->each = (m->layers - s->last) / others;
        s->more = (m->layers - s->last) % others;
    }
}

/* plait-train's stages may differ in length, and Megatron's, where the
 * embedding and the head count as layers. Of plait-train's interleaved chunks
 * only those at the ends may differ: where others do, ranks wait for each other
 * in a way that the estimate does not model, and a simulation is 4 % slower. */
bool plait_stage_divides(const struct plait_job_config *c, int pp, int v)
{
    int layers = c->model.layers, stages = pp * v;
    bool plait = c->framework == PLAIT_FRAMEWORK_PLAIT;
    bool old = c->framework == PLAIT_FRAMEWORK_MEGATRON_2021;

    return layers % stages == 0 || c->framework == PLAIT_FRAMEWORK_MEGATRON ||
           ((old || plait) && (layers + 2) % stages == 0) ||
           (plait && (v == 1 || (layers + 1) % stages == 0 ||
                      c->parallel.stages.n == stages));
}

int plait_stage_split_at(const struct plait_stage_split *s, int stage)
{
    int others = s->stages - 1, longer;

    if (s->given)
        return (int)s->given[stage];
    if (stage == others)
        return s->last;
    longer = s->early ? stage < s->more : stage >= others - s->more;
    return s->each + longer - (stage == 0) * s->taken;
}

void plait_model_stage(const struct plait_job_config *config, int stages,
                       int stage, int *first, int *count)
{
    struct plait_stage_split s;

    plait_stage_split_set(&s, config, stages);
    *first = 0;
    for (int i = 0; i < stage; i++)
        *first += plait_stage_split_at(&s, i);
    *count = plait_stage_split_at(&s, stage);
}

void plait_stage_split_print(const struct plait_stage_split *s,
                             const char *between, char *buf, size_t size)
{
    size_t at = 0;
    int run;

    buf[0] = '\0';
    for (int i = 0; i < s->stages && at < size; i += run) {
        int n = plait_stage_split_at(s, i);

        for (run = 1; i + run < s->stages; run++)
            if (plait_stage_split_at(s, i + run) != n)
                break;
        if (run < 3)
            run = 1;
        at += (size_t)(run > 1 ? snprintf(buf + at, size - at, "%s%dx%d",
                                          i > 0 ? between : "", run, n)
                               : snprintf(buf + at, size - at, "%s%d",
                                          i > 0 ? between : "", n));
    }
}

int plait_model_chunks(const struct plait_parallel_config *parallel)
{
    return parallel->schedule == PLAIT_SCHEDULE_INTERLEAVED
               ? parallel->virtual_stages
               : 1;
}

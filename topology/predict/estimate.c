/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/estimate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "topology/job/fits.h"
#include "topology/job/stage.h"
#include "topology/plan/traffic.h"
#include "topology/predict/estimate_shape.h"

static int check_config(const struct plait_job_config *c,
                        const struct plait_layout *layout,
                        const struct plait_gpu_type *gpu,
                        struct plait_error *err)
{
    if (plait_fits_trainer_on(c, gpu, err) < 0)
        return -1;
    return plait_fits(c, layout, err);
}

int plait_shape_chunk(const struct plait_shape *s, int rank, int chunk)
{
    return plait_stage_split_at(&s->split, chunk * s->pp + rank);
}

int plait_shape_layers(const struct plait_shape *s, int rank)
{
    int sum = 0;

    for (int i = 0; i < s->v; i++)
        sum += plait_shape_chunk(s, rank, i);
    return sum;
}

int plait_shape_chunk_first(const struct plait_shape *s, int rank, int chunk)
{
    int first = 0;

    for (int i = 0; i < chunk * s->pp + rank; i++)
        first += plait_stage_split_at(&s->split, i);
    return first;
}

int plait_shape_chunk_dense(const struct plait_shape *s, int rank, int chunk)
{
    int first = plait_shape_chunk_first(s, rank, chunk);
    int count = plait_shape_chunk(s, rank, chunk), dense = 0;

    for (int i = first; i < first + count; i++)
        dense += plait_model_dense(s->m, i);
    return dense;
}

int plait_shape_dense(const struct plait_shape *s, int rank)
{
    int sum = 0;

    for (int i = 0; i < s->v; i++)
        sum += plait_shape_chunk_dense(s, rank, i);
    return sum;
}

int plait_shape_largest(const struct plait_shape *s, int rank)
{
    int most = 0;

    for (int i = 0; i < s->v; i++)
        if (plait_shape_chunk(s, rank, i) > most)
            most = plait_shape_chunk(s, rank, i);
    return most;
}

static void set_split(struct plait_shape *s)
{
    int most = -1;

    plait_stage_split_set(&s->split, s->c, s->pp * s->v);
    for (int rank = 0; rank < s->pp; rank++) {
        int layers = plait_shape_layers(s, rank);

        if (layers > most) {
            most = layers;
            s->longest = rank;
        }
    }
}

static void set_shape(struct plait_shape *s, const struct plait_job_config *c,
                      const struct plait_layout *layout,
                      const struct plait_gpu_type *gpu)
{
    const int *size = layout->size;

    *s = (struct plait_shape){.c = c,
                              .m = &c->model,
                              .layout = layout,
                              .gpu = gpu,
                              .traits = &plait_framework_traits[c->framework],
                              .tp = size[PLAIT_TP],
                              .cp = size[PLAIT_CP],
                              .ep = size[PLAIT_EP],
                              .dp = size[PLAIT_DP],
                              .pp = size[PLAIT_PP],
                              .v = plait_model_chunks(&c->parallel)};
    s->score_bytes = fmax(gpu->score_bytes, s->traits->score_bytes);
    s->sequence = c->parallel.sequence && !s->traits->whole_rows;
    s->bucketed =
        c->parallel.grad_sync == PLAIT_GRAD_BUCKETED && !s->traits->sums_late;
    s->crowd = 1;
    if (gpu->cores > 0) {
        s->crowd =
            plait_gpu_type_share(gpu, plait_layout_world(layout), &s->rank);
        s->gpu = gpu = &s->rank;
    }
    if (!plait_is_image_model(s->m)) {
        plait_sides_set(&s->sides, s->m, s->tp, 0, s->pp == 1);
        s->dense = s->sides;
        plait_sides_dense(&s->dense, s->m, s->tp, 0);
    }
    set_split(s);
    s->tokens = (double)c->train.micro_batch * c->model.seq_len / s->cp;
    s->element = plait_precision_size(c->train.precision);
    s->microbatches = plait_traffic_microbatches(c, layout);
    s->matrix = plait_model_met(&c->model);
    s->peak = c->train.precision == PLAIT_FP32   ? gpu->flops32
              : c->train.precision == PLAIT_TF32 ? gpu->flops_tf32
                                                 : gpu->flops16;
    s->linear_peak = c->train.precision == PLAIT_FP8 ? gpu->flops8 : s->peak;
}

/* Forward FLOPs of a token: one layer, its attention scores in it, and the
 * head. */
static double score_flops(const struct plait_shape *s)
{
    return 4.0 * s->m->seq_len * s->m->heads * plait_model_score_width(s->m) *
           plait_model_reach(s->m);
}

static double layer_flops(const struct plait_shape *s)
{
    return 2 * s->matrix + score_flops(s);
}

static double head_flops(const struct plait_shape *s)
{
    return 2.0 * s->m->hidden * s->m->vocab;
}

double plait_shape_recomputed(const struct plait_shape *s)
{
    int layers = s->c->parallel.recompute_layers;

    return layers && layers < s->m->layers ? (double)layers / s->m->layers : 1;
}

static bool recomputes_cheap(const struct plait_shape *s)
{
    return s->c->parallel.recompute == PLAIT_RECOMPUTE_SELECTIVE &&
           s->traits->renorm_bytes > 0;
}

double plait_shape_attention_again(const struct plait_shape *s)
{
    if (s->c->parallel.recompute == PLAIT_RECOMPUTE_NONE || recomputes_cheap(s))
        return 0;
    return plait_shape_recomputed(s);
}

double plait_shape_cheap_again(const struct plait_shape *s)
{
    return recomputes_cheap(s) ? plait_shape_recomputed(s) : 0;
}

static void set_flops(const struct plait_shape *s, struct plait_estimate *e)
{
    double images = s->c->train.global_batch;
    int full = s->c->parallel.recompute == PLAIT_RECOMPUTE_FULL;
    double tokens = (double)s->c->train.global_batch * s->m->seq_len;
    int layers = s->m->layers + s->m->mtp_layers;
    double token = s->m->layers * layer_flops(s);
    /* of which nothing is recomputed */
    double head = head_flops(s) + s->m->mtp_layers * score_flops(s) +
                  2 * plait_model_mtp_met(s->m);

    if (plait_is_image_model(s->m)) {
        e->flops_per_token = 6 * plait_image_macs(s->m);
        e->flops_per_step = images * e->flops_per_token;
        return;
    }
    e->flops_per_token = 3 * (token + head);
    e->flops_per_step =
        tokens *
        ((full ? 3 + plait_shape_recomputed(s) : 3) * token + 3 * head);
    if (!full)
        e->flops_per_step +=
            tokens * layers * score_flops(s) * plait_shape_attention_again(s);
}

/* Find the fullest rank. The first has the embedding and the most
 * micro-batches, the second a message to receive ahead, the last the head.
 * Any other rank has less of these than the rank before it. It can need more
 * memory only where it has more layers, so only those ranks are computed, and
 * all that have layers with experts and without. */
static void set_memory(const struct plait_shape *s, double enough,
                       struct plait_estimate *e)
{
    int layers = 0, chunk = 0;

    for (int rank = 0; rank < s->pp && e->memory.total <= enough; rank++) {
        int here = plait_shape_layers(s, rank);
        int largest = plait_shape_largest(s, rank);
        struct plait_memory memory;

        if (rank > 1 && rank < s->pp - 1 && here <= layers &&
            largest <= chunk && !plait_shape_dense(s, rank))
            continue;
        if (!plait_shape_dense(s, rank)) {
            layers = here > layers ? here : layers;
            chunk = largest > chunk ? largest : chunk;
        }
        plait_shape_memory(s, rank, &memory);
        if (memory.total > e->memory.total) {
            e->memory = memory;
            e->fullest = rank;
        }
    }
}

int plait_shape_begin(struct plait_shape *s,
                      const struct plait_job_config *config,
                      const struct plait_layout *layout,
                      const struct plait_gpu_type *gpu, double enough,
                      struct plait_estimate *e, struct plait_error *err)
{
    if (check_config(config, layout, gpu, err) < 0)
        return -1;
    memset(e, 0, sizeof(*e));
    set_shape(s, config, layout, gpu);
    set_memory(s, enough, e);
    return 0;
}

static void name_attention(const struct plait_shape *s,
                           struct plait_estimate *e)
{
    static const char *const names[] = {
        [PLAIT_BY_FITTED] = "",
        [PLAIT_BY_CUDNN] = "cuDNN",
        [PLAIT_BY_CHUNKS] = "cuDNN and own kernels",
        [PLAIT_BY_BOTH] = "cuDNN, backward own kernels",
        [PLAIT_BY_PEAKS] = "own kernels, backward cuDNN",
        [PLAIT_BY_OWN] = "own kernels"};
    enum plait_attention_by by = plait_shape_attention_by(s);

    const char *own = plait_model_own_attention(s->c);

    e->attention_by = names[by];
    e->attention_why = by == PLAIT_BY_OWN && own ? own
                       : by == PLAIT_BY_OWN
                           ? "optim.qk_clip, head_dim above 128"
                       : by == PLAIT_BY_PEAKS ? "optim.qk_clip"
                       : by == PLAIT_BY_BOTH  ? "head_dim above 128"
                       : by == PLAIT_BY_CHUNKS && s->m->attention_chunk
                           ? "model.attention_chunk"
                       : by == PLAIT_BY_CHUNKS ? "windows between chunks"
                                               : "";
}

void plait_shape_finish(const struct plait_shape *s, struct plait_estimate *e)
{
    double gpus = plait_layout_world(s->layout), causal = 0;
    double peak = s->peak / s->crowd; /* a rank's share of the node's peak */

    e->parameters = plait_model_parameters(s->m);
    e->active = plait_model_active(s->m);
    e->microbatches = s->microbatches;
    set_flops(s, e);
    name_attention(s, e);
    plait_shape_time(s, e);
    e->tokens_per_s =
        (double)s->c->train.global_batch * s->m->seq_len / e->step_s;
    e->tflops_per_gpu = e->flops_per_step / e->step_s / gpus / 1e12;
    e->mfu = e->flops_per_token * e->tokens_per_s / gpus / peak;
    if (!plait_is_image_model(s->m))
        causal = 3 * (s->m->layers + s->m->mtp_layers) * score_flops(s) / 2;
    e->mfu_causal =
        (e->flops_per_token - causal) * e->tokens_per_s / gpus / peak;
}

int plait_estimate(const struct plait_job_config *config,
                   const struct plait_layout *layout,
                   const struct plait_gpu_type *gpu,
                   struct plait_estimate *estimate, struct plait_error *err)
{
    struct plait_estimate e;
    struct plait_shape s;

    if (plait_shape_begin(&s, config, layout, gpu, INFINITY, &e, err) < 0)
        return -1;
    plait_shape_finish(&s, &e);
    *estimate = e;
    return 0;
}

#define RESTART 300
#define SAVE 30

void plait_estimate_goodput(const struct plait_gpu_type *gpu, int gpus,
                            struct plait_goodput *g)
{
    double hours =
        gpu->failure_hours > 0 ? gpu->failure_hours : PLAIT_FAILURE_HOURS;

    g->between = 3600 * hours / gpus;
    g->checkpoint = sqrt(2 * SAVE * g->between);
    g->share = fmax(0, 1 - SAVE / g->checkpoint -
                           (RESTART + g->checkpoint / 2) / g->between);
}

int plait_estimate_memory(const struct plait_job_config *config,
                          const struct plait_layout *layout,
                          const struct plait_gpu_type *gpu, int stage,
                          struct plait_memory *memory, struct plait_error *err)
{
    struct plait_shape s;

    if (check_config(config, layout, gpu, err) < 0)
        return -1;
    set_shape(&s, config, layout, gpu);
    plait_shape_memory(&s, stage, memory);
    return 0;
}

int plait_estimate_largest(const struct plait_job_config *config,
                           const struct plait_layout *layout,
                           const struct plait_gpu_type *gpu)
{
    int step = layout->size[PLAIT_PP] * plait_model_chunks(&config->parallel);
    int low = 0, high = 1 << 20;

    if (plait_is_image_model(&config->model))
        return 0; /* its blocks are not equal layers */
    while (low < high - 1) {
        struct plait_job_config deeper = *config;
        struct plait_estimate e;
        struct plait_shape s;
        int middle = low + (high - low) / 2;

        deeper.model.layers = middle * step;
        deeper.parallel.stages.n = 0;
        if (middle > (1 << 29) / step ||
            plait_shape_begin(&s, &deeper, layout, gpu, gpu->memory, &e, NULL) <
                0 ||
            e.memory.total > gpu->memory)
            high = middle;
        else
            low = middle;
    }
    return low * step;
}

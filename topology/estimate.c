/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost.h"
#include "traffic.h"

/* Everything below is per GPU; the formulas stand in estimate.h. */
struct shape {
    const struct plait_config *c;
    const struct plait_model_config *m;
    const struct plait_layout *layout;
    const struct plait_gpu_type *gpu;
    int tp, cp, ep, dp, pp, v;
    double tokens;       /* of a micro-batch, on one cp rank */
    double element;      /* bytes of an activation */
    double layers;       /* on one stage */
    double microbatches; /* a pipeline works through in a step */
    double matrix;       /* weights of one layer that a token meets */
    double peak;         /* FLOP/s */
};

static int check(const struct plait_config *c,
                 const struct plait_layout *layout, struct plait_error *err)
{
    const struct plait_model_config *m = &c->model;
    const int *size = layout->size;
    int groups = size[PLAIT_DP] * c->train.micro_batch;

    errno = EINVAL;
    if (m->family != PLAIT_GPT2 && m->family != PLAIT_LLAMA)
        return plait_errorf(err, "only gpt2 and llama models can be "
                                 "estimated");
    if (m->heads % size[PLAIT_TP] || m->kv_heads % size[PLAIT_TP])
        return plait_errorf(err,
                            "tp=%d does not divide the %d heads (%d for "
                            "keys and values)",
                            size[PLAIT_TP], m->heads, m->kv_heads);
    if (m->ffn % size[PLAIT_TP])
        return plait_errorf(err, "tp=%d does not divide ffn=%d", size[PLAIT_TP],
                            m->ffn);
    if (m->layers % (size[PLAIT_PP] * c->parallel.virtual_stages))
        return plait_errorf(err,
                            "pp=%d stages of %d chunks do not divide %d "
                            "layers",
                            size[PLAIT_PP], c->parallel.virtual_stages,
                            m->layers);
    if (m->seq_len % size[PLAIT_CP])
        return plait_errorf(err, "cp=%d does not divide seq_len=%d",
                            size[PLAIT_CP], m->seq_len);
    if (size[PLAIT_EP] > 1 && (m->experts < 1 || m->experts % size[PLAIT_EP]))
        return plait_errorf(err, "ep=%d does not divide %d experts",
                            size[PLAIT_EP], m->experts);
    if (c->train.global_batch % groups)
        return plait_errorf(err,
                            "global_batch=%d is not a multiple of dp * "
                            "micro_batch = %d * %d",
                            c->train.global_batch, size[PLAIT_DP],
                            c->train.micro_batch);
    return 0;
}

static double matrix_weights(const struct plait_model_config *m)
{
    double h = m->hidden, kv = h * m->kv_heads / m->heads;
    double ffn = (m->family == PLAIT_GPT2 ? 2 : 3) * h * m->ffn;

    return 2 * h * h + 2 * h * kv + ffn * (m->experts ? m->experts_top_k : 1);
}

static void set_shape(struct shape *s, const struct plait_config *c,
                      const struct plait_layout *layout,
                      const struct plait_gpu_type *gpu)
{
    const int *size = layout->size;

    *s = (struct shape){.c = c,
                        .m = &c->model,
                        .layout = layout,
                        .gpu = gpu,
                        .tp = size[PLAIT_TP],
                        .cp = size[PLAIT_CP],
                        .ep = size[PLAIT_EP],
                        .dp = size[PLAIT_DP],
                        .pp = size[PLAIT_PP],
                        .v = c->parallel.virtual_stages};
    s->tokens = (double)c->train.micro_batch * c->model.seq_len / s->cp;
    s->element = c->train.precision == PLAIT_FP32 ? 4 : 2;
    s->layers = (double)c->model.layers / s->pp;
    s->microbatches = plait_traffic_microbatches(c, layout);
    s->matrix = matrix_weights(&c->model);
    s->peak = c->train.precision == PLAIT_FP32 ? gpu->flops32 : gpu->flops16;
}

/* Forward FLOPs of a token in one layer: matrices, attention scores. */
static double layer_flops(const struct shape *s)
{
    return 2 * s->matrix + 4.0 * s->m->seq_len * s->m->hidden;
}

static double head_flops(const struct shape *s)
{
    return 2.0 * s->m->hidden * s->m->vocab;
}

/* Passes over a layer, a forward pass being 1 and a backward pass 2. */
static double passes(const struct shape *s)
{
    return s->c->parallel.recompute == PLAIT_RECOMPUTE_FULL ? 4 : 3;
}

static void set_flops(const struct shape *s, struct plait_estimate *e)
{
    double tokens = (double)s->c->train.global_batch * s->m->seq_len;
    double scores = 4.0 * s->m->seq_len * s->m->hidden;
    double token = s->m->layers * layer_flops(s);

    e->flops_per_token = 3 * (token + head_flops(s));
    e->flops_per_step = tokens * (passes(s) * token + 3 * head_flops(s));
    if (s->c->parallel.recompute == PLAIT_RECOMPUTE_SELECTIVE)
        e->flops_per_step += tokens * s->m->layers * scores;
}

/* --- memory --- */

static double layer_activations(const struct shape *s, int recompute)
{
    double h = s->m->hidden, scale = s->element / 2;
    double ffn = (double)s->m->ffn / (4 * h); /* 16 of the 24 are the ffn's */
    double whole = 10, split = 8 + 16 * ffn;
    double scores =
        s->gpu->score_bytes > 0 ? 5.0 * s->m->heads * s->m->seq_len / h : 0;

    if (s->c->parallel.sequence) {
        split += whole;
        whole = 0;
    }
    if (recompute == PLAIT_RECOMPUTE_FULL)
        return scale * s->tokens * h *
               (s->c->parallel.sequence ? 2.0 / s->tp : 2);
    if (recompute == PLAIT_RECOMPUTE_SELECTIVE)
        scores = 0;
    return scale * s->tokens * h * (whole + (split + scores) / s->tp);
}

/* Layers' worth of micro-batches that the first stage holds at once. */
static double in_flight(const struct shape *s)
{
    double m = s->microbatches, p = s->pp;

    switch (s->c->parallel.schedule) {
    case PLAIT_SCHEDULE_NAIVE:
        return 1;
    case PLAIT_SCHEDULE_GPIPE:
        return m;
    case PLAIT_SCHEDULE_INTERLEAVED:
        p *= 1 + (p - 1) / (p * s->v);
        /* fallthrough */
    default:
        return m < p ? m : p;
    }
}

static double logits(const struct shape *s)
{
    /* the products, and their softmax in fp32 */
    return s->tokens * s->m->vocab / s->tp * (s->element + 4);
}

/* Weights on the fullest stage: the first or, untied, the last. */
static double stage_weights(const struct shape *s)
{
    double layer = plait_model_layer(s->m), ends;
    double expert = 0;

    if (s->m->experts > 0) {
        expert = (double)s->m->experts * (s->m->family == PLAIT_GPT2 ? 2 : 3) *
                 s->m->hidden * s->m->ffn;
        layer += expert / s->ep - expert;
    }
    ends = plait_model_embedding(s->m);
    if (s->pp > 1 && !s->m->tie_embeddings)
        ends -= (double)s->m->vocab * s->m->hidden;
    return (s->layers * layer + ends) / s->tp;
}

static void set_memory(const struct shape *s, struct plait_memory *memory)
{
    const struct plait_parallel_config *p = &s->c->parallel;
    double weights = stage_weights(s), shards = (double)s->dp * s->cp;
    int half = s->c->train.precision != PLAIT_FP32;
    double first, last;

    memory->weights = s->element * weights / (p->zero >= 3 ? shards : 1);
    memory->gradients = 4 * weights / (p->zero >= 2 ? shards : 1);
    memory->optimizer = (half ? 12 : 8) * weights / (p->zero >= 1 ? shards : 1);
    first = s->layers * layer_activations(s, (int)p->recompute);
    last = first + logits(s);
    first *= in_flight(s);
    if (s->pp == 1)
        first = first > last ? first + logits(s) : last;
    memory->activations = first > last ? first : last;
    if (p->recompute == PLAIT_RECOMPUTE_FULL) /* the layer being redone */
        memory->activations += layer_activations(s, PLAIT_RECOMPUTE_NONE);
    /* gradient buckets in flight, and the GPU's context and communicators */
    memory->buffers = 2 * p->bucket_mib * 1048576 +
                      (strcmp(s->gpu->name, "cpu") == 0 ? 0 : 1e9);
    memory->total = memory->weights + memory->gradients + memory->optimizer +
                    memory->activations + memory->buffers;
}

/* --- time --- */

/* The link that a group of n ranks, `stride` apart, has for its rings: the
 * node's if it fits there, else a share of the NICs for each of the rings
 * that leave a node together. */
struct path {
    double alpha, bandwidth;
};

static struct path path_of(const struct shape *s, int stride, int n)
{
    const struct plait_gpu_type *g = s->gpu;
    int inside = g->per_node / stride; /* members on one node */

    if (stride * n <= g->per_node)
        return (struct path){g->link_alpha, g->link_bw};
    inside = inside < 1 ? 1 : inside;
    return (struct path){g->nic_alpha, fmin(g->nic_bw * inside, g->link_bw)};
}

static int stride_of(const struct plait_layout *layout, enum plait_axis axis)
{
    int stride = 1;

    for (int i = 0; layout->order[i] != axis; i++)
        if (layout->order[i] != PLAIT_EP)
            stride *= layout->size[layout->order[i]];
    return stride;
}

static void set_communication(const struct shape *s,
                              const struct plait_traffic *t,
                              struct plait_estimate *e)
{
    const struct plait_layout *l = s->layout;
    struct path tp = path_of(s, stride_of(l, PLAIT_TP), s->tp);
    struct path cp = path_of(s, stride_of(l, PLAIT_CP), s->cp);
    struct path ep = path_of(s, stride_of(l, PLAIT_CP), s->ep);
    struct path dp = path_of(s, stride_of(l, PLAIT_CP), s->dp * s->cp);
    struct path pp = path_of(s, stride_of(l, PLAIT_PP), s->pp);
    double piece = t->bytes[PLAIT_PP] / (s->c->parallel.sequence ? 1 : s->tp);

    e->axis_s[PLAIT_TP] =
        t->calls[PLAIT_TP] *
        plait_cost_allreduce(s->tp, t->bytes[PLAIT_TP], tp.alpha, tp.bandwidth);
    e->axis_s[PLAIT_CP] =
        s->cp > 1
            ? t->calls[PLAIT_CP] * (s->cp - 1) *
                  plait_cost_message(t->bytes[PLAIT_CP], cp.alpha, cp.bandwidth)
            : 0;
    e->axis_s[PLAIT_EP] =
        t->calls[PLAIT_EP] *
        plait_cost_alltoall(s->ep, t->bytes[PLAIT_EP], ep.alpha, ep.bandwidth);
    e->axis_s[PLAIT_DP] = plait_cost_allreduce(
        s->dp * s->cp, t->bytes[PLAIT_DP], dp.alpha, dp.bandwidth);
    /* every tp rank sends its piece, and they gather it on the other side */
    e->axis_s[PLAIT_PP] =
        s->pp > 1 ? 2 * t->calls[PLAIT_PP] *
                        (plait_cost_message(piece, pp.alpha, pp.bandwidth) +
                         plait_cost_allreduce(s->tp, piece * s->tp / 2,
                                              tp.alpha, tp.bandwidth))
                  : 0;
}

/* Bytes that the elementwise kernels of a forward pass move in one layer:
 * read and write of two norms (8), two residuals with dropout (14) on the
 * whole hidden state; transposes (12) and the activation (4 a value of ffn)
 * on a tp share; on the scores, the product that writes them (2), softmax
 * (4), dropout with its mask (5) and the product that reads them (2). */
static double elementwise_bytes(const struct shape *s)
{
    double h = s->m->hidden, scale = s->element / 2;
    double whole = 22 * h, split = 12 * h + 4.0 * s->m->ffn;

    if (s->c->parallel.sequence)
        whole /= s->tp;
    split += s->gpu->score_bytes * s->m->heads * s->m->seq_len;
    return scale * s->tokens * (whole + split / s->tp);
}

static double head_seconds(const struct shape *s)
{
    double flops = 3 * s->tokens * head_flops(s) / s->tp;
    /* Bytes a logit: fused, three passes of read and write over 16 bits;
     * else to fp32 and back (12), max (4), minus (8), exp (8), sum (4),
     * divide (8) and the gradient (8). */
    double bytes = s->gpu->score_bytes > 0 ? 52 : 12;

    return flops / (s->peak * s->gpu->matmul) + s->tokens * s->m->vocab /
                                                    s->tp * bytes * s->element /
                                                    2 / s->gpu->memory_bw;
}

static void set_time(const struct shape *s, struct plait_estimate *e)
{
    struct plait_traffic traffic;
    double m = s->microbatches, work = passes(s) * s->layers * m;
    double scores = 4.0 * s->m->seq_len * s->m->hidden;
    double stage, idle = (s->pp - 1) / (double)s->v / m;
    double products = passes(s) * layer_flops(s);

    if (s->c->parallel.recompute == PLAIT_RECOMPUTE_SELECTIVE)
        products += scores;
    plait_traffic_set(&traffic, s->c, s->layout);
    set_communication(s, &traffic, e);
    e->matmul_s = s->layers * m * products * s->tokens / s->tp /
                  (s->peak * s->gpu->matmul);
    e->elementwise_s = work * elementwise_bytes(s) / s->gpu->memory_bw;
    e->launch_s = work * s->gpu->layer_s;
    stage = e->matmul_s + e->elementwise_s + e->launch_s + e->axis_s[PLAIT_TP] +
            e->axis_s[PLAIT_CP] + e->axis_s[PLAIT_EP] + e->axis_s[PLAIT_PP];
    if (s->c->parallel.schedule == PLAIT_SCHEDULE_NAIVE)
        idle = s->pp - 1;
    else if (s->c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1)
        idle /= 3; /* a third, where the backward's halves are equal */
    e->bubble_s = idle * stage;
    /* The last stage does the head; while the pipe runs the others wait. */
    e->head_s = head_seconds(s) * (m + (s->pp > 1));
    /* Bytes a weight: gradient to fp32 (6), unscale (8), norm (4), clip (8),
     * Adam on four values (28), the weight from its master (6). */
    e->optimizer_s = stage_weights(s) /
                     (s->c->parallel.zero ? (double)s->dp * s->cp : 1) * 60 /
                     s->gpu->memory_bw;
    e->step_s =
        stage + e->bubble_s + e->head_s + e->optimizer_s + e->axis_s[PLAIT_DP];
    /* buckets leave during the backward pass of the last micro-batch */
    e->dp_hidden_s = fmin(e->axis_s[PLAIT_DP], 2 / passes(s) * stage / m);
}

int plait_estimate(const struct plait_config *config,
                   const struct plait_layout *layout,
                   const struct plait_gpu_type *gpu,
                   struct plait_estimate *estimate, struct plait_error *err)
{
    struct plait_estimate e;
    struct shape s;
    double tokens, gpus = plait_layout_world(layout), causal;

    if (check(config, layout, err) < 0)
        return -1;
    memset(&e, 0, sizeof(e));
    set_shape(&s, config, layout, gpu);
    e.parameters = plait_model_parameters(&config->model);
    e.microbatches = s.microbatches;
    set_flops(&s, &e);
    set_memory(&s, &e.memory);
    set_time(&s, &e);
    tokens = (double)config->train.global_batch * config->model.seq_len;
    e.tokens_per_s = tokens / e.step_s;
    e.tflops_per_gpu = e.flops_per_step / e.step_s / gpus / 1e12;
    e.mfu = e.flops_per_token * e.tokens_per_s / gpus / s.peak;
    causal = 3 * 2.0 * s.m->layers * s.m->seq_len * s.m->hidden;
    e.mfu_causal =
        (e.flops_per_token - causal) * e.tokens_per_s / gpus / s.peak;
    *estimate = e;
    return 0;
}

int plait_estimate_largest(const struct plait_config *config,
                           const struct plait_layout *layout,
                           const struct plait_gpu_type *gpu)
{
    int step = layout->size[PLAIT_PP] * config->parallel.virtual_stages;
    int low = 0, high = 1 << 20;

    while (low < high - 1) {
        struct plait_config deeper = *config;
        struct plait_estimate e;
        int middle = low + (high - low) / 2;

        deeper.model.layers = middle * step;
        if (middle > (1 << 29) / step ||
            plait_estimate(&deeper, layout, gpu, &e, NULL) < 0 ||
            e.memory.total > gpu->memory)
            high = middle;
        else
            low = middle;
    }
    return low * step;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "topology/job/stage.h"
#include "topology/plan/cost.h"
#include "topology/plan/traffic.h"
#include "topology/predict/estimate_shape.h"

/* Seconds of the parts of a step: of one micro-batch on one layer, then of a
 * stage, then of the pipeline. */

/* The link that a group of n ranks, `stride` apart, has for its rings: the
 * node's if it fits there, else a share of the NICs for each of the rings
 * that leave a node together. */
struct path {
    double alpha, bandwidth;
};

/* One micro-batch: on a layer, in the head, between two stages. */
struct pieces {
    struct plait_traffic traffic;
    struct path tp, dp;
    double products, elementwise, launch; /* one pass over a layer */
    double redone;                        /* of backward, besides 2 passes */
    double forward[PLAIT_NAXES], backward[PLAIT_NAXES]; /* traffic */
    double head;
    double message;
};

static struct path path_of(const struct plait_shape *s, int stride, int n)
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

/* Bytes that the elementwise kernels of a forward pass move in one layer:
 * read and write of two norms (8), two residuals with dropout (14) on the
 * whole hidden state; transposes (12) and the activation (4 a value of ffn)
 * on a tp share; on the scores, the product that writes them (2), softmax
 * (4), dropout with its mask (5) and the product that reads them (2). */
static double elementwise_bytes(const struct plait_shape *s)
{
    double h = s->m->hidden, scale = s->element / 2;
    double whole = 22 * h, split = 12 * h + 4.0 * s->m->ffn;

    if (s->c->parallel.sequence)
        whole /= s->tp;
    split += s->gpu->score_bytes * s->m->heads * s->m->seq_len;
    return scale * s->tokens * (whole + split / s->tp);
}

/* Weights of a layer's linears on this GPU, all of its experts' included. */
static double linear_weights(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double h = m->hidden, head = plait_model_head_dim(m);
    double mlps = m->experts ? m->experts / s->ep : 1;
    double ups = m->family == PLAIT_GPT2 ? 1 : 2;

    return (2 * h * head * (m->heads + m->kv_heads) +
            mlps * (ups + 1) * h * m->ffn) /
           s->tp;
}

/* Bytes of rounding the operands of a layer's linears to fp8, two for each of
 * the products of three passes: x and w forward, dy and w, x and dy backward.
 * Inputs of column-parallel linears and outputs of row-parallel ones are whole
 * on each tp rank. Weights that stay are rounded by the update instead. */
static double rounding_bytes(const struct plait_shape *s)
{
    const struct plait_model_config *m = s->m;
    double h = m->hidden, head = plait_model_head_dim(m);
    double mlps = m->experts ? m->experts_top_k : 1;
    double ups = m->family == PLAIT_GPT2 ? 1 : 2, values, weights;

    if (s->c->train.precision != PLAIT_FP8)
        return 0;
    values = 2 * h + 2 * head * (m->heads + m->kv_heads) / s->tp +
             mlps * (2 * h + (ups + 1) * m->ffn / s->tp);
    weights = plait_shape_keeps_codes(s) ? 0 : linear_weights(s);
    return 5 * 2.0 / 3 * (s->tokens * values + weights);
}

/* At so many FLOP/s. */
static double seconds_at(const struct plait_shape *s, double flops, double peak)
{
    return s->tokens * flops / s->tp / (peak * s->gpu->matmul);
}

static double product_seconds(const struct plait_shape *s, double flops)
{
    return seconds_at(s, flops, s->peak);
}

/* A layer's: its linears, and its scores. */
static double layer_product_seconds(const struct plait_shape *s)
{
    double scores = plait_shape_score_flops(s);

    return seconds_at(s, plait_shape_layer_flops(s) - scores, s->linear_peak) +
           product_seconds(s, scores);
}

static double head_seconds(const struct plait_shape *s)
{
    /* Bytes a logit: fused, three passes of read and write over 16 bits;
     * else to fp32 and back (12), max (4), minus (8), exp (8), sum (4),
     * divide (8) and the gradient (8). */
    double bytes = s->gpu->score_bytes > 0 ? 52 : 12;

    return product_seconds(s, 3 * plait_shape_head_flops(s)) +
           s->tokens * s->m->vocab / s->tp * bytes * s->element / 2 /
               s->gpu->memory_bw;
}

/* Calls of a layer and micro-batch, `ahead` of them in its forward pass. */
static void set_axis(const struct plait_shape *s, struct pieces *p,
                     enum plait_axis axis, double ahead, double seconds)
{
    double layers = (double)s->m->layers / s->pp * s->microbatches;
    double calls = p->traffic.calls[axis] / layers;

    p->forward[axis] = calls > 0 ? ahead * seconds : 0;
    p->backward[axis] = calls > 0 ? (calls - ahead) * seconds : 0;
}

static void set_communication(const struct plait_shape *s, struct pieces *p)
{
    const struct plait_layout *l = s->layout;
    const struct plait_traffic *t = &p->traffic;
    struct path cp = path_of(s, stride_of(l, PLAIT_CP), s->cp);
    struct path ep = path_of(s, stride_of(l, PLAIT_CP), s->ep);
    struct path pp = path_of(s, stride_of(l, PLAIT_PP), s->pp);
    double piece = t->bytes[PLAIT_PP] / (s->c->parallel.sequence ? 1 : s->tp);

    p->tp = path_of(s, stride_of(l, PLAIT_TP), s->tp);
    p->dp = path_of(s, stride_of(l, PLAIT_CP), s->dp * s->cp);
    set_axis(s, p, PLAIT_TP, 2,
             plait_cost_allreduce(s->tp, t->bytes[PLAIT_TP], p->tp.alpha,
                                  p->tp.bandwidth));
    set_axis(s, p, PLAIT_CP, 1,
             s->cp < 2
                 ? 0
                 : (s->cp - 1) * plait_cost_message(t->bytes[PLAIT_CP],
                                                    cp.alpha, cp.bandwidth));
    set_axis(
        s, p, PLAIT_EP, 2,
        plait_cost_alltoall(s->ep, t->bytes[PLAIT_EP], ep.alpha, ep.bandwidth));
    /* every tp rank sends its piece, and they gather it on the other side */
    if (s->pp > 1)
        p->message = plait_cost_message(piece, pp.alpha, pp.bandwidth) +
                     plait_cost_allreduce(s->tp, piece * s->tp / 2, p->tp.alpha,
                                          p->tp.bandwidth);
}

/* Of an image model, whose blocks differ: on average. */
static void set_image_pieces(const struct plait_shape *s, struct pieces *p)
{
    struct plait_image_work layer, head;

    plait_shape_image_work(s, &layer, &head);
    p->products = product_seconds(s, layer.flops);
    p->elementwise = s->tokens * layer.bytes / 3 / s->gpu->memory_bw;
    p->launch = s->gpu->layer_s;
    p->head = product_seconds(s, 3 * head.flops) +
              s->tokens * head.bytes / s->gpu->memory_bw + 3 * p->launch;
    set_communication(s, p);
}

static void set_pieces(const struct plait_shape *s, struct pieces *p)
{
    memset(p, 0, sizeof(*p));
    plait_traffic_set(&p->traffic, s->c, s->layout);
    if (plait_is_image_model(s->m)) {
        set_image_pieces(s, p);
        return;
    }
    p->products = layer_product_seconds(s);
    p->elementwise =
        (elementwise_bytes(s) + rounding_bytes(s)) / s->gpu->memory_bw;
    p->launch = s->gpu->layer_s;
    if (s->c->parallel.recompute == PLAIT_RECOMPUTE_FULL)
        p->redone = p->products + p->elementwise + p->launch;
    else if (s->c->parallel.recompute == PLAIT_RECOMPUTE_SELECTIVE)
        p->redone = product_seconds(s, plait_shape_score_flops(s));
    p->head = head_seconds(s);
    set_communication(s, p);
}

static double sum_axes(const double *seconds)
{
    return seconds[PLAIT_TP] + seconds[PLAIT_CP] + seconds[PLAIT_EP];
}

/* A layer, forward and back. */
static double layer_seconds(const struct pieces *p)
{
    return 3 * (p->products + p->elementwise + p->launch) + p->redone +
           sum_axes(p->forward) + sum_axes(p->backward);
}

/* One micro-batch through all chunks of a rank. */
static double rank_seconds(const struct plait_shape *s, const struct pieces *p,
                           int rank)
{
    return plait_shape_layers(s, rank) * layer_seconds(p) +
           2 * s->v * p->message + (rank == s->pp - 1 ? p->head : 0);
}

/* While the pipe fills and drains, the slowest rank waits for each of the
 * others once: for a whole micro-batch, for a chunk's part of one, or for
 * what the weight gradients do not fill. */
static double bubble_seconds(const struct plait_shape *s,
                             const struct pieces *p, int slowest)
{
    double layers = s->m->layers - plait_shape_layers(s, slowest);
    double head = slowest == s->pp - 1 ? 0 : p->head;
    double weight = p->products + p->elementwise + p->launch;
    double others =
        layers * layer_seconds(p) + head + (s->pp - 1) * 2 * s->v * p->message;

    switch (s->c->parallel.schedule) {
    case PLAIT_SCHEDULE_NAIVE:
        return s->microbatches * others;
    case PLAIT_SCHEDULE_ZB_H1:
        return fmax(0, others - 2 * layers * weight);
    default:
        return others / s->v;
    }
}

/* --- data parallel --- */

static double gradient_element(const struct plait_shape *s)
{
    return s->c->train.precision == PLAIT_FP16 ? 2 : 4;
}

/* Gradients of a tied embedding, summed over both ends of the pipeline. */
static double tied_seconds(const struct plait_shape *s)
{
    struct path pp = path_of(s, stride_of(s->layout, PLAIT_PP), s->pp);

    if (s->pp == 1 || !s->m->tie_embeddings)
        return 0;
    return plait_cost_allreduce(
        2, gradient_element(s) * s->m->vocab * s->m->hidden / s->tp, pp.alpha,
        pp.bandwidth);
}

static double fullest_weights(const struct plait_shape *s)
{
    if (plait_is_image_model(s->m))
        return fmax(plait_shape_rank_weights(s, 0),
                    plait_shape_rank_weights(s, s->pp - 1));
    return fmax(plait_shape_weights(s, plait_shape_layers(s, 0), 1, s->pp == 1),
                plait_shape_weights(s, plait_shape_layers(s, s->pp - 1),
                                    s->pp == 1, 1));
}

/* Bytes a weight: gradient to fp32 (6), unscale (8), norm (4), clip (8),
 * Adam on four values (28), the weight from its master (6); where its fp8
 * codes are kept, each of two orders of them read twice and written (10). */
static double update_seconds(const struct plait_shape *s)
{
    double ranks = s->c->parallel.zero ? (double)s->dp * s->cp : 1;
    double bytes = fullest_weights(s) / ranks * 60;

    if (plait_shape_keeps_codes(s))
        bytes +=
            10 * linear_weights(s) *
            fmax(plait_shape_layers(s, 0), plait_shape_layers(s, s->pp - 1));
    return bytes / s->gpu->memory_bw;
}

/* The gradients' sums in a step; or, where replicas train apart, those inside
 * of one (over cp) and a step's share of a meeting. */
static double reduce_seconds(const struct plait_shape *s,
                             const struct pieces *p)
{
    double average = plait_model_parameters(s->m) / s->tp / s->pp;
    double bytes = p->traffic.bytes[PLAIT_DP] / average * fullest_weights(s);
    double inside;

    if (!plait_sync_parts(&s->c->sync))
        return plait_cost_allreduce(s->dp * s->cp, bytes, p->dp.alpha,
                                    p->dp.bandwidth);
    inside = plait_cost_allreduce(s->cp, bytes, p->dp.alpha, p->dp.bandwidth);
    return inside +
           p->traffic.calls[PLAIT_DP] *
               plait_cost_allreduce(s->dp, bytes, p->dp.alpha, p->dp.bandwidth);
}

void plait_shape_time(const struct plait_shape *s, struct plait_estimate *e)
{
    int last = s->pp - 1, layers;
    double m = s->microbatches, work, stage;
    struct pieces p;

    set_pieces(s, &p);
    e->slowest = rank_seconds(s, &p, 0) > rank_seconds(s, &p, last) ? 0 : last;
    layers = plait_shape_layers(s, e->slowest);
    work = layers * m;
    e->matmul_s = work * 3 * p.products;
    e->elementwise_s = work * 3 * p.elementwise;
    e->launch_s = work * 3 * p.launch;
    if (s->c->parallel.recompute == PLAIT_RECOMPUTE_FULL) {
        e->matmul_s += work * p.products;
        e->elementwise_s += work * p.elementwise;
        e->launch_s += work * p.launch;
    } else {
        e->matmul_s += work * p.redone;
    }
    for (int i = PLAIT_TP; i <= PLAIT_EP; i++)
        e->axis_s[i] = work * (p.forward[i] + p.backward[i]);
    e->axis_s[PLAIT_PP] = 2 * m * s->v * p.message;
    e->head_s = e->slowest == last ? m * p.head : 0;
    e->bubble_s = bubble_seconds(s, &p, e->slowest);
    e->optimizer_s = update_seconds(s);
    e->axis_s[PLAIT_DP] = reduce_seconds(s, &p) + tied_seconds(s);
    stage = m * rank_seconds(s, &p, e->slowest);
    e->step_s = stage + e->bubble_s + e->optimizer_s + e->axis_s[PLAIT_DP];
    /* buckets leave during the backward pass of the last micro-batch */
    e->dp_hidden_s = 0;
    if (s->c->parallel.grad_sync == PLAIT_GRAD_BUCKETED &&
        !plait_sync_parts(&s->c->sync))
        e->dp_hidden_s =
            fmin(e->axis_s[PLAIT_DP] - tied_seconds(s),
                 layers * (layer_seconds(&p) - sum_axes(p.forward) -
                           p.products - p.elementwise - p.launch));
}

/* --- the simulation --- */

/* Half an all-reduce: a reduce-scatter or an all-gather, in `pieces`. */
static double half_seconds(const struct plait_shape *s, const struct path *dp,
                           double bytes, int pieces)
{
    return pieces *
           plait_cost_allreduce(s->dp * s->cp, bytes / pieces, dp->alpha,
                                dp->bandwidth) /
           2;
}

static void set_stage(const struct plait_shape *s, const struct pieces *p,
                      int stage, struct plait_stage_time *t)
{
    int stages = s->pp * s->v, first = stage == 0, last = stage == stages - 1;
    int zero = s->c->parallel.zero, start, layers, blocks;
    double pass = p->products + p->elementwise + p->launch, weights, buckets;

    plait_model_stage(s->m, stages, stage, &start, &layers);
    weights = plait_shape_weights(s, layers, first, last);
    blocks = layers + first + last;
    buckets = ceil(gradient_element(s) * weights /
                   (s->c->parallel.bucket_mib * 1048576));
    *t = (struct plait_stage_time){
        .forward = layers * pass + (last ? p->head : 0),
        .backward_input = layers * (pass + p->redone),
        .backward_weight = layers * pass,
        .buckets = zero || buckets > blocks ? blocks : (int)buckets};
    for (int i = PLAIT_TP; i <= PLAIT_EP; i++) {
        t->forward_comm[i] = layers * p->forward[i];
        t->backward_comm[i] = layers * p->backward[i];
    }
    t->reduce =
        (zero ? 1 : 2) *
        half_seconds(s, &p->dp, gradient_element(s) * weights, t->buckets);
    if (zero == 3)
        t->gather = half_seconds(s, &p->dp, s->element * weights, blocks);
}

int plait_simulation_request_set(struct plait_simulation_request *r,
                                 struct plait_stage_time *times,
                                 const struct plait_job_config *config,
                                 const struct plait_layout *layout,
                                 const struct plait_gpu_type *gpu,
                                 struct plait_error *err)
{
    struct plait_estimate checked;
    struct plait_shape s;
    struct pieces p;

    if (plait_is_image_model(&config->model)) {
        errno = EINVAL;
        return plait_errorf(err, "an image model has no timeline: its blocks "
                                 "differ; plait estimate has its time");
    }
    if (plait_estimate(config, layout, gpu, &checked, err) < 0)
        return -1;
    plait_shape_set(&s, config, layout, gpu);
    set_pieces(&s, &p);
    for (int i = 0; i < s.pp * s.v; i++)
        set_stage(&s, &p, i, &times[i]);
    *r = (struct plait_simulation_request){
        .schedule = config->parallel.schedule,
        .stages = s.pp,
        .chunks = s.v,
        .microbatches = (int)s.microbatches,
        .times = times,
        .message = p.message,
        .reduce_each = config->parallel.zero >= 2,
        .tied = tied_seconds(&s),
        .update = update_seconds(&s)};
    if (config->parallel.zero == 1 || config->parallel.zero == 2)
        r->gather_updated =
            half_seconds(&s, &p.dp, s.element * fullest_weights(&s), 1);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "topology/plan/cost.h"
#include "topology/predict/estimate_pieces.h"
#include "topology/predict/scale.h"

/* Seconds of a step: of a rank's micro-batch, of the pipeline, of what data
 * parallelism adds, and of the wait for the slowest GPU. */

static double layer_seconds(const struct plait_pieces *p)
{
    return plait_pieces_forward(p) + plait_pieces_backward(p);
}

/* How long a rank waits for one message in the steady state. 1F1B has just as
 * many micro-batches in flight as go there and back, so that a message delays
 * the next; interleaved, there are more of them. */
static double message_seconds(const struct plait_shape *s,
                              const struct plait_pieces *p)
{
    double pass = (double)s->m->layers / s->pp / s->v * plait_pieces_forward(p);

    return s->v > 1 && !s->c->messages_exposed ? fmax(0, p->message - pass)
                                               : p->message;
}

/* One micro-batch through all chunks of a rank. */
static double rank_seconds(const struct plait_shape *s,
                           const struct plait_pieces *p, int rank)
{
    return plait_shape_layers(s, rank) * layer_seconds(p) +
           2 * s->v * message_seconds(s, p) +
           (rank == s->pp - 1 ? p->work.head : 0);
}

/* While the pipe fills and drains, the slowest rank waits for each of the
 * others once: for a whole micro-batch, for a chunk's part of one, or for
 * what the weight gradients do not fill. */
static double bubble_seconds(const struct plait_shape *s,
                             const struct plait_pieces *p, int slowest)
{
    double layers = s->m->layers - plait_shape_layers(s, slowest);
    double head = slowest == s->pp - 1 ? 0 : p->work.head;
    double others = layers * (layer_seconds(p) + p->sent + p->fetched) + head +
                    (s->pp - 1) * 2 * s->v * p->message;

    switch (s->c->parallel.schedule) {
    case PLAIT_SCHEDULE_NAIVE:
        return s->microbatches * others;
    case PLAIT_SCHEDULE_ZB_H1:
        return fmax(0, others - 2 * layers * plait_pieces_deferred(p));
    default:
        return others / s->v;
    }
}

/* --- data parallel --- */

/* Traffic that overlaps with computing. */
struct beside {
    double left;   /* that nothing overlaps with */
    double hidden; /* the rest, which slows the computing down */
    double first;  /* of that, what all stages have at once, as a step begins */
    double slows;  /* by so much for each second of it */
};

/* Computing that is slowed down leaves more time to the rest of the traffic. */
static void hide(struct beside *b, double traffic, double window, double times)
{
    double hidden = fmin(traffic, window);

    b->hidden += times * hidden;
    b->left += times * fmax(0, traffic - hidden * (1 + b->slows));
}

/* Weights that ZeRO 1 and 2 have updated, beside the next step's first forward
 * where that is how they are gathered. */
static void hide_gather(const struct plait_shape *s, struct beside *b,
                        double gather, double forward)
{
    double before = b->hidden;

    hide(b, gather, plait_pieces_hides_gather(s) ? forward : 0, 1);
    b->first = b->hidden - before;
}

/* The share of a rank's backward passes that no forward pass alternates with:
 * as many as forward passes came before its first backward pass. */
static double drained(const struct plait_shape *s)
{
    double passes = s->microbatches * s->v, first = s->pp - 1;

    if (s->v > 1)
        first = 2 * first + (s->v - 1) * s->pp;
    return fmin(1, first / passes);
}

/* Gradients, and the weights that ZeRO gathers: with ZeRO 3 those of the next
 * layer during the one before, with 2 and 3 each micro-batch's gradients. */
static void set_sharded(const struct plait_shape *s,
                        const struct plait_pieces *p, int layers,
                        struct beside *b)
{
    int zero = s->c->parallel.zero;
    double m = s->microbatches, weights = plait_work_fullest_weights(s);
    double forward = layers * plait_pieces_forward(p);
    double backward = layers * plait_pieces_backward(p);
    double bytes = plait_pieces_gradient_element(s) * weights;
    double buckets = plait_pieces_buckets(s, bytes, layers + 2);
    double reduce = plait_pieces_reduce(s, bytes, buckets);
    double gather = plait_pieces_half(
        s, plait_pieces_weight_element(s) * weights,
        zero == 3 ? layers + 1 : plait_pieces_gathers(s, layers + 1));

    if (zero == 0)
        reduce *= 2;
    /* in full, or the last bucket, for which no computing is left */
    if (!s->bucketed) {
        b->left += reduce * (zero >= 2 ? m : 1);
        reduce = 0;
    } else if (zero < 2) {
        b->left += reduce / buckets;
        reduce *= 1 - 1 / buckets;
        backward *= 1 - 1 / buckets;
    }
    if (zero == 3) {
        hide(b, gather, forward, m);
        hide(b, gather + reduce, backward, m);
        b->left += gather / (layers + 1); /* the first block's */
    } else if (zero == 2) {
        double alone = m * drained(s);

        /* the next micro-batch's forward hides them too */
        hide(b, reduce, forward + backward, m - alone);
        hide(b, reduce, backward, alone);
        hide_gather(s, b, gather, forward);
    } else {
        hide(b, reduce, backward, 1);
        hide_gather(s, b, zero ? gather : 0, forward);
    }
}

double plait_pieces_meeting(const struct plait_shape *s,
                            const struct plait_pieces *p, double *hidden)
{
    const struct plait_sync_config *sync = &s->c->sync;
    double weights = plait_work_fullest_weights(s);
    double part = weights / plait_sync_fragments(sync), one, away;
    double times = p->traffic.calls[PLAIT_DP] * plait_sync_fragments(sync);
    double step = s->microbatches * plait_shape_layers(s, s->longest) *
                  (plait_pieces_forward(p) + plait_pieces_backward(p));
    double bandwidth = s->gpu->nic_bw, alpha = s->gpu->nic_alpha;

    if ((double)s->tp * s->cp * s->dp <= s->gpu->domain) {
        bandwidth = s->gpu->link_bw;
        alpha = s->gpu->link_alpha;
    }
    one = plait_cost_allreduce(s->dp, plait_sync_sent(sync, (int)s->dp) * part,
                               alpha, bandwidth);
    away = fmin(one, sync->delay * step);
    *hidden = times * away;
    return plait_cost_allreduce(s->cp, 4 * weights, alpha, bandwidth) +
           times * (one - away);
}

/* The hidden traffic of a micro-batch, or of the last one, in a chunk. While
 * the pipeline drains each stage's passes follow those of the stage after it,
 * which their traffic slows down as well. */
static double one_pass(const struct plait_shape *s, const struct beside *b)
{
    double passes = s->c->parallel.zero >= 2 ? s->microbatches : 1;

    return (b->hidden - b->first) / s->v / passes;
}

static void set_data_parallel(const struct plait_shape *s,
                              const struct plait_pieces *p, int layers,
                              struct plait_estimate *e)
{
    struct beside b = {.slows = plait_pieces_beside(s)};

    if (plait_sync_parts(&s->c->sync))
        b.left = plait_pieces_meeting(s, p, &b.hidden);
    else
        set_sharded(s, p, layers, &b);
    e->axis_s[PLAIT_DP] = b.left + p->tied;
    e->dp_hidden_s = b.hidden;
    e->axis_s[PLAIT_DP] += (b.hidden + (s->pp - 1) * one_pass(s, &b)) * b.slows;
}

static void set_compute(const struct plait_shape *s,
                        const struct plait_pieces *p, double work,
                        struct plait_estimate *e)
{
    double again = s->c->parallel.recompute == PLAIT_RECOMPUTE_FULL
                       ? plait_shape_recomputed(s)
                       : 0;
    double scores = plait_shape_attention_again(s);

    e->matmul_s = work * (3 + again) * p->work.products;
    e->attention_s =
        work * (3 + PLAIT_ATTENTION_FORWARD * scores) * p->work.attention;
    e->elementwise_s = work * ((3 + again) * p->work.elementwise +
                               plait_shape_cheap_again(s) * p->work.cheap);
    e->launch_s = work * (3 + again) * p->work.launch;
}

/* How long a rank of this stage works in a step, without waiting for others.
 * Hidden traffic takes one of its threads. */
static double busy_seconds(const struct plait_shape *s,
                           const struct plait_pieces *p, int rank,
                           const struct plait_estimate *e)
{
    return s->microbatches * rank_seconds(s, p, rank) + e->optimizer_s +
           e->axis_s[PLAIT_DP] + e->dp_hidden_s / s->gpu->threads +
           e->offload_s;
}

/* The time in which cores of a node have nothing to do while the pipeline fills
 * and drains: after stages 0 .. i have begun, the cores beyond their
 * threads. */
static double unfilled_seconds(const struct plait_shape *s,
                               const struct plait_pieces *p)
{
    double here = fmin(s->gpu->per_node, plait_layout_world(s->layout));
    double threads = here / s->pp * s->gpu->threads, sum = 0;

    for (int i = 0; i + 1 < s->pp; i++)
        sum += fmax(0, 1 - (i + 1) * threads / s->gpu->cores) *
               rank_seconds(s, p, i) / s->v;
    return sum;
}

/* Where ranks share cores, one that waits leaves them to the others, and
 * messages take them too: a step takes as long as all work of a node's ranks,
 * or as it would if each had cores of its own, whichever is longer. */
static void share_cores(const struct plait_shape *s,
                        const struct plait_pieces *p, struct plait_estimate *e)
{
    double alone = e->step_s, all;

    e->crowded = 1;
    if (s->gpu->cores <= 0 || s->gpu->per_node < 2 ||
        plait_layout_world(s->layout) < 2)
        return;
    all = unfilled_seconds(s, p);
    for (int i = 0; i < s->pp; i++)
        all += s->crowd * busy_seconds(s, p, i, e) / s->pp;
    if (all <= alone)
        return;
    e->crowded = all / alone;
    e->cores_s = all - alone;
    e->step_s = all;
}

void plait_shape_time(const struct plait_shape *s, struct plait_estimate *e)
{
    int last = s->pp - 1, layers;
    double m = s->microbatches;
    struct plait_pieces p;

    plait_pieces_set(s, &p);
    e->slowest = rank_seconds(s, &p, s->longest) > rank_seconds(s, &p, last)
                     ? s->longest
                     : last;
    layers = plait_shape_layers(s, e->slowest);
    set_compute(s, &p, layers * m, e);
    for (int i = PLAIT_TP; i <= PLAIT_EP; i++)
        e->axis_s[i] = layers * m * (p.forward[i] + p.backward[i]);
    e->axis_s[PLAIT_PP] = 2 * m * s->v * message_seconds(s, &p);
    e->head_s = e->slowest == last ? m * p.work.head : 0;
    e->bubble_s = bubble_seconds(s, &p, e->slowest);
    e->optimizer_s = p.work.update;
    set_data_parallel(s, &p, layers, e);
    e->offload_s = layers * m * (p.sent + p.fetched) + p.away;
    e->step_s = m * rank_seconds(s, &p, e->slowest) + e->bubble_s +
                e->optimizer_s + e->axis_s[PLAIT_DP] + e->offload_s;
    share_cores(s, &p, e);
    e->straggler_s =
        plait_scale_waits(s->gpu, plait_layout_world(s->layout)) * e->step_s;
    e->step_s += e->straggler_s;
}

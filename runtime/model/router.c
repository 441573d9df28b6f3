/* SPDX-License-Identifier: Apache-2.0 */
/* The router of a layer with experts: its scores, how often it chose each
 * expert, and their gradients. */
#include "kernels/route.h"
#include "runtime/model/experts.h"
#include "topology/job/model_size.h"

struct plait_route plait_route_of(const struct plait_work *w,
                                  const struct plait_routed *r)
{
    return (struct plait_route){.type = w->type,
                                .N = w->shape->N,
                                .E = w->d->experts,
                                .k = w->d->top_k,
                                .run = w->shape->piece_len,
                                .sequences = w->shape->batch,
                                .prob = r->prob,
                                .expert = r->expert,
                                .gate = r->gate};
}

/* The same, and what experts are chosen by. */
static struct plait_route scored_route(const struct plait_work *w,
                                       const struct plait_block *b,
                                       const struct plait_routed *r)
{
    const struct plait_model_config *m = &w->model->config->model;
    struct plait_route route = plait_route_of(w, r);

    if (m->experts_scores == PLAIT_SCORES_SIGMOID)
        route.bias = w->model->exact + b->router_exact;
    route.whole = m->experts_weights == PLAIT_WEIGHTS_SCORES;
    route.each = m->experts_scores == PLAIT_SCORES_INPUT;
    route.groups = m->experts_groups;
    route.top_groups = m->experts_top_groups;
    route.scale = (float)plait_model_factor(m->experts_scale);
    return route;
}

/* Whether the balance loss is over the whole batch. */
static bool is_over_batch(const struct plait_work *w)
{
    return plait_model_counts_loads(&w->model->config->model);
}

/* How often each expert was chosen in each sequence, summed over cp: the
 * balance loss must not depend on how the sequence is split. */
static int count_load(const struct plait_work *w, const struct plait_routed *r)
{
    const struct plait_dims *d = w->d;
    size_t n = (size_t)w->shape->batch * d->experts;
    struct plait_route route = plait_route_of(w, r);
    struct plait_comm *cp = w->model->mesh->group[PLAIT_GROUP_CP];
    const struct plait_buffers load = {r->load, r->load, n, PLAIT_F32};

    if (w->ops->fill_zero(w->q, r->load, n * sizeof(*r->load)) < 0 ||
        w->ops->route_load(w->q, &route, r->load) < 0)
        return -1;
    if (w->shape->pieces == 1)
        return 0;
    return plait_comm_all_reduce(cp, &load, PLAIT_SUM, w->q, NULL);
}

int plait_router_forward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_routed *r, const void *full)
{
    struct plait_linear logits = {.N = w->shape->N,
                                  .inp.x = full,
                                  .w = b->router.handle,
                                  .out = w->scratch->route};
    struct plait_route route = scored_route(w, b, r);

    if (b->router.bias)
        logits.bias = plait_weight_at(w, b->region, b->router_offset);
    if (w->ops->linear_forward(w->q, &logits) < 0 ||
        w->ops->route_forward(w->q, &route, w->scratch->route) < 0)
        return -1;
    return is_over_batch(w) ? 0 : count_load(w, r);
}

/* Factor of the balance loss's gradient per choice of the expert in the
 * sequence. The loss of a sequence of T tokens is
 *     coefficient * sum_e (E / (k T) load_e) (1/T sum_t prob_te)
 * and weighs as much as T token losses (Fedus et al., "Switch transformers",
 * 2021, per sequence as in DeepSeek-V2, 2024).
 *
 * Over the batch, E / (k T) load_e is of all its tokens (Qiu et al., "Demons in
 * the detail", arXiv 2501.11873). They take what the micro-batches so far have
 * counted, summed over ranks; that depends on how the batch is cut. The counts
 * of the step before do not. They are a good estimate while a step changes few
 * choices, as with weights of the loss near 0.01; with a weight of 1 the loss
 * itself changes many of them, and answers late (docs/learning.md, k). In the
 * first step there are none, and no loss. */
static float balance_scale(const struct plait_work *w)
{
    const struct plait_dims *d = w->d;
    const struct plait_batch_shape *s = w->shape;
    double T = (double)s->piece_len * s->pieces *
               w->model->mesh->layout.size[PLAIT_CP];

    if (d->tp_rank > 0)
        return 0; /* only one tp rank adds it, since the group sums */
    return w->model->config->model.experts_balance * w->slot->loss_scale *
           (is_over_batch(w) ? 1 : d->experts / (d->top_k * T));
}

int plait_experts_set_balance(const struct plait_work *w, float factor)
{
    struct plait_model_state *s = w->model->state;

    if (!w->scratch->balance || s->balance == factor)
        return 0;
    if (w->ops->to_device(w->q, w->scratch->balance, &factor, sizeof(factor)) <
        0)
        return -1;
    s->balance = factor;
    return 0;
}

/* Counts how often the tokens chose each expert, where weights at that place of
 * the block's region have a gradient. All tp ranks count the same tokens. In
 * fp32, one by one: exact to 2^24 choices of an expert by a rank in a step. */
static int count_at(const struct plait_work *w, const struct plait_block *b,
                    const struct plait_routed *r, size_t place)
{
    struct plait_route all = plait_route_of(w, r);

    all.sequences = 1;
    return w->ops->route_load(w->q, &all, plait_grad_at(w, b->region, place));
}

/* What moves the biases after the step, and what becomes the loads. */
static int count_for_step(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_routed *r)
{
    if (w->model->config->model.experts_balance_rate > 0 &&
        count_at(w, b, r, b->router_bias) < 0)
        return -1;
    return is_over_batch(w) ? count_at(w, b, r, b->router_load) : 0;
}

int plait_router_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_routed *r)
{
    struct plait_scratch *s = w->scratch;
    struct plait_route route = scored_route(w, b, r);
    struct plait_route_gradient g = {.dlogits = s->route,
                                     .dgate = s->dgate,
                                     .load = r->load,
                                     .balance = balance_scale(w),
                                     .factor = s->balance};

    if (is_over_batch(w)) {
        route.sequences = 1;
        g.load = w->model->exact + b->load_exact;
    }
    return w->ops->route_backward(w->q, &route, &g) < 0
               ? -1
               : count_for_step(w, b, r);
}

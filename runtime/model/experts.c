/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/route.h"
#include "runtime/comm/tags.h"
#include "runtime/model/experts.h"

/* The mlp of a layer with experts. A router chooses k of E experts for each
 * token; tokens are sorted by expert, sent to the ep rank that has the expert,
 * processed there, sent back and summed with the router's weights. The result
 * does not depend on the layout: no token is dropped or, with a capacity, those
 * that exceed it in the order of their sequence, whichever ranks hold it.
 *
 * Each ep rank holds E/ep consecutive experts. "Sorted" rows are this rank's
 * own choices, by expert; "grouped" rows are those for its experts, by expert
 * and then by the rank they come from. All ranks of a tp group route alike, and
 * each expert is split over tp like any mlp: the result is this tp rank's term
 * of a sum over tp, in forward and in backward. */

static size_t count_choices(const struct plait_work *w)
{
    return w->shape->N * w->d->top_k;
}

/* Number of tokens of ep rank `s` that chose expert e. */
static size_t rows_of(const struct plait_work *w, const struct plait_routed *r,
                      int s, int e)
{
    return r->rows[s * w->d->experts + e];
}

/* Number of tokens of all ep ranks for expert i of this rank. */
static size_t rows_here(const struct plait_work *w,
                        const struct plait_routed *r, int i)
{
    size_t n = 0;

    for (int s = 0; s < w->d->ep; s++)
        n += rows_of(w, r, s, w->d->expert_first + i);
    return n;
}

/* -- exchange of tokens --------------------------------------------------- */

/* A run of rows for one expert, between this rank and another. */
struct parcel {
    int peer, expert;
    void *rows;
    size_t n; /* elements */
};

static int exchange_parcel(const struct plait_work *w, const struct parcel *p,
                           bool sends, struct plait_request **req)
{
    struct plait_comm *ep = w->model->mesh->group[PLAIT_GROUP_EP];
    const struct plait_buffers b = {p->rows, p->rows, p->n, w->type};

    return (sends ? plait_comm_send : plait_comm_recv)(
        ep, &b, p->peer, plait_tag_expert(p->expert), w->q, req);
}

/* Sends or receives all runs of the sorted or the grouped rows, except those
 * that stay on this rank: `mine` gets their addresses, by local expert. */
static int exchange_sorted(const struct plait_work *w,
                           const struct plait_routed *r, void *rows, bool sends,
                           void **mine, int *nreqs)
{
    const struct plait_dims *d = w->d;
    int here = d->experts / d->ep;
    size_t first = 0;

    for (int e = 0; e < d->experts; e++) {
        struct parcel p = {e / here, e,
                           plait_element_at(w, rows, first * d->hidden),
                           rows_of(w, r, d->ep_rank, e) * d->hidden};

        first += rows_of(w, r, d->ep_rank, e);
        if (p.peer == d->ep_rank)
            mine[e % here] = p.rows;
        else if (p.n &&
                 exchange_parcel(w, &p, sends,
                                 &w->model->state->requests[(*nreqs)++]) < 0)
            return -1;
    }
    return 0;
}

static int exchange_grouped(const struct plait_work *w,
                            const struct plait_routed *r, void *rows,
                            bool sends, void **mine, int *nreqs)
{
    const struct plait_dims *d = w->d;
    size_t first = 0;

    for (int i = 0; i < d->experts / d->ep; i++)
        for (int s = 0; s < d->ep; s++) {
            int e = d->expert_first + i;
            struct parcel p = {s, e,
                               plait_element_at(w, rows, first * d->hidden),
                               rows_of(w, r, s, e) * d->hidden};

            first += rows_of(w, r, s, e);
            if (s == d->ep_rank)
                mine[i] = p.rows;
            else if (p.n && exchange_parcel(
                                w, &p, sends,
                                &w->model->state->requests[(*nreqs)++]) < 0)
                return -1;
        }
    return 0;
}

/* Between sorted and grouped rows; out: from sorted to grouped. */
static int exchange_rows(const struct plait_work *w,
                         const struct plait_routed *r, void *sorted,
                         void *grouped, bool out)
{
    const struct plait_dims *d = w->d;
    struct plait_model_state *s = w->model->state;
    int here = d->experts / d->ep, nreqs = 0;
    size_t row = d->hidden * plait_dtype_size(w->type);

    memset(s->requests, 0, s->nrequests * sizeof(*s->requests));
    if (exchange_sorted(w, r, sorted, out, s->stay, &nreqs) < 0 ||
        exchange_grouped(w, r, grouped, !out, s->stay + here, &nreqs) < 0)
        return -1;
    for (int i = 0; i < here; i++) {
        size_t n = rows_of(w, r, d->ep_rank, d->expert_first + i) * row;
        void *from = s->stay[out ? i : here + i];
        void *to = s->stay[out ? here + i : i];

        if (n && w->ops->copy(w->q, to, from, n) < 0)
            return -1;
    }
    for (int i = 0; i < nreqs; i++)
        if (plait_comm_wait(&s->requests[i], w->q) < 0)
            return -1;
    return 0;
}

/* -- forward --------------------------------------------------------------- */

static struct plait_rows rows_moved(const struct plait_work *w,
                                    const struct plait_routed *r, void *out)
{
    return (struct plait_rows){.type = w->type,
                               .N = w->shape->N,
                               .k = w->d->top_k,
                               .C = w->d->hidden,
                               .place = r->place,
                               .out = out};
}

/* How often each expert was chosen in a sequence before each of its runs. A run
 * is one of the 2 cp chunks, of which this rank has two. */
static int count_before(const struct plait_work *w,
                        const struct plait_routed *r)
{
    const struct plait_dims *d = w->d;
    struct plait_scratch *s = w->scratch;
    int cp = w->model->mesh->layout.size[PLAIT_CP];
    int rank = w->model->mesh->coord.at[PLAIT_CP];
    size_t n = (size_t)w->shape->batch * d->experts, bytes = 2 * n * 4;
    struct plait_route route = plait_route_of(w, r);

    route.sequences *= 2;
    if (w->ops->fill_zero(w->q, s->runs, bytes) < 0 ||
        w->ops->fill_zero(w->q, s->before, bytes) < 0 ||
        w->ops->route_load(w->q, &route, s->runs) < 0 ||
        plait_comm_all_gather(
            w->model->mesh->group[PLAIT_GROUP_CP],
            &(struct plait_buffers){s->runs, s->all_runs, 2 * n, PLAIT_F32},
            w->q, NULL) < 0)
        return -1;
    for (int mine = 0; mine < 2; mine++)
        for (int i = 0; i < 2 * cp; i++) {
            float *to = s->before + mine * n;
            int chunk = i % 2 ? 2 * cp - 1 - i / 2 : i / 2;

            if (chunk < (mine ? 2 * cp - 1 - rank : rank) &&
                w->ops->add(w->q, &(struct plait_add){.type = PLAIT_F32,
                                                      .out = to,
                                                      .a = to,
                                                      .b = s->all_runs + i * n,
                                                      .n = n}) < 0)
                return -1;
        }
    return 0;
}

/* How often the text of this pass chose each expert in earlier passes (with a
 * capacity, a pass has only one text). NULL: the queue has failed. */
static float *load_of_text(const struct plait_work *w,
                           const struct plait_layer_cache *cache)
{
    const struct plait_addition *add = &w->added->add[0];
    float *load = cache->load + (size_t)add->text * w->d->experts;

    if (add->first > 0)
        return load;
    return w->ops->fill_zero(w->q, load, w->d->experts * sizeof(*load)) < 0
               ? NULL
               : load;
}

/* The sorted position of each choice and the count of each expert: experts in
 * order, then the dropped choices. */
static int sort_choices(const struct plait_work *w,
                        const struct plait_layer_cache *cache,
                        const struct plait_routed *r)
{
    const struct plait_dims *d = w->d;
    struct plait_scratch *s = w->scratch;
    struct plait_route route = plait_route_of(w, r);
    struct plait_route_limit limit = {.kept = s->kept, .most = d->capacity};
    struct plait_route_sort sort = {.n = count_choices(w),
                                    .E = d->experts,
                                    .expert = r->expert,
                                    .place = r->place,
                                    .count = r->count};
    float *so_far = NULL;

    if (!d->capacity)
        return w->ops->route_sort(w->q, &sort);
    if (w->shape->pieces > 1)
        limit.before = s->before;
    if (w->added && !(limit.before = so_far = load_of_text(w, cache)))
        return -1;
    if ((limit.before && !so_far && count_before(w, r) < 0) ||
        w->ops->route_limit(w->q, &route, &limit) < 0)
        return -1;
    route.sequences = 1;
    if (so_far && w->ops->route_load(w->q, &route, so_far) < 0)
        return -1;
    sort.E = d->experts + 1;
    sort.expert = s->kept;
    return w->ops->route_sort(w->q, &sort);
}

/* Copies the numbers of rows to the host and, with ep, exchanges them and sets
 * the counts of the experts here. Waits for the device. */
static int count_rows(const struct plait_work *w, const struct plait_routed *r)
{
    const struct plait_dims *d = w->d;
    struct plait_comm *ep = w->model->mesh->group[PLAIT_GROUP_EP];
    int *mine = r->rows + d->ep_rank * d->experts, here = d->experts / d->ep;
    size_t bytes = d->experts * sizeof(*mine);

    if (w->ops->to_host(w->q, mine, r->count, bytes) < 0 ||
        (d->ep > 1 && plait_comm_host_all_gather(ep, mine, r->rows, bytes) < 0))
        return -1;
    for (int i = 0; i < here; i++)
        r->here[i] = (int)rows_here(w, r, i);
    if (d->ep == 1)
        return 0;
    return w->ops->to_device(w->q, r->count, r->here, here * sizeof(*r->here));
}

/* Chooses the experts of each token and counts the rows of each expert. */
static int route_tokens(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_activations *a, const void *full)
{
    const struct plait_routed *r = &a->routed;

    if (plait_router_forward(w, b, r, full) < 0 ||
        sort_choices(w, a->cache, r) < 0)
        return -1;
    return plait_experts_counted(w) ? count_rows(w, r) : 0;
}

static int experts_work(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_activations *a, void *y)
{
    const struct plait_dims *d = w->d;
    const struct plait_routed *r = &a->routed;
    struct plait_linear up = {.inp.x = r->x,
                              .pre = d->gated ? NULL : a->pre,
                              .out = d->gated ? a->pre : a->act};
    struct plait_linear down = {.inp.x = a->act, .out = y};

    if (plait_grouped_forward(w, b, r, true, &up) < 0 ||
        (d->gated &&
         plait_swiglu_forward(w, a, plait_experts_rows(w, r), NULL) < 0))
        return -1;
    return plait_grouped_forward(w, b, r, false, &down);
}

/* Zeroes the output of dropped choices. A grouped product over all rows has
 * done that already. */
static int clear_dropped(const struct plait_work *w,
                         const struct plait_routed *r)
{
    size_t kept = 0, row = w->d->hidden * plait_dtype_size(w->type);

    if (!plait_experts_counted(w))
        return 0;
    for (int e = 0; e < w->d->experts; e++)
        kept += rows_of(w, r, w->d->ep_rank, e);
    if (kept == count_choices(w))
        return 0;
    return w->ops->fill_zero(w->q,
                             plait_element_at(w, r->z, kept * w->d->hidden),
                             (count_choices(w) - kept) * row);
}

int plait_experts_forward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a, const void *full)
{
    const struct plait_routed *r = &a->routed;
    struct plait_scratch *s = w->scratch;
    bool alone = w->d->ep == 1;
    void *sorted = alone ? r->x : s->sorted, *y = alone ? r->z : s->grouped;
    struct plait_rows spread = rows_moved(w, r, sorted);

    spread.x = full;
    spread.gate = plait_experts_scale_input(w) ? r->gate : NULL;
    if (route_tokens(w, b, a, full) < 0 ||
        w->ops->rows_spread(w->q, &spread) < 0)
        return -1;
    if (!alone && exchange_rows(w, r, sorted, r->x, true) < 0)
        return -1;
    if (experts_work(w, b, a, y) < 0 ||
        (!alone && exchange_rows(w, r, r->z, y, false) < 0))
        return -1;
    return clear_dropped(w, r);
}

int plait_experts_join(const struct plait_work *w,
                       const struct plait_activations *a, void *out)
{
    struct plait_rows join = rows_moved(w, &a->routed, out);

    join.gate = plait_experts_scale_input(w) ? NULL : a->routed.gate;
    join.rows = a->routed.z;
    join.accumulate = w->d->shared > 0;
    return w->ops->rows_join(w->q, &join);
}

/* -- backward -------------------------------------------------------------- */

/* Replaces dy by the gradient of the experts' input. */
static int experts_work_backward(const struct plait_work *w,
                                 const struct plait_block *b,
                                 const struct plait_activations *a, void *dy)
{
    const struct plait_dims *d = w->d;
    const struct plait_routed *r = &a->routed;
    void *dpre = w->scratch->now.dpre,
         *dact = d->gated ? w->scratch->dact : dpre;
    struct plait_linear_dinp down = {
        .dout.x = dy, .pre = d->gated ? NULL : a->pre, .dinp = dact};
    struct plait_linear_dinp up = {.dout.x = dpre, .dinp = dy};

    if (plait_grouped_weight(w, b, r, false, dy, a->act) < 0 ||
        plait_grouped_input(w, b, r, false, &down) < 0 ||
        (d->gated &&
         plait_swiglu_backward(w, a, dpre, dact, plait_experts_rows(w, r),
                               NULL) < 0) ||
        plait_grouped_weight(w, b, r, true, dpre, r->x) < 0)
        return -1;
    return plait_grouped_input(w, b, r, true, &up);
}

/* From the gradient of the layer's output to that of the experts' outputs, in
 * the order of the experts. */
static int spread_gradient(const struct plait_work *w,
                           const struct plait_routed *r, const void *dout,
                           void *sorted)
{
    struct plait_rows rows = rows_moved(w, r, sorted);

    rows.x = dout;
    rows.gate = plait_experts_scale_input(w) ? NULL : r->gate;
    return w->ops->rows_spread(w->q, &rows);
}

/* The gradient of the router's logits. What a choice's weight multiplies is a
 * row of `sorted`, and the product's gradient is the token's of `full`; where
 * it multiplies the input, the other way round. */
static int route_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_routed *r, const void *full,
                          const void *sorted)
{
    struct plait_rows rows = rows_moved(w, r, NULL);

    rows.dout = full;
    rows.rows = sorted;
    rows.dgate = w->scratch->dgate;
    return w->ops->rows_dot(w->q, &rows) < 0 ? -1
                                             : plait_router_backward(w, b, r);
}

/* scratch->part += the gradient through the router. */
static int logits_backward(const struct plait_work *w,
                           const struct plait_block *b)
{
    return w->ops->linear_backward_input(
        w->q, &(struct plait_linear_dinp){.N = w->shape->N,
                                          .dout.x = w->scratch->route,
                                          .w = b->router.handle,
                                          .dinp = w->scratch->part,
                                          .accumulate = 1});
}

/* Where the gradients of this rank's own choices are, by expert. */
static void *sorted_gradient(const struct plait_work *w)
{
    return w->d->ep == 1 ? w->scratch->grouped : w->scratch->sorted;
}

int plait_experts_backward(const struct plait_work *w,
                           const struct plait_block *b,
                           const struct plait_activations *a, const void *dout)
{
    const struct plait_routed *r = &a->routed;
    struct plait_scratch *s = w->scratch;
    bool alone = w->d->ep == 1, after = !plait_experts_scale_input(w);
    void *sorted = sorted_gradient(w);
    struct plait_rows join = rows_moved(w, r, s->part);

    join.rows = sorted;
    join.gate = after ? NULL : r->gate;
    if ((after && route_backward(w, b, r, dout, r->z) < 0) ||
        spread_gradient(w, r, dout, sorted) < 0)
        return -1;
    if (!alone && exchange_rows(w, r, sorted, s->grouped, true) < 0)
        return -1;
    if (experts_work_backward(w, b, a, s->grouped) < 0 ||
        (!alone && exchange_rows(w, r, sorted, s->grouped, false) < 0) ||
        w->ops->rows_join(w->q, &join) < 0)
        return -1;
    return after ? logits_backward(w, b) : 0;
}

int plait_experts_input_backward(const struct plait_work *w,
                                 const struct plait_block *b,
                                 const struct plait_activations *a,
                                 const void *full)
{
    return route_backward(w, b, &a->routed, full, sorted_gradient(w)) < 0
               ? -1
               : logits_backward(w, b);
}

int plait_experts_router_weight(const struct plait_work *w,
                                const struct plait_block *b, const void *full)
{
    return plait_product_weight(w, &b->router, b->router_offset,
                                w->scratch->route, full, w->shape->N);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/attention.h"
#include "runtime/comm/tags.h"
#include "runtime/mesh/ring.h"
#include "runtime/model/internal.h"
#include "topology/job/model_size.h"
#include "topology/job/mup.h"

/* Attention over a layer's fused q, k, v. With context parallelism ring
 * attention (Liu et al., "Ring attention", 2023): in each of cp steps a rank
 * computes with the keys and values of one rank while it receives those of the
 * next. Each rank has an early and a late piece of the sequence (chunks r and 2
 * cp - 1 - r of 2 cp), so that all ranks have the same amount of work under the
 * causal mask. What the steps add up is added in fp32 and rounded once: in 16
 * bits the error would grow with every rank and layer. */

static struct plait_attention describe_attention(const struct plait_work *w)
{
    const struct plait_model_config *c = &w->model->config->model;
    const struct plait_dims *d = w->d;
    bool windowed = plait_model_windowed(c, w->layer) && !w->slot->masked;
    double scale = plait_mup_attention(c);
    struct plait_attention a = {
        .batch = w->shape->batch,
        .q_len = w->shape->piece_len,
        .k_len = w->shape->piece_len,
        .q_heads = d->heads,
        .kv_heads = d->kv_heads,
        .head_dim = d->head_dim,
        .q_stride = d->qkv,
        .kv_stride = d->qkv,
        .starts = plait_first_keys(w, 0),
        .window = windowed ? c->sliding_window : 0,
        .scale = scale > 0 ? (float)scale : 1 / sqrtf(d->head_dim),
        .cap = (float)w->model->config->model.attention_softcap,
    };

    return a;
}

/* Columns of q, and of k or v. */
static size_t q_width(const struct plait_work *w)
{
    return (size_t)w->d->heads * w->d->head_dim;
}

static size_t kv_width(const struct plait_work *w)
{
    return (size_t)w->d->kv_heads * w->d->head_dim;
}

/* -- the ring ------------------------------------------------------------ */

/* A query piece of this rank and a key piece of rank `from`. */
struct pair {
    int q, k;
    int from;
    bool first; /* of this query piece */
};

static int cp_size(const struct plait_work *w)
{
    return w->model->mesh->layout.size[PLAIT_CP];
}

static int cp_rank(const struct plait_work *w)
{
    return w->model->mesh->coord.at[PLAIT_CP];
}

/* Which of the sequence's 2 cp chunks piece `piece` of rank `rank` is. */
static int chunk_of(const struct plait_work *w, int rank, int piece)
{
    return piece ? 2 * cp_size(w) - 1 - rank : rank;
}

/* The pairs of step `step` that the causal mask does not exclude; for each
 * query piece the key piece of the same number comes first. Returns how
 * many. */
static int pairs_of(const struct plait_work *w, int step, struct pair *pairs)
{
    int r = cp_rank(w), from = (r - step + cp_size(w)) % cp_size(w), n = 0;

    for (int q = 0; q < 2; q++)
        for (int i = 0; i < 2; i++) {
            struct pair p = {q, q ^ i, from, step == 0 && i == 0};

            if (chunk_of(w, from, p.k) <= chunk_of(w, r, q))
                pairs[n++] = p;
        }
    return n;
}

static size_t piece_rows(const struct plait_work *w)
{
    return (size_t)w->shape->batch * w->shape->piece_len;
}

static struct plait_attention describe_pair(const struct plait_work *w,
                                            const struct pair *p)
{
    struct plait_attention a = describe_attention(w);
    int64_t len = w->shape->piece_len;

    a.kv_stride = 2 * kv_width(w);
    a.starts = plait_first_keys(w, p->q * piece_rows(w));
    a.q_pos = len * chunk_of(w, cp_rank(w), p->q);
    a.k_pos = len * chunk_of(w, p->from, p->k);
    return a;
}

static int end_attention(const struct plait_work *w, double start, int rc)
{
    return plait_end_part(w, PLAIT_MODEL_ATTENTION, start, rc);
}

/* x[rows, cols] of the compute type, whose rows are `stride` elements apart. */
struct part {
    void *x;
    size_t stride, rows, cols;
};

/* sum[rows, cols] += x, or = */
static int widen(const struct plait_work *w, float *sum, const struct part *p,
                 bool accumulate)
{
    return w->ops->cast_2d(w->q,
                           &(struct plait_cast_2d){.to = PLAIT_F32,
                                                   .from = w->type,
                                                   .dst = sum,
                                                   .dst_stride = p->cols,
                                                   .src = p->x,
                                                   .src_stride = p->stride,
                                                   .rows = p->rows,
                                                   .cols = p->cols,
                                                   .accumulate = accumulate});
}

/* x = sum[rows, cols] */
static int round_sum(const struct plait_work *w, const struct part *p,
                     const float *sum)
{
    return w->ops->cast_2d(w->q,
                           &(struct plait_cast_2d){.to = w->type,
                                                   .from = PLAIT_F32,
                                                   .dst = p->x,
                                                   .dst_stride = p->stride,
                                                   .src = sum,
                                                   .src_stride = p->cols,
                                                   .rows = p->rows,
                                                   .cols = p->cols});
}

/* Rows of the output of attention, or of its queries in the fused buffer. */
static struct part outputs(const struct plait_work *w, void *att, size_t rows)
{
    return (struct part){att, q_width(w), rows, q_width(w)};
}

static struct part queries(const struct plait_work *w, void *qkv, size_t rows)
{
    return (struct part){qkv, w->d->qkv, rows, q_width(w)};
}

static int pair_forward(const struct plait_work *w, const struct pair *p,
                        const struct plait_activations *a, const void *kv)
{
    struct plait_scratch *s = w->scratch;
    size_t rows = piece_rows(w);
    const void *k = plait_element_at(w, kv, p->k * rows * 2 * kv_width(w));
    struct plait_attention_merge whole = {
        .type = w->type,
        .a = describe_pair(w, p),
        .out = s->over_keys + p->q * rows * q_width(w),
        .lse = a->lse + p->q * rows * w->d->heads,
        .out2 = s->att2,
        .lse2 = s->lse2};
    struct plait_attention_forward f = {
        .type = w->type,
        .a = whole.a,
        .drops = plait_attention_drops(w),
        .out = s->att2,
        .lse = p->first ? whole.lse : s->lse2,
        .Q = plait_element_at(w, a->qkv, p->q * rows * w->d->qkv),
        .K = k,
        .V = plait_element_at(w, k, kv_width(w)),
        .peak = w->peak};
    struct part part = outputs(w, s->att2, rows);
    double start = plait_begin_part(w);

    if (end_attention(w, start, w->ops->attention_forward(w->q, &f)) < 0)
        return -1;
    if (p->first)
        return widen(w, whole.out, &part, false);
    return w->ops->attention_merge(w->q, &whole);
}

/* What a step of the ring's backward computes with. */
struct ring_backward {
    const void *datt; /* the gradient of the output */
    void *dqkv;       /* room for that of q of one pair */
    const void *kv;   /* keys and values that are here now */
    float *dkv;       /* and their gradient */
};

/* Adds the pair's terms to over_keys, the gradient of q, and to r->dkv. */
static int pair_backward(const struct plait_work *w, const struct pair *p,
                         const struct plait_activations *a,
                         const struct ring_backward *r)
{
    size_t rows = piece_rows(w), q = p->q * rows * w->d->qkv;
    size_t out = p->q * rows * q_width(w), stat = p->q * rows * w->d->heads;
    size_t width = 2 * kv_width(w), k = p->k * rows * width;
    void *dq = plait_element_at(w, r->dqkv, q), *dkv = w->scratch->dkv2;
    struct plait_attention_backward g = {
        .type = w->type,
        .a = describe_pair(w, p),
        .drops = plait_attention_drops(w),
        .dQ = dq,
        .dK = dkv,
        .dV = plait_element_at(w, dkv, kv_width(w)),
        .dout = plait_element_at(w, r->datt, out),
        .out = plait_element_at(w, a->att, out),
        .lse = a->lse + stat,
        .Q = plait_element_at(w, a->qkv, q),
        .K = plait_element_at(w, r->kv, k),
        .V = plait_element_at(w, r->kv, k + kv_width(w))};
    struct part of_q = queries(w, dq, rows);
    struct part of_kv = {dkv, width, rows, width};
    double start = plait_begin_part(w);

    g.a.overwrite = true;
    if (end_attention(w, start, w->ops->attention_backward(w->q, &g)) < 0 ||
        widen(w, w->scratch->over_keys + out, &of_q, !p->first) < 0)
        return -1;
    return widen(w, r->dkv + k, &of_kv, true);
}

/* Copies k and v of all rows, side by side, from or to the fused buffer. */
static int pack_kv(const struct plait_work *w, void *kv, const void *qkv)
{
    return w->ops->copy_2d(
        w->q,
        &(struct plait_copy_2d){.type = w->type,
                                .dst = kv,
                                .dst_stride = 2 * kv_width(w),
                                .src = plait_element_at(w, qkv, q_width(w)),
                                .src_stride = w->d->qkv,
                                .rows = w->shape->N,
                                .cols = 2 * kv_width(w)});
}

static struct plait_ring make_ring(const struct plait_work *w, int tag,
                                   enum plait_dtype type)
{
    struct plait_ring ring = {
        .group = w->model->mesh->group[PLAIT_GROUP_CP],
        .q = w->q,
        .type = type,
        .tag = tag,
    };

    return ring;
}

static int ring_forward(const struct plait_work *w,
                        const struct plait_activations *a)
{
    struct plait_ring ring = make_ring(w, PLAIT_TAG_KEYS_VALUES, w->type);
    struct part att = outputs(w, a->att, w->shape->N);
    void **kv = w->scratch->kv;
    size_t n = w->shape->N * 2 * kv_width(w);
    struct pair pairs[4];

    if (pack_kv(w, kv[0], a->qkv) < 0)
        return -1;
    for (int step = 0; step < cp_size(w); step++) {
        void *now = kv[step % 2], *next = kv[(step + 1) % 2];
        int npairs = pairs_of(w, step, pairs);

        if (step + 1 < cp_size(w) && plait_ring_pass(&ring, now, next, n) < 0)
            return -1;
        for (int i = 0; i < npairs; i++)
            if (pair_forward(w, &pairs[i], a, now) < 0)
                return -1;
        if (plait_ring_wait(&ring) < 0)
            return -1;
    }
    return round_sum(w, &att, w->scratch->over_keys);
}

/* Adds this step's terms to over_keys, and makes dkv of them. */
static int step_backward(const struct plait_work *w, int step,
                         const struct plait_activations *a,
                         const struct ring_backward *r)
{
    size_t bytes = w->shape->N * 2 * kv_width(w) * sizeof(float);
    struct pair pairs[4];
    int npairs = pairs_of(w, step, pairs);

    if (w->ops->fill_zero(w->q, r->dkv, bytes) < 0)
        return -1;
    for (int i = 0; i < npairs; i++)
        if (pair_backward(w, &pairs[i], a, r) < 0)
            return -1;
    return 0;
}

/* The gradients of keys and values travel one step behind the keys and values,
 * and each rank adds its terms; after cp steps they are complete and back on
 * the rank that owns them. */
static int pass_backward(const struct plait_work *w,
                         const struct plait_activations *a,
                         struct ring_backward *r)
{
    struct plait_ring there = make_ring(w, PLAIT_TAG_KEYS_VALUES, w->type),
                      back =
                          make_ring(w, PLAIT_TAG_KEYS_VALUES_GRAD, PLAIT_F32);
    struct plait_scratch *s = w->scratch;
    size_t n = w->shape->N * 2 * kv_width(w);

    for (int step = 0; step < cp_size(w); step++) {
        void *now = s->kv[step % 2], *next = s->kv[(step + 1) % 2];
        float *dkv = s->dkv[step % 2];
        struct plait_add more = {
            .type = PLAIT_F32, .out = dkv, .a = dkv, .b = s->dkv[2], .n = n};

        r->kv = now;
        r->dkv = dkv;
        if (step + 1 < cp_size(w) && plait_ring_pass(&there, now, next, n) < 0)
            return -1;
        if (step_backward(w, step, a, r) < 0 || plait_ring_wait(&there) < 0 ||
            plait_ring_wait(&back) < 0)
            return -1;
        if (step > 0 && w->ops->add(w->q, &more) < 0)
            return -1;
        if (plait_ring_pass(&back, dkv, s->dkv[2], n) < 0)
            return -1;
    }
    return plait_ring_wait(&back);
}

static int ring_backward(const struct plait_work *w,
                         const struct plait_activations *a, void *dqkv,
                         const void *datt)
{
    struct ring_backward r = {.datt = datt, .dqkv = dqkv};
    struct part of_q = queries(w, dqkv, w->shape->N);
    struct part of_kv = {plait_element_at(w, dqkv, q_width(w)), w->d->qkv,
                         w->shape->N, 2 * kv_width(w)};

    if (pack_kv(w, w->scratch->kv[0], a->qkv) < 0 ||
        pass_backward(w, a, &r) < 0 ||
        round_sum(w, &of_q, w->scratch->over_keys) < 0)
        return -1;
    return round_sum(w, &of_kv, w->scratch->dkv[2]);
}

/* -- growing texts --------------------------------------------------------- */

/* Stores the new keys and values in the cache, then attends to the whole
 * text. */
static int extend_text(const struct plait_work *w,
                       const struct plait_activations *a,
                       const struct plait_addition *add, size_t row)
{
    size_t width = 2 * kv_width(w);
    size_t text = (size_t)add->text * w->model->state->cache.length * width;
    void *qkv = plait_element_at(w, a->qkv, row * w->d->qkv);
    void *k = plait_element_at(w, a->cache->kv, text);
    struct plait_attention_forward f = {
        .type = w->type,
        .a = describe_attention(w),
        .out = plait_element_at(w, a->att, row * q_width(w)),
        .lse = a->lse + row * w->d->heads,
        .Q = qkv,
        .K = k,
        .V = plait_element_at(w, k, kv_width(w))};

    f.a.batch = 1;
    f.a.q_len = add->count;
    f.a.k_len = add->first + add->count;
    f.a.q_pos = add->first;
    f.a.kv_stride = width;
    f.a.starts = plait_first_keys(w, row);
    if (w->ops->copy_2d(w->q,
                        &(struct plait_copy_2d){
                            .type = w->type,
                            .dst = plait_element_at(w, k, add->first * width),
                            .dst_stride = width,
                            .src = plait_element_at(w, qkv, q_width(w)),
                            .src_stride = w->d->qkv,
                            .rows = add->count,
                            .cols = width}) < 0)
        return -1;
    return w->ops->attention_forward(w->q, &f);
}

static int extend_texts(const struct plait_work *w,
                        const struct plait_activations *a)
{
    size_t row = 0;

    for (int i = 0; i < w->added->n; i++) {
        if (extend_text(w, a, &w->added->add[i], row) < 0)
            return -1;
        row += w->added->add[i].count;
    }
    return 0;
}

/* -- all ------------------------------------------------------------------ */

int plait_attention_forward(const struct plait_work *w,
                            const struct plait_activations *a)
{
    size_t k = q_width(w), v = k + kv_width(w);
    struct plait_attention_forward f = {.type = w->type,
                                        .a = describe_attention(w),
                                        .drops = plait_attention_drops(w),
                                        .out = a->att,
                                        .lse = a->lse,
                                        .Q = a->qkv,
                                        .K = plait_element_at(w, a->qkv, k),
                                        .V = plait_element_at(w, a->qkv, v),
                                        .peak = w->peak};
    double start;

    if (w->added)
        return extend_texts(w, a);
    if (w->shape->pieces > 1)
        return ring_forward(w, a);
    start = plait_begin_part(w);
    return end_attention(w, start, w->ops->attention_forward(w->q, &f));
}

int plait_attention_backward(const struct plait_work *w,
                             const struct plait_activations *a, void *dqkv,
                             const void *datt)
{
    size_t k = q_width(w), v = k + kv_width(w);
    struct plait_attention_backward g = {.type = w->type,
                                         .a = describe_attention(w),
                                         .drops = plait_attention_drops(w),
                                         .dQ = dqkv,
                                         .dK = plait_element_at(w, dqkv, k),
                                         .dV = plait_element_at(w, dqkv, v),
                                         .dout = datt,
                                         .out = a->att,
                                         .lse = a->lse,
                                         .Q = a->qkv,
                                         .K = plait_element_at(w, a->qkv, k),
                                         .V = plait_element_at(w, a->qkv, v)};
    double start;
    int rc;

    if (w->shape->pieces > 1) {
        rc = ring_backward(w, a, dqkv, datt);
    } else {
        g.a.overwrite = true;
        start = plait_begin_part(w);
        rc = end_attention(w, start, w->ops->attention_backward(w->q, &g));
    }
    return rc < 0 ? -1 : plait_attention_place_backward(w, a, dqkv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as it is defined, one query and one key at a time: the oracle of
 * the other implementations. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/attention.h"
#include "kernels/ref/ref.h"

/* Indexes of the first elements of one query and one key. */
struct at {
    size_t q, k, out, lse;
};

static struct at locate(const struct plait_attention *a, size_t b, size_t h,
                        size_t i, size_t j)
{
    size_t group = (size_t)(a->q_heads / a->kv_heads);
    size_t D = (size_t)a->head_dim, H = (size_t)a->q_heads;
    size_t Tq = (size_t)a->q_len, Tk = (size_t)a->k_len;
    struct at at = {
        .q = (b * Tq + i) * a->q_stride + h * D,
        .k = (b * Tk + j) * a->kv_stride + h / group * D,
        .out = ((b * Tq + i) * H + h) * D,
        .lse = (b * H + h) * Tq + i,
    };

    return at;
}

/* Query i sees keys 0 .. visible-1 of the chunk, unless they are hidden. */
static size_t visible(const struct plait_attention *a, size_t i)
{
    int64_t n = a->q_pos + (int64_t)i - a->k_pos + 1;

    if (n < 0)
        return 0;
    return n < a->k_len ? (size_t)n : (size_t)a->k_len;
}

/* Keys 0 .. hidden-1 belong to earlier documents. */
static size_t hidden(const struct plait_attention *a, size_t b, size_t i)
{
    int64_t n =
        a->starts != NULL ? a->starts[b * (size_t)a->q_len + i] - a->k_pos : 0;
    size_t seen = visible(a, i);

    if (n < 0)
        return 0;
    return (size_t)n < seen ? (size_t)n : seen;
}

static double dot(enum plait_dtype type, const void *x, size_t i, const void *y,
                  size_t j, int n)
{
    double sum = 0;

    for (size_t d = 0; d < (size_t)n; d++)
        sum += ref_get(type, x, i + d) * ref_get(type, y, j + d);
    return sum;
}

/* What the probability of key j is multiplied by for query i. */
static double kept(const struct plait_attention *a, const struct plait_drops *d,
                   size_t b, size_t h, size_t i, size_t j)
{
    if (d->keys == NULL)
        return 1;
    return plait_drop_factor(
        d, plait_drop_row(d->keys[b], a->q_pos + (int64_t)i, d->place + h),
        (uint32_t)(a->k_pos + (int64_t)j));
}

/* The score of a product of a query and a key. */
static double score_of(const struct plait_attention *a, double product)
{
    double s = a->scale * product;

    return a->cap > 0 ? a->cap * tanh(s / a->cap) : s;
}

/* The derivative of a score by the product. */
static double slope_of(const struct plait_attention *a, double score)
{
    double t = a->cap > 0 ? score / a->cap : 0;

    return a->scale * (1 - t * t);
}

static void attend(const struct plait_attention_forward *f, size_t b, size_t h,
                   size_t i, double *p)
{
    const struct plait_attention *a = &f->a;
    struct at at = locate(a, b, h, i, 0);
    size_t n = visible(a, i), from = hidden(a, b, i);
    double max = -INFINITY, sum = 0;

    for (size_t j = from; j < n; j++) {
        p[j] = score_of(a, dot(f->type, f->Q, at.q, f->K,
                               at.k + j * a->kv_stride, a->head_dim));
        if (p[j] > max)
            max = p[j];
    }
    for (size_t j = from; j < n; j++) {
        p[j] = exp(p[j] - max);
        sum += p[j];
    }
    for (size_t d = 0; d < (size_t)a->head_dim; d++) {
        double o = 0;

        for (size_t j = from; j < n; j++)
            o += kept(a, &f->drops, b, h, i, j) * p[j] *
                 ref_get(f->type, f->V, at.k + j * a->kv_stride + d);
        ref_put(f->type, f->out, at.out + d, n > from ? o / sum : 0);
    }
    f->lse[at.lse] = (float)(n > from ? max + log(sum) : -INFINITY);
    if (f->peak && max > f->peak[h])
        f->peak[h] = (float)max;
}

int ref_attention_forward(struct plait_queue *q,
                          const struct plait_attention_forward *f)
{
    const struct plait_attention *a = &f->a;
    double *p = calloc((size_t)a->k_len, sizeof(*p));

    if (p == NULL)
        return plait_queue_fail(&q->head, ENOMEM, "attention: out of memory");
    for (size_t b = 0; b < (size_t)a->batch; b++)
        for (size_t h = 0; h < (size_t)a->q_heads; h++)
            for (size_t i = 0; i < (size_t)a->q_len; i++)
                attend(f, b, h, i, p);
    free(p);
    return 0;
}

/* Gradients of one chunk in double, dense, before they are added to dq, dk,
 * dv. */
struct sums {
    double *q, *k, *v;
};

static void attend_backward(const struct plait_attention_backward *g,
                            struct sums *s, size_t b, size_t h, size_t i)
{
    const struct plait_attention *a = &g->a;
    enum plait_dtype type = g->type;
    size_t D = (size_t)a->head_dim, n = visible(a, i);
    size_t group = (size_t)(a->q_heads / a->kv_heads);
    struct at at = locate(a, b, h, i, 0);
    double delta = dot(type, g->dout, at.out, g->out, at.out, a->head_dim);

    for (size_t j = hidden(a, b, i); j < n; j++) {
        size_t key = at.k + j * a->kv_stride;
        size_t to =
            ((b * (size_t)a->k_len + j) * (size_t)a->kv_heads + h / group) * D;
        double score =
            score_of(a, dot(type, g->Q, at.q, g->K, key, a->head_dim));
        double p = exp(score - g->lse[at.lse]);
        double by = kept(a, &g->drops, b, h, i, j);
        double dp = by * dot(type, g->dout, at.out, g->V, key, a->head_dim);
        double ds = p * (dp - delta) * slope_of(a, score);

        for (size_t d = 0; d < D; d++) {
            s->q[at.out + d] += ds * ref_get(type, g->K, key + d);
            s->k[to + d] += ds * ref_get(type, g->Q, at.q + d);
            s->v[to + d] += by * p * ref_get(type, g->dout, at.out + d);
        }
    }
}

/* dst rows += src, or = as g says; `width` elements per token, rows `stride`
 * apart. */
static void add_rows(const struct plait_attention_backward *g, void *dst,
                     size_t stride, const double *src, size_t rows,
                     size_t width)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t d = 0; d < width; d++) {
            size_t to = i * stride + d;
            double old = g->a.overwrite ? 0 : ref_get(g->type, dst, to);

            ref_put(g->type, dst, to, old + src[i * width + d]);
        }
}

int ref_attention_backward(struct plait_queue *q,
                           const struct plait_attention_backward *g)
{
    const struct plait_attention *a = &g->a;
    size_t rows_q = (size_t)a->batch * (size_t)a->q_len;
    size_t rows_k = (size_t)a->batch * (size_t)a->k_len;
    size_t width_q = (size_t)a->q_heads * (size_t)a->head_dim;
    size_t width_k = (size_t)a->kv_heads * (size_t)a->head_dim;
    struct sums s = {
        .q = calloc(rows_q * width_q, sizeof(double)),
        .k = calloc(rows_k * width_k, sizeof(double)),
        .v = calloc(rows_k * width_k, sizeof(double)),
    };
    int rc = 0;

    if (s.q == NULL || s.k == NULL || s.v == NULL) {
        rc = plait_queue_fail(&q->head, ENOMEM, "attention: out of memory");
        goto out;
    }
    for (size_t b = 0; b < (size_t)a->batch; b++)
        for (size_t h = 0; h < (size_t)a->q_heads; h++)
            for (size_t i = 0; i < (size_t)a->q_len; i++)
                attend_backward(g, &s, b, h, i);
    add_rows(g, g->dQ, a->q_stride, s.q, rows_q, width_q);
    add_rows(g, g->dK, a->kv_stride, s.k, rows_k, width_k);
    add_rows(g, g->dV, a->kv_stride, s.v, rows_k, width_k);
out:
    free(s.q);
    free(s.k);
    free(s.v);
    return rc;
}

int ref_attention_merge(struct plait_queue *q,
                        const struct plait_attention_merge *m)
{
    const struct plait_attention *a = &m->a;
    size_t H = (size_t)a->q_heads, Tq = (size_t)a->q_len;
    size_t D = (size_t)a->head_dim;

    (void)q;
    for (size_t r = 0; r < (size_t)a->batch * H * Tq; r++) {
        size_t b = r / (H * Tq), h = r / Tq % H, i = r % Tq;
        size_t at = locate(a, b, h, i, 0).out;
        double l1 = m->lse[r], l2 = m->lse2[r], max = fmax(l1, l2), l, w1, w2;

        if (l1 == -INFINITY && l2 == -INFINITY)
            continue; /* neither part saw a key: out is 0 and lse -inf
                       * already */
        l = max + log(exp(l1 - max) + exp(l2 - max));
        w1 = exp(l1 - l);
        w2 = exp(l2 - l);
        for (size_t d = 0; d < D; d++)
            m->out[at + d] = (float)(w1 * m->out[at + d] +
                                     w2 * ref_get(m->type, m->out2, at + d));
        m->lse[r] = (float)l;
    }
    return 0;
}

/* -- sinks ----------------------------------------------------------------- */

int ref_attention_sink(struct plait_queue *q,
                       const struct plait_attention_sink *s)
{
    size_t H = (size_t)s->heads, T = (size_t)s->q_len, D = (size_t)s->head_dim;

    (void)q;
    for (size_t r = 0; r < (size_t)s->batch * H * T; r++) {
        size_t b = r / (H * T), h = r / T % H, i = r % T;
        size_t at = ((b * T + i) * H + h) * D;
        double lse = s->lse[r], sink = ref_get(s->type, s->sink, h);
        double max = lse > sink ? lse : sink;
        double all = max + log(exp(lse - max) + exp(sink - max));

        for (size_t d = 0; d < D; d++)
            ref_put(s->type, s->out, at + d,
                    exp(lse - all) * ref_get(s->type, s->out, at + d));
        s->lse[r] = (float)all;
    }
    return 0;
}

int ref_attention_sink_backward(struct plait_queue *q,
                                const struct plait_attention_sink_gradient *s)
{
    size_t H = (size_t)s->heads, T = (size_t)s->q_len, D = (size_t)s->head_dim;

    (void)q;
    for (size_t h = 0; h < H; h++) {
        double sink = ref_get(s->type, s->sink, h), sum = 0;

        for (size_t r = 0; r < (size_t)s->batch * T; r++) {
            size_t b = r / T, i = r % T, at = (r * H + h) * D;
            double p = exp(sink - s->lse[(b * H + h) * T + i]);

            sum += p * dot(s->type, s->dout, at, s->out, at, s->head_dim);
        }
        s->dsink[h] -= (float)sum;
    }
    return 0;
}

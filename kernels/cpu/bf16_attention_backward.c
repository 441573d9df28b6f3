/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of bf16_attention.c: the probabilities are made again from
 * the rows' log-sum-exp, as in attention_backward.c. */
#include "kernels/cpu/bf16_attention_tiles.h"

struct backward_tiles {
    struct backward_sums sums;
    float *delta;                      /* shaped like sums.dq: [group, queries,
                                        * ..] */
    uint32_t *q, *dout;                /* the queries' operands packed by
                                        * rows */
    uint32_t *q_pairs, *dout_pairs;    /* and in pairs of rows */
    uint32_t *k, *kt, *vt, *k_pairs;   /* tiles */
    float *s, *dp;                     /* [HIGH, TILE] */
    uint32_t *ds, *p_pairs, *ds_pairs; /* [2, HIGH, HALF], and twice [2, HALF,
                                        * TILE]; the second half is for the
                                        * rounding errors */
};

static size_t backward_words(const struct plait_attention *a)
{
    size_t W = words_of((size_t)a->head_dim), ld = padded((size_t)a->head_dim);
    size_t n = group_size(a) * queries(a);

    return n * (2 * ld + 2 * W + 1) + TILE * (2 * ld + 3 * W) + HALF * ld +
           HIGH * (2 * TILE + 2 * HALF) + 4 * HALF * TILE;
}

static uint32_t *take(uint32_t **from, size_t n)
{
    uint32_t *p = *from;

    *from += n;
    return p;
}

static struct backward_tiles backward_place(const struct plait_attention *a,
                                            uint32_t *p)
{
    size_t W = words_of((size_t)a->head_dim), ld = padded((size_t)a->head_dim);
    size_t n = group_size(a) * queries(a);
    struct backward_tiles t;

    t.sums.dq = (float *)take(&p, n * ld);
    t.q_pairs = take(&p, n / 2 * ld);
    t.dout_pairs = take(&p, n / 2 * ld);
    t.sums.dk = (float *)take(&p, TILE * ld);
    t.sums.dv = (float *)take(&p, TILE * ld);
    t.k_pairs = take(&p, HALF * ld);
    t.s = (float *)take(&p, HIGH * TILE);
    t.dp = (float *)take(&p, HIGH * TILE);
    t.ds = take(&p, 2 * HIGH * HALF);
    t.p_pairs = take(&p, 2 * HALF * TILE);
    t.ds_pairs = take(&p, 2 * HALF * TILE);
    t.kt = take(&p, TILE * W);
    t.vt = take(&p, TILE * W);
    t.k = take(&p, TILE * W);
    t.q = take(&p, n * W);
    t.dout = take(&p, n * W);
    t.delta = (float *)take(&p, n);
    return t;
}

/* Queries of head h of the group: q and dout packed, delta = dout . out */
static void backward_queries(const struct attention *x, void *tiles, size_t b,
                             size_t h, size_t at)
{
    const struct plait_attention *a = x->a;
    struct backward_tiles *t = tiles;
    size_t D = (size_t)a->head_dim, ld = padded(D), W = words_of(D);
    size_t Tq = (size_t)a->q_len, dense = (size_t)a->q_heads * D;

    for (size_t q0 = 0; q0 < Tq; q0 += TILE, at += TILE) {
        size_t rows = min(TILE, Tq - q0), from = out_at(a, b, h, q0);

        load_rows(t->q + at * W, (const uint16_t *)x->Q + q_at(a, b, h, q0),
                  a->q_stride, rows, D);
        load_rows(t->dout + at * W, (const uint16_t *)x->dout + from, dense,
                  rows, D);
        pair_rows(t->q_pairs + at / 2 * ld, ld, t->q + at * W, D);
        pair_rows(t->dout_pairs + at / 2 * ld, ld, t->dout + at * W, D);
        for (size_t i = 0; i < rows; i++) {
            vec sum = {0};

            prefetch(PLAIT_BF16_T, x->out,
                     (struct head_rows){from, dense, rows, D}, i);
            for (size_t d = 0; d < D; d += VLEN)
                sum += vec_load(PLAIT_BF16_T, t->dout + (at + i) * W, d,
                                min(VLEN, D - d)) *
                       vec_load(PLAIT_BF16_T, x->out, from + i * dense + d,
                                min(VLEN, D - d));
            t->delta[at + i] = _mm512_reduce_add_ps(sum);
        }
        memset(t->sums.dq + at * ld, 0, TILE * ld * sizeof(float));
    }
}

/* Stores two rows of 16 numbers in bf16, as words of one value of each row. */
INLINE void store_pair(uint32_t *dst, __m512 low, __m512 high)
{
    __m512i l = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
    __m512i h = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));

    _mm512_storeu_si512(dst, _mm512_or_si512(l, _mm512_slli_epi32(h, 16)));
}

/* The inputs of one row's probabilities; keys from .. n - 1 are seen. */
struct score_row {
    const float *s, *dp;
    size_t from, n;
    float lse, delta, scale, inverse_cap; /* lse in base 2 */
};

/* p = probabilities of keys j and following, d = gradients of their scores. */
INLINE void probabilities(const struct score_row *r, size_t j, __m512 *p,
                          __m512 *d)
{
    __mmask16 seen = seen_keys(r->from, r->n, j);
    __m512 s = _mm512_loadu_ps(r->s + j);
    __m512 x = s * (r->scale * LOG2E) - r->lse;
    __m512 t = s * (r->scale * r->inverse_cap);

    *p = _mm512_maskz_mov_ps(seen, exp2_near(x));
    *d = _mm512_maskz_mul_ps(seen, *p * r->scale * (1.0f - t * t),
                             _mm512_loadu_ps(r->dp + j) - r->delta);
}

/* Rows i and i + 1 of a tile, in a block that sees at most n keys. Stores them
 * paired in p_pairs and ds_pairs, and by rows from ds (row i) on. */
INLINE void store_rows(const struct score_row r[2], size_t n, int split,
                       uint32_t *p_pairs, uint32_t *ds_pairs, uint32_t *ds)
{
    for (size_t j = 0; j < n; j += VLEN) {
        __m512 p[2], d[2];

        probabilities(&r[0], j, &p[0], &d[0]);
        probabilities(&r[1], j, &p[1], &d[1]);
        store_pair(p_pairs + j, p[0], p[1]);
        store_pair(ds_pairs + j, d[0], d[1]);
        vec_store(PLAIT_BF16_T, ds, j, VLEN, d[0]);
        vec_store(PLAIT_BF16_T, ds + HALF, j, VLEN, d[1]);
        if (!split)
            continue;
        store_pair(p_pairs + HALF * TILE + j, rounding_error(p[0]),
                   rounding_error(p[1]));
        store_pair(ds_pairs + HALF * TILE + j, rounding_error(d[0]),
                   rounding_error(d[1]));
        vec_store(PLAIT_BF16_T, ds + HIGH * HALF, j, VLEN,
                  rounding_error(d[0]));
        vec_store(PLAIT_BF16_T, ds + (HIGH + 1) * HALF, j, VLEN,
                  rounding_error(d[1]));
    }
}

static void probability_rows(struct backward_tiles *t, size_t i, size_t n,
                             int split, const struct score_row r[2])
{
    uint32_t *p = t->p_pairs + i / 2 * TILE, *d = t->ds_pairs + i / 2 * TILE;
    uint32_t *ds = t->ds + i % HIGH * HALF;
    size_t rest = (TILE - padded(n)) * sizeof(*p);

    if (split)
        store_rows(r, n, 1, p, d, ds);
    else
        store_rows(r, n, 0, p, d, ds);
    for (int k = 0; k <= split; k++) {
        memset(p + (size_t)k * HALF * TILE + padded(n), 0, rest);
        memset(d + (size_t)k * HALF * TILE + padded(n), 0, rest);
    }
}

/* Probabilities, their gradients and dq for HIGH rows from i on of a tile of
 * queries. */
static void backward_rows(const struct attention *x, struct backward_tiles *t,
                          const struct query_tile *q, size_t i,
                          const struct window *w, int split)
{
    size_t D = (size_t)x->a->head_dim, ld = padded(D), W = words_of(D);
    size_t last = min(i + HIGH, q->rows) - 1, n = visible(w, last);
    size_t at = q->at;

    if (n == 0)
        return;
    product(t->s, t->q + (at + i) * W, W, t->kt, padded(n), W);
    if (x->a->cap > 0)
        cap_rows(x->a, x->a->scale, t->s, HIGH, n);
    product(t->dp, t->dout + (at + i) * W, W, t->vt, padded(n), W);
    for (size_t k = i; k < i + HIGH; k += 2) {
        struct score_row r[2];

        for (size_t e = 0; e < 2; e++) {
            size_t seen = k + e <= last ? visible(w, k + e) : 0;
            size_t from = k + e <= last ? hidden(w, k + e) : 0;

            seen = from < seen ? seen : 0;
            r[e] = (struct score_row){
                .s = t->s + (k + e) % HIGH * TILE,
                .dp = t->dp + (k + e) % HIGH * TILE,
                .from = from,
                .n = seen,
                .lse = seen > 0 ? q->lse[k + e] * LOG2E : 0,
                .delta = seen > 0 ? t->delta[at + k + e] : 0,
                .scale = x->a->scale,
                .inverse_cap = inverse_cap(x->a),
            };
        }
        probability_rows(t, k, n, split, r);
    }
    for (int k = 0; k <= split; k++)
        product_add(t->sums.dq + (at + i) * ld, t->ds + k * HIGH * HALF,
                    (struct right){t->k_pairs, ld}, words_of(n));
}

/* c [HIGH, b.ld] += a [n, TILE] transposed . b [n, b.ld] */
NOINLINE void product_add_transposed(float *c, const uint32_t *a,
                                     struct right b, size_t n)
{
    rows_product(1, (struct sums){c, b.ld}, (struct left){a, 1, TILE}, b, b.ld,
                 n);
}

/* Adds to dk and dv of HIGH keys from j on what the queries of a tile
 * contribute, from their pair `pair` on. */
static void backward_columns(struct backward_tiles *t,
                             const struct query_tile *q, size_t pair, size_t j,
                             int split, size_t ld)
{
    size_t from = (q->at / 2 + pair) * ld, n = words_of(q->rows) - pair;

    for (int k = 0; k <= split; k++) {
        size_t a = ((size_t)k * HALF + pair) * TILE + j;

        product_add_transposed(t->sums.dv + j * ld, t->p_pairs + a,
                               (struct right){t->dout_pairs + from, ld}, n);
        product_add_transposed(t->sums.dk + j * ld, t->ds_pairs + a,
                               (struct right){t->q_pairs + from, ld}, n);
    }
}

static void backward_tile(const struct attention *x, void *tiles,
                          const struct query_tile *q, const struct window *w)
{
    int split = is_split(x->a, q->first, q->rows, w);

    for (size_t i = 0; i < q->rows; i += HIGH)
        backward_rows(x, tiles, q, i, w, split);
    for (size_t j = 0; j < w->cols; j += HIGH)
        backward_columns(tiles, q, first_query(w, j, q->rows) / 2, j, split,
                         padded((size_t)x->a->head_dim));
}

static void backward_load_keys(const struct attention *x, void *tiles,
                               size_t at, size_t cols)
{
    struct backward_tiles *t = tiles;
    size_t D = (size_t)x->a->head_dim, W = words_of(D), ld = padded(D);

    load_rows(t->k, (const uint16_t *)x->V + at, x->a->kv_stride, cols, D);
    transpose_rows(t->vt, t->k, W);
    load_rows(t->k, (const uint16_t *)x->K + at, x->a->kv_stride, cols, D);
    transpose_rows(t->kt, t->k, W);
    pair_rows(t->k_pairs, ld, t->k, D);
    memset(t->sums.dk, 0, TILE * ld * sizeof(float));
    memset(t->sums.dv, 0, TILE * ld * sizeof(float));
}

static void backward_item(const struct attention *x, void *place, size_t n)
{
    static const struct backward_steps steps = {
        .load_queries = backward_queries,
        .load_keys = backward_load_keys,
        .add_tile = backward_tile,
    };
    struct backward_tiles t = backward_place(x->a, place);

    backward_head(x, &steps, &t, n);
}

int cpu_bf16_attention_backward(struct plait_queue *q,
                                const struct plait_attention_backward *g)
{
    struct attention x = backward_operands(g);

    if (x.type != PLAIT_BF16_T || x.drops->keys != NULL)
        return CPU_NAME(cpu_attention_backward)(q, g);
    return for_each_item(q, &x, backward_items(x.a),
                         backward_words(x.a) * sizeof(uint32_t), backward_item);
}

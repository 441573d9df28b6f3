/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of attention in fp32, compiled once for each class of
 * processors: a work item is a tile of keys, to which the tiles of queries that
 * see it add. How the tiles are cut stands in attention.h. */
#include "kernels/cpu/attention_tiles.h"

struct backward_tiles {
    struct backward_sums sums;
    float *q, *dout, *delta;     /* shaped like sums.dq: [group, queries, ..] */
    float *k, *kt, *vt, *s, *dp; /* tiles */
};

static size_t backward_floats(const struct plait_attention *a)
{
    size_t ld = padded((size_t)a->head_dim);

    return group_size(a) * queries(a) * (3 * ld + 1) + 5 * TILE * ld +
           2 * TILE * TILE;
}

static struct backward_tiles backward_place(const struct plait_attention *a,
                                            float *p)
{
    size_t ld = padded((size_t)a->head_dim), tile = TILE * ld;
    size_t n = group_size(a) * queries(a);
    float *tiles = p + n * (3 * ld + 1);
    struct backward_tiles t = {
        .q = p,
        .dout = p + n * ld,
        .sums.dq = p + 2 * n * ld,
        .delta = p + 3 * n * ld,
        .k = tiles,
        .kt = tiles + tile,
        .vt = tiles + 2 * tile,
        .sums.dk = tiles + 3 * tile,
        .sums.dv = tiles + 4 * tile,
        .s = tiles + 5 * tile,
        .dp = tiles + 5 * tile + TILE * TILE,
    };

    return t;
}

/* Loads the queries of head h of the group in fp32: q, dout, and delta = dout .
 * out. */
static void backward_queries(const struct attention *x, void *tiles, size_t b,
                             size_t h, size_t at)
{
    const struct plait_attention *a = x->a;
    struct backward_tiles *t = tiles;
    size_t D = (size_t)a->head_dim, ld = padded(D), Tq = (size_t)a->q_len;
    size_t dense = (size_t)a->q_heads * D;

    for (size_t q0 = 0; q0 < Tq; q0 += TILE) {
        size_t rows = min(TILE, Tq - q0), to = (at + q0) * ld;
        struct head_rows q = {q_at(a, b, h, q0), a->q_stride, rows, D};
        struct head_rows out = {out_at(a, b, h, q0), dense, rows, D};

        load_any(x->type, t->q + to, x->Q, q, 1);
        load_any(x->type, t->dout + to, x->dout, out, 1);
        /* Only delta needs `out` in fp32: dq, not in use yet, holds it
         * meanwhile. */
        load_any(x->type, t->sums.dq + to, x->out, out, 1);
        for (size_t i = 0; i < TILE; i++) {
            vec sum = {0};

            for (size_t d = 0; d < ld; d += VLEN)
                sum += vec_load(PLAIT_F32, t->dout + to, i * ld + d, VLEN) *
                       vec_load(PLAIT_F32, t->sums.dq + to, i * ld + d, VLEN);
            t->delta[at + q0 + i] = vec_sum(sum);
        }
        memset(t->sums.dq + to, 0, TILE * ld * sizeof(float));
    }
}

/* One row of scores, of which keys from .. n - 1 are seen. */
struct score_row {
    float *s, *dp; /* [TILE] */
    size_t from, n;
    float lse, delta, scale, inverse_cap;
};

/* s = probabilities, dp = gradients of the scores. */
static void probabilities(struct score_row r)
{
    size_t j = 0;

    for (; j < r.n; j += VLEN) {
        size_t lanes = min(VLEN, r.n - j);
        vec score = vec_load(PLAIT_F32, r.s, j, VLEN) * r.scale;
        vec p = vec_exp(score - r.lse), t = score * r.inverse_cap;
        vec d = p * (vec_load(PLAIT_F32, r.dp, j, VLEN) - r.delta) * r.scale *
                (1.0f - t * t);

        for (size_t k = lanes; k < VLEN; k++)
            p[k] = d[k] = 0;
        for (size_t k = j; k < r.from && k < j + VLEN; k++)
            p[k - j] = d[k - j] = 0;
        vec_store(PLAIT_F32, r.s, j, VLEN, p);
        vec_store(PLAIT_F32, r.dp, j, VLEN, d);
    }
    for (; j < TILE; j++)
        r.s[j] = r.dp[j] = 0;
}

/* c [HIGH, b.ld] += a [K, TILE] transposed . b [K, b.ld] */
NOINLINE void product_add_transposed(float *c, const float *a, struct right b,
                                     size_t K)
{
    rows_product(1, (struct sums){c, b.ld}, (struct left){a, 1, TILE}, b, b.ld,
                 K);
}

static void backward_tile(const struct attention *x, void *tiles,
                          const struct query_tile *tile, const struct window *w)
{
    struct backward_tiles *t = tiles;
    size_t D = (size_t)x->a->head_dim, ld = padded(D), rows = tile->rows;
    float *q = t->q + tile->at * ld, *dout = t->dout + tile->at * ld;

    for (size_t i = 0; i < rows; i += HIGH) {
        size_t last = min(i + HIGH, rows) - 1, n = visible(w, last);

        product(t->s + i * TILE, q + i * ld, ld, t->kt, padded(n), D);
        if (x->a->cap > 0)
            cap_rows(x->a, x->a->scale, t->s + i * TILE, HIGH, n);
        product(t->dp + i * TILE, dout + i * ld, ld, t->vt, padded(n), D);
        for (size_t k = i; k < i + HIGH; k++) {
            size_t seen = k <= last ? visible(w, k) : 0;
            size_t from = k <= last ? hidden(w, k) : 0;

            if (seen > 0 && x->drops->keys != NULL)
                drop_keys(x->drops, w, k, t->dp + k * TILE, seen);
            probabilities((struct score_row){
                .s = t->s + k * TILE,
                .dp = t->dp + k * TILE,
                .from = from,
                .n = from < seen ? seen : 0,
                .lse = from < seen ? tile->lse[k] : 0,
                .delta = t->delta[tile->at + k],
                .scale = x->a->scale,
                .inverse_cap = inverse_cap(x->a),
            });
            if (seen > 0 && x->drops->keys != NULL)
                drop_keys(x->drops, w, k, t->s + k * TILE, seen);
        }
        product_add(t->sums.dq + (tile->at + i) * ld, t->dp + i * TILE,
                    (struct right){t->k, ld}, n);
    }
    for (size_t j = 0; j < w->cols; j += HIGH) {
        size_t i = first_query(w, j, rows);

        product_add_transposed(t->sums.dv + j * ld, t->s + i * TILE + j,
                               (struct right){dout + i * ld, ld}, rows - i);
        product_add_transposed(t->sums.dk + j * ld, t->dp + i * TILE + j,
                               (struct right){q + i * ld, ld}, rows - i);
    }
}

static void backward_load_keys(const struct attention *x, void *tiles,
                               size_t at, size_t cols)
{
    struct backward_tiles *t = tiles;
    size_t D = (size_t)x->a->head_dim, ld = padded(D);
    struct head_rows keys = {at, x->a->kv_stride, cols, D};

    load_any(x->type, t->k, x->V, keys, 1);
    transpose(t->vt, t->k, ld, D);
    load_any(x->type, t->k, x->K, keys, 1);
    transpose(t->kt, t->k, ld, D);
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

int CPU_NAME(cpu_attention_backward)(struct plait_queue *q,
                                     const struct plait_attention_backward *g)
{
    struct attention x = backward_operands(g);

    return for_each_item(q, &x, backward_items(x.a),
                         backward_floats(x.a) * sizeof(float), backward_item);
}

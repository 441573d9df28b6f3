/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_ATTENTION_H
#define PLAIT_KERNELS_CPU_ATTENTION_H

#include <math.h>
#include <omp.h>

#include "kernels/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* Attention in tiles of queries by keys (Dao et al., "FlashAttention"): the
 * scores of a tile stay in L1 and are never stored to memory. This file has
 * what does not depend on the type that the tiles are multiplied in: the order
 * of the tiles, the softmax's bookkeeping, loads and stores. The arithmetic of
 * a tile is in attention.c and attention_backward.c (fp32), and in
 * bf16_attention.c and bf16_attention_backward.c. */
#define TILE 64

INLINE size_t padded(size_t n)
{
    return (n + VLEN - 1) / VLEN * VLEN;
}

/* -- products ------------------------------------------------------------ */

/* The result of a product. */
struct sums {
    float *x;
    size_t ld;
};

/* From column `col` on. */
INLINE struct sums sums_at(struct sums c, size_t col)
{
    return (struct sums){c.x + col, c.ld};
}

/* -- memory ------------------------------------------------------------- */

#define AHEAD 16 /* rows */

/* Rows of one head in a tensor: D elements each, the first at element `at`, and
 * `stride` elements from one to the next. */
struct head_rows {
    size_t at, stride, rows, D;
};

/* Consecutive rows of a head are a whole token apart, often on different pages,
 * and the processor's prefetcher does not cross pages. So at row i this
 * prefetches the row AHEAD iterations later, and row i of the next head, which
 * follows it in memory. */
INLINE void prefetch(enum plait_dtype type, const void *x, struct head_rows r,
                     size_t i)
{
    size_t size = type == PLAIT_F32 ? sizeof(float) : sizeof(uint16_t);
    const char *p = (const char *)x + (r.at + i * r.stride) * size;

    for (size_t d = 0; d < r.D * size; d += 64) {
        __builtin_prefetch(p + r.D * size + d);
        if (i + AHEAD < r.rows)
            __builtin_prefetch(p + AHEAD * r.stride * size + d);
    }
}

/* The rows r of x = (+= if add) src [rows, padded(D)] */
INLINE void store_tile(enum plait_dtype type, void *x, struct head_rows r,
                       const float *src, int add)
{
    size_t ld = padded(r.D);

    for (size_t i = 0; i < r.rows; i++) {
        prefetch(type, x, r, i);
        for (size_t d = 0; d < r.D; d += VLEN) {
            size_t n = min(VLEN, r.D - d), to = r.at + i * r.stride + d;
            vec y = vec_load(PLAIT_F32, src, i * ld + d, VLEN);

            if (add)
                y += vec_load(type, x, to, n);
            vec_store(type, x, to, n, y);
        }
    }
}

INLINE void store_any(enum plait_dtype type, void *x, struct head_rows r,
                      const float *src, int add)
{
    if (type == PLAIT_F32)
        store_tile(PLAIT_F32, x, r, src, add);
    else if (type == PLAIT_BF16_T)
        store_tile(PLAIT_BF16_T, x, r, src, add);
    else
        store_tile(PLAIT_FP16_T, x, r, src, add);
}

/* The operands of one op. */
struct attention {
    enum plait_dtype type;
    const struct plait_attention *a;
    const struct plait_drops *drops;
    const void *Q, *K, *V;
    void *out;
    float *lse;
    float *peak; /* of the forward; NULL: unused */
    const void *dout;
    void *dQ, *dK, *dV;
};

INLINE struct attention
forward_operands(const struct plait_attention_forward *f)
{
    return (struct attention){.type = f->type,
                              .a = &f->a,
                              .drops = &f->drops,
                              .Q = f->Q,
                              .K = f->K,
                              .V = f->V,
                              .out = f->out,
                              .lse = f->lse,
                              .peak = f->peak};
}

/* The peak of head h becomes s, a score, if that is larger: heads are shared by
 * threads. */
INLINE void raise_peak(const struct attention *x, size_t h, float s)
{
    float old;

    if (x->peak == NULL)
        return;
    __atomic_load(&x->peak[h], &old, __ATOMIC_RELAXED);
    while (s > old &&
           !__atomic_compare_exchange(&x->peak[h], &old, &s, 1,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* The backward only reads out and lse. */
INLINE struct attention
backward_operands(const struct plait_attention_backward *g)
{
    return (struct attention){.type = g->type,
                              .a = &g->a,
                              .drops = &g->drops,
                              .Q = g->Q,
                              .K = g->K,
                              .V = g->V,
                              .out = (void *)g->out,
                              .lse = (float *)g->lse,
                              .dout = g->dout,
                              .dQ = g->dQ,
                              .dK = g->dK,
                              .dV = g->dV};
}

/* Whether cpu_attention_few() takes it. */
INLINE int cpu_few_queries(const struct attention *x)
{
    const struct plait_attention *a = x->a;

    return a->q_len <= 4 && a->q_len < a->k_len && a->starts == NULL &&
           x->drops->keys == NULL;
}

INLINE size_t q_at(const struct plait_attention *a, size_t b, size_t h,
                   size_t i)
{
    return (b * (size_t)a->q_len + i) * a->q_stride + h * (size_t)a->head_dim;
}

INLINE size_t k_at(const struct plait_attention *a, size_t b, size_t h,
                   size_t j)
{
    return (b * (size_t)a->k_len + j) * a->kv_stride + h * (size_t)a->head_dim;
}

INLINE size_t out_at(const struct plait_attention *a, size_t b, size_t h,
                     size_t i)
{
    return ((b * (size_t)a->q_len + i) * (size_t)a->q_heads + h) *
           (size_t)a->head_dim;
}

/* -- the cap ------------------------------------------------------------- */

/* The first n products of each row become those whose scores, `scale` times
 * them, are the capped ones; n is rounded up to whole vectors. */
INLINE void cap_rows(const struct plait_attention *a, float scale, float *s,
                     size_t rows, size_t n)
{
    float in = scale / a->cap, out = a->cap / scale;

    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < n; j += VLEN)
            vec_store(
                PLAIT_F32, s, i * TILE + j, VLEN,
                vec_tanh(vec_load(PLAIT_F32, s, i * TILE + j, VLEN) * in) *
                    out);
}

/* What a score is multiplied by for the derivative: 0 without a cap. */
INLINE float inverse_cap(const struct plait_attention *a)
{
    return a->cap > 0 ? 1 / a->cap : 0;
}

/* -- the mask ----------------------------------------------------------- */

/* Which keys of a tile the queries of a tile see: query i sees the first `seen
 * + i` keys, at least 0 and at most `cols`, except those before the start of
 * its document. */
struct window {
    int64_t seen;
    size_t cols;
    const int32_t *starts; /* of the queries; NULL: none */
    int64_t pos;           /* of the first key */
    uint64_t key, place;   /* of the rows that probabilities are dropped from */
};

/* Queries from i0 on of head h, keys from k0 on, of sequence b. */
INLINE struct window window_at(const struct attention *x, size_t b, size_t h,
                               size_t i0, size_t k0)
{
    const struct plait_attention *a = x->a;
    struct window w = {
        .seen = a->q_pos + (int64_t)i0 - a->k_pos - (int64_t)k0 + 1,
        .cols = min(TILE, (size_t)a->k_len - k0),
        .pos = a->k_pos + (int64_t)k0,
    };

    if (a->starts != NULL)
        w.starts = a->starts + b * (size_t)a->q_len + i0;
    if (x->drops->keys != NULL) {
        w.key = x->drops->keys[b];
        w.place = x->drops->place + h;
    }
    return w;
}

/* The window of the next tile of queries. */
INLINE void next_queries(struct window *w)
{
    w->seen += TILE;
    if (w->starts != NULL)
        w->starts += TILE;
}

INLINE size_t visible(const struct window *w, size_t i)
{
    int64_t n = w->seen + (int64_t)i;

    if (n <= 0)
        return 0;
    return (uint64_t)n < w->cols ? (size_t)n : w->cols;
}

/* How many keys, counted from the first, query i does not see because they lie
 * before its document; not decreasing with i. */
INLINE size_t hidden(const struct window *w, size_t i)
{
    int64_t n = w->starts != NULL ? w->starts[i] - w->pos : 0;

    if (n <= 0)
        return 0;
    return (uint64_t)n < w->cols ? (size_t)n : w->cols;
}

/* The first key that query i or a later one of the sequence sees, rounded down
 * to whole tiles. */
INLINE size_t first_tile(const struct plait_attention *a, size_t b, size_t i)
{
    int64_t n =
        a->starts != NULL ? a->starts[b * (size_t)a->q_len + i] - a->k_pos : 0;

    return n <= 0 ? 0 : (size_t)n / TILE * TILE;
}

/* The first query that sees key j, or `rows` if none does. */
INLINE size_t first_query(const struct window *w, size_t j, size_t rows)
{
    int64_t i = (int64_t)j - w->seen + 1;

    if (i <= 0)
        return 0;
    return (uint64_t)i < rows ? (size_t)i : rows;
}

/* -- threads ------------------------------------------------------------ */

/* Computes item n; `place` is this thread's scratch memory. */
typedef void item_fn(const struct attention *x, void *place, size_t n);

/* Computes items 0 .. items - 1 with as many threads as there is work for, each
 * of which gets `bytes` of scratch memory. Neighbouring items are neighbouring
 * heads, whose rows prefetch() loads too: so threads take runs of items, short
 * enough that there are about eight runs per thread, for balance. -1: the queue
 * has failed. */
static inline int for_each_item(struct plait_queue *q,
                                const struct attention *x, size_t items,
                                size_t bytes, item_fn *fn)
{
    size_t each = (bytes + 63) / 64 * 64, run;
    size_t threads = (size_t)cpu_threads(q, items * TILE * TILE);
    char *place;

    threads = items > 0 && items < threads ? items : threads;
    run = items / (8 * threads) > 1 ? items / (8 * threads) : 1;
    place = cpu_scratch(q, CPU_SCRATCH_OP, threads * each);

    if (place == NULL)
        return -1;
#pragma omp parallel for num_threads((int)threads) schedule(dynamic, run)
    for (size_t n = 0; n < items; n++)
        fn(x, place + (size_t)omp_get_thread_num() * each, n);
    return 0;
}

/* -- forward ------------------------------------------------------------ */

/* A run of query tiles is computed against each tile of keys together, so that
 * the keys are converted once for all of them. */
#define RUN 4

/* The state of a run's rows: the unfinished output [RUN * TILE, ld], the
 * largest score so far, and the sum of exponentials relative to it. Each struct
 * of forward tiles begins with this. */
struct forward_rows {
    float *out;
    float max[RUN * TILE], sum[RUN * TILE];
};

/* The arithmetic of the forward. `tiles` begins with a struct forward_rows. */
struct forward_steps {
    /* Loads rows of Q from element `at` on into the tiles of a run. */
    void (*load_queries)(const struct attention *x, void *tiles, size_t at,
                         size_t rows);
    /* Loads rows of K and V from element `at` on. */
    void (*load_keys)(const struct attention *x, void *tiles, size_t at,
                      size_t cols);
    /* Adds the keys of w to tile r of the run, whose first query is i0. */
    void (*add_tile)(const struct attention *x, void *tiles, size_t r,
                     size_t i0, size_t rows, const struct window *w);
    /* ln of the base of the exponentials: 1 for base e. */
    float log_base;
};

INLINE size_t forward_items(const struct plait_attention *a)
{
    size_t runs = ((size_t)a->q_len + RUN * TILE - 1) / (RUN * TILE);

    return (size_t)a->batch * (size_t)a->q_heads * runs;
}

static inline void finish_rows(const struct attention *x,
                               struct forward_rows *t, float log_base,
                               size_t at, size_t stat, size_t rows)
{
    size_t D = (size_t)x->a->head_dim, ld = padded(D);

    for (size_t i = 0; i < rows; i++) {
        int none = t->max[i] == -INFINITY && t->sum[i] == 0;
        float s = none ? 0 : 1 / t->sum[i];

        for (size_t d = 0; d < ld; d += VLEN)
            vec_store(PLAIT_F32, t->out, i * ld + d, VLEN,
                      vec_load(PLAIT_F32, t->out, i * ld + d, VLEN) * s);
        x->lse[stat + i] =
            none ? -INFINITY : t->max[i] * log_base + logf(t->sum[i]);
    }
    store_any(x->type, x->out,
              (struct head_rows){at, (size_t)x->a->q_heads * D, rows, D},
              t->out, 0);
}

INLINE float largest_score(const struct forward_rows *t, float log_base,
                           size_t rows)
{
    float max = -INFINITY;

    for (size_t i = 0; i < rows; i++)
        max = t->max[i] > max ? t->max[i] : max;
    return max * log_base;
}

/* Item n of forward_items(): one run of query tiles with all its keys. */
INLINE void forward_run(const struct attention *x,
                        const struct forward_steps *steps, void *tiles,
                        size_t n)
{
    const struct plait_attention *a = x->a;
    size_t H = (size_t)a->q_heads, Tq = (size_t)a->q_len;
    size_t runs = (Tq + RUN * TILE - 1) / (RUN * TILE);
    size_t b = n / (H * runs), h = n / runs % H, q0 = n % runs * RUN * TILE;
    size_t kv = h / (H / (size_t)a->kv_heads);
    size_t rows = min(RUN * TILE, Tq - q0);
    struct forward_rows *t = tiles;

    steps->load_queries(x, tiles, q_at(a, b, h, q0), rows);
    memset(t->out, 0,
           RUN * TILE * padded((size_t)a->head_dim) * sizeof(*t->out));
    memset(t->sum, 0, sizeof(t->sum));
    for (size_t i = 0; i < RUN * TILE; i++)
        t->max[i] = -INFINITY;
    for (size_t k0 = first_tile(a, b, q0); k0 < (size_t)a->k_len; k0 += TILE) {
        struct window w = window_at(x, b, h, q0, k0);

        if (visible(&w, rows - 1) == 0)
            break;
        steps->load_keys(x, tiles, k_at(a, b, kv, k0), w.cols);
        for (size_t r = 0; r * TILE < rows; r++, next_queries(&w))
            steps->add_tile(x, tiles, r, q0 + r * TILE,
                            min(TILE, rows - r * TILE), &w);
    }
    finish_rows(x, t, steps->log_base, out_at(a, b, h, q0),
                (b * H + h) * Tq + q0, rows);
    raise_peak(x, h, largest_score(t, steps->log_base, rows));
}

/* -- backward ----------------------------------------------------------- */

/* The gradients of one key-value head while they are summed: dq [group,
 * queries, ld] of all its queries; dk and dv [TILE, ld] of one tile of keys.
 * Each struct of backward tiles begins with this. */
struct backward_sums {
    float *dq, *dk, *dv;
};

/* A tile of queries of one head. */
struct query_tile {
    size_t first;     /* in its head */
    size_t rows;      /* how many queries */
    size_t at;        /* the first, numbered through all heads of the group */
    const float *lse; /* [rows] */
};

/* The arithmetic of the backward. `tiles` begins with a struct backward_sums.
 * Queries are numbered through all heads of the group, queries() for each. */
struct backward_steps {
    /* Loads query head h as queries `to` and following; sets their dq = 0. */
    void (*load_queries)(const struct attention *x, void *tiles, size_t b,
                         size_t h, size_t to);
    /* Loads rows of K and V from element `at` on; sets dk = dv = 0. */
    void (*load_keys)(const struct attention *x, void *tiles, size_t at,
                      size_t cols);
    /* Adds the keys of w for a tile of queries. */
    void (*add_tile)(const struct attention *x, void *tiles,
                     const struct query_tile *q, const struct window *w);
};

/* Queries of a head, rounded up to whole tiles. */
INLINE size_t queries(const struct plait_attention *a)
{
    return ((size_t)a->q_len + TILE - 1) / TILE * TILE;
}

INLINE size_t group_size(const struct plait_attention *a)
{
    return (size_t)(a->q_heads / a->kv_heads);
}

INLINE size_t backward_items(const struct plait_attention *a)
{
    return (size_t)a->batch * (size_t)a->kv_heads;
}

/* One tile of keys against all queries of the group. */
INLINE void backward_keys(const struct attention *x,
                          const struct backward_steps *steps, void *tiles,
                          size_t b, size_t kv, size_t k0)
{
    const struct plait_attention *a = x->a;
    size_t cols = min(TILE, (size_t)a->k_len - k0), Tq = (size_t)a->q_len;
    struct head_rows keys = {.at = k_at(a, b, kv, k0),
                             .stride = a->kv_stride,
                             .rows = cols,
                             .D = (size_t)a->head_dim};
    const struct backward_sums *t = tiles;

    steps->load_keys(x, tiles, keys.at, cols);
    for (size_t g = 0; g < group_size(a); g++) {
        size_t h = kv * group_size(a) + g;
        const float *lse = x->lse + (b * (size_t)a->q_heads + h) * Tq;

        for (size_t i0 = 0; i0 < Tq; i0 += TILE) {
            struct window w = window_at(x, b, h, i0, k0);
            struct query_tile q = {.first = i0,
                                   .rows = min(TILE, Tq - i0),
                                   .at = g * queries(a) + i0,
                                   .lse = lse + i0};

            if (hidden(&w, 0) == cols)
                break; /* later queries do not see these keys either */
            if (visible(&w, q.rows - 1) > 0)
                steps->add_tile(x, tiles, &q, &w);
        }
    }
    store_any(x->type, x->dK, keys, t->dk, !a->overwrite);
    store_any(x->type, x->dV, keys, t->dv, !a->overwrite);
}

/* Item n of backward_items(): threads take whole key-value heads, so that no
 * two add to the same gradient. */
INLINE void backward_head(const struct attention *x,
                          const struct backward_steps *steps, void *tiles,
                          size_t n)
{
    const struct plait_attention *a = x->a;
    size_t b = n / (size_t)a->kv_heads, kv = n % (size_t)a->kv_heads;
    size_t D = (size_t)a->head_dim, ld = padded(D), group = group_size(a);
    const struct backward_sums *t = tiles;

    for (size_t g = 0; g < group; g++)
        steps->load_queries(x, tiles, b, kv * group + g, g * queries(a));
    for (size_t k0 = 0; k0 < (size_t)a->k_len; k0 += TILE)
        backward_keys(x, steps, tiles, b, kv, k0);
    for (size_t g = 0; g < group; g++)
        store_any(x->type, x->dQ,
                  (struct head_rows){q_at(a, b, kv * group + g, 0), a->q_stride,
                                     (size_t)a->q_len, D},
                  t->dq + g * queries(a) * ld, !a->overwrite);
}

#endif

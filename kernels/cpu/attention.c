/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/attention.h"

/* Attention in tiles of queries by keys (Dao et al., "FlashAttention"): the
 * scores of a tile live in L1 and are never stored. A tile's operands are
 * converted to fp32 and padded with zeros to whole vectors. */

#if VLEN == 16
#define WIDE 4 /* vectors of a row the inner loop keeps in registers */
#else
#define WIDE 2
#endif
#define HIGH 4 /* rows */

/* c[HIGH, width vectors] = (+= if add) a[HIGH, K] . b[K, ..]; element (i, k)
 * of a lies at i * row + k * col. */
INLINE void block(int width, int add, float *c, size_t ldc, const float *a,
                  size_t row, size_t col, const float *b, size_t ldb, size_t K)
{
    vec sum[HIGH][WIDE];

    for (int i = 0; i < HIGH; i++)
        for (int j = 0; j < width; j++)
            sum[i][j] = add ? vec_load(PLAIT_F32, c,
                                       (size_t)i * ldc + (size_t)j * VLEN, VLEN)
                            : (vec){0};
    for (size_t k = 0; k < K; k++)
#pragma GCC unroll 4
        for (int j = 0; j < width; j++) {
            vec x = vec_load(PLAIT_F32, b, k * ldb + (size_t)j * VLEN, VLEN);

#pragma GCC unroll 4
            for (int i = 0; i < HIGH; i++)
                sum[i][j] += x * a[(size_t)i * row + k * col];
        }
    for (int i = 0; i < HIGH; i++)
        for (int j = 0; j < width; j++)
            vec_store(PLAIT_F32, c, (size_t)i * ldc + (size_t)j * VLEN, VLEN,
                      sum[i][j]);
}

/* HIGH rows of c, N (a multiple of VLEN) columns */
INLINE void rows_product(int add, float *c, size_t ldc, const float *a,
                         size_t row, size_t col, const float *b, size_t ldb,
                         size_t N, size_t K)
{
    size_t j = 0;

    for (; j + WIDE * VLEN <= N; j += WIDE * VLEN)
        block(WIDE, add, c + j, ldc, a, row, col, b + j, ldb, K);
    for (; j + 2 * VLEN <= N; j += 2 * VLEN)
        block(2, add, c + j, ldc, a, row, col, b + j, ldb, K);
    for (; j < N; j += VLEN)
        block(1, add, c + j, ldc, a, row, col, b + j, ldb, K);
}

/* c = a . b */
static void product(float *c, size_t ldc, const float *a, size_t row,
                    size_t col, const float *b, size_t ldb, size_t N, size_t K)
{
    rows_product(0, c, ldc, a, row, col, b, ldb, N, K);
}

/* c += a . b */
static void product_add(float *c, size_t ldc, const float *a, size_t row,
                        size_t col, const float *b, size_t ldb, size_t N,
                        size_t K)
{
    rows_product(1, c, ldc, a, row, col, b, ldb, N, K);
}

/* -- tiles -------------------------------------------------------------- */

/* dst [TILE, ld] = `rows` rows of x, `stride` apart, times s; 0 elsewhere */
INLINE void load_tile(enum plait_dtype type, float *dst, size_t ld,
                      const void *x, size_t at, size_t stride, size_t rows,
                      size_t D, float s)
{
    for (size_t i = 0; i < rows; i++) {
        prefetch(type, x, at, stride, i, rows, D);
        for (size_t d = 0; d < D; d += VLEN)
            vec_store(PLAIT_F32, dst, i * ld + d, VLEN,
                      vec_load(type, x, at + i * stride + d, min(VLEN, D - d)) *
                          s);
    }
    memset(dst + rows * ld, 0, (TILE - rows) * ld * sizeof(float));
}

static void load_any(enum plait_dtype type, float *dst, size_t ld,
                     const void *x, size_t at, size_t stride, size_t rows,
                     size_t D, float s)
{
    if (type == PLAIT_F32)
        load_tile(PLAIT_F32, dst, ld, x, at, stride, rows, D, s);
    else if (type == PLAIT_BF16_T)
        load_tile(PLAIT_BF16_T, dst, ld, x, at, stride, rows, D, s);
    else
        load_tile(PLAIT_FP16_T, dst, ld, x, at, stride, rows, D, s);
}

/* dst [D, TILE] = src [TILE, ld] turned over, a cache line at a time */
static void transpose(float *dst, const float *src, size_t ld, size_t D)
{
    for (size_t j = 0; j < TILE; j += 16)
        for (size_t d = 0; d < D; d++)
            for (size_t k = 0; k < 16; k++)
                dst[d * TILE + j + k] = src[(j + k) * ld + d];
}

/* -- forward ------------------------------------------------------------ */

/* A run of query tiles goes over the keys together, so that a tile of keys
 * is converted once for all of them. */
#define RUN 4

struct forward_tiles {
    float *q, *out;        /* [RUN] */
    float *k, *kt, *v, *s; /* k and v share their place */
    float max[RUN][TILE], sum[RUN][TILE];
};

static size_t forward_floats(size_t D)
{
    return (2 * RUN + 2) * TILE * padded(D) + TILE * TILE;
}

static struct forward_tiles forward_place(float *p, size_t D)
{
    size_t tile = TILE * padded(D);
    struct forward_tiles t = {.q = p, .out = p + RUN * tile};

    t.k = t.v = p + 2 * RUN * tile;
    t.kt = t.k + tile;
    t.s = t.kt + tile;
    return t;
}

/* One row of scores becomes e^(s - max); what was summed is rescaled. */
static void softmax_row(struct forward_tiles *t, size_t r, size_t i, size_t n,
                        size_t ld)
{
    float *s = t->s + i * TILE, *out = t->out + (r * TILE + i) * ld;
    float old = t->max[r][i], max, keep;
    vec largest = vec_set(-INFINITY), sum = {0};

    for (size_t k = n; k < padded(n); k++)
        s[k] = -INFINITY;
    for (size_t j = 0; j < n; j += VLEN)
        largest = vec_max(largest, vec_load(PLAIT_F32, s, j, VLEN));
    max = vec_largest(largest);
    max = max < old ? old : max;
    for (size_t j = 0; j < n; j += VLEN) {
        vec p = vec_exp(vec_load(PLAIT_F32, s, j, VLEN) - max);

        vec_store(PLAIT_F32, s, j, VLEN, p);
        sum += p;
    }
    for (size_t j = padded(n); j < TILE; j++)
        s[j] = 0;
    if (n == 0)
        return;
    keep = old == max ? 1 : vec_exp(vec_set(old - max))[0];
    t->sum[r][i] = t->sum[r][i] * keep + vec_sum(sum);
    t->max[r][i] = max;
    if (keep != 1)
        for (size_t d = 0; d < ld; d += VLEN)
            vec_store(PLAIT_F32, out, d, VLEN,
                      vec_load(PLAIT_F32, out, d, VLEN) * keep);
}

/* Tile r of the run, whose rows see the keys of `w`. */
static void forward_tile(struct forward_tiles *t, size_t r, size_t rows,
                         const struct window *w, size_t D)
{
    size_t ld = padded(D), at = r * TILE * ld;

    for (size_t i = 0; i < rows; i += HIGH) {
        size_t last = min(i + HIGH, rows) - 1, n = visible(w, last);

        if (n == 0)
            continue;
        product(t->s + i * TILE, TILE, t->q + at + i * ld, ld, 1, t->kt, TILE,
                padded(n), D);
        for (size_t k = i; k < i + HIGH; k++)
            softmax_row(t, r, k, k <= last ? visible(w, k) : 0, ld);
        product_add(t->out + at + i * ld, ld, t->s + i * TILE, TILE, 1, t->v,
                    ld, ld, n);
    }
}

static void forward_start(const struct attention *x, struct forward_tiles *t,
                          size_t b, size_t h, size_t q0, size_t rows)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D);

    for (size_t r = 0; r * TILE < rows; r++)
        load_any(x->type, t->q + r * TILE * ld, ld, x->Q,
                 q_at(a, b, h, q0 + r * TILE), a->q_stride,
                 min(TILE, rows - r * TILE), D, a->scale);
    memset(t->out, 0, RUN * TILE * ld * sizeof(float));
    memset(t->sum, 0, sizeof(t->sum));
    for (size_t i = 0; i < RUN * TILE; i++)
        t->max[i / TILE][i % TILE] = -INFINITY;
}

static void forward_finish(const struct attention *x, struct forward_tiles *t,
                           size_t b, size_t h, size_t q0, size_t rows)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), H = (size_t)a->q_heads;
    float *lse = x->lse + (b * H + h) * (size_t)a->q_len + q0;

    for (size_t i = 0; i < rows; i++) {
        float max = t->max[i / TILE][i % TILE];
        float sum = t->sum[i / TILE][i % TILE];
        int none = max == -INFINITY && sum == 0;
        float s = none ? 0 : 1 / sum;

        for (size_t d = 0; d < ld; d += VLEN)
            vec_store(PLAIT_F32, t->out, i * ld + d, VLEN,
                      vec_load(PLAIT_F32, t->out, i * ld + d, VLEN) * s);
        lse[i] = none ? -INFINITY : max + logf(sum);
    }
    store_any(x->type, x->out, out_at(a, b, h, q0), H * D, t->out, ld, rows, D,
              0);
}

static void forward_run(const struct attention *x, struct forward_tiles *t,
                        size_t b, size_t h, size_t q0)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D);
    size_t kv = h / (size_t)(a->q_heads / a->kv_heads);
    size_t rows = min(RUN * TILE, (size_t)a->q_len - q0);

    forward_start(x, t, b, h, q0, rows);
    for (size_t k0 = 0; k0 < (size_t)a->k_len; k0 += TILE) {
        struct window w = window_at(a, q0, k0);

        if (visible(&w, rows - 1) == 0)
            break;
        load_any(x->type, t->k, ld, x->K, k_at(a, b, kv, k0), a->kv_stride,
                 w.cols, D, 1);
        transpose(t->kt, t->k, ld, D);
        load_any(x->type, t->v, ld, x->V, k_at(a, b, kv, k0), a->kv_stride,
                 w.cols, D, 1);
        for (size_t r = 0; r * TILE < rows; r++, w.seen += TILE)
            forward_tile(t, r, min(TILE, rows - r * TILE), &w, D);
    }
    forward_finish(x, t, b, h, q0, rows);
}

int CPU_NAME(cpu_attention_forward)(struct plait_queue *q,
                                    enum plait_dtype type,
                                    const struct plait_attention *a, void *out,
                                    float *lse, const void *Q, const void *K,
                                    const void *V)
{
    struct attention x = {
        .type = type, .a = a, .Q = Q, .K = K, .V = V, .out = out, .lse = lse};
    size_t D = (size_t)a->head_dim, H = (size_t)a->q_heads;
    size_t runs = ((size_t)a->q_len + RUN * TILE - 1) / (RUN * TILE);
    size_t items = (size_t)a->batch * H * runs, each = forward_floats(D);
    float *place = cpu_scratch(q, CPU_SCRATCH_OP,
                               (size_t)q->dev->threads * each * sizeof(float));

    if (place == NULL)
        return -1;
#pragma omp parallel for num_threads(cpu_threads(q, items *TILE *TILE)) \
    schedule(dynamic, run_of_items(q, items))
    for (size_t n = 0; n < items; n++) {
        struct forward_tiles t =
            forward_place(place + (size_t)omp_get_thread_num() * each, D);

        forward_run(&x, &t, n / (H * runs), n / runs % H,
                    n % runs * RUN * TILE);
    }
    return 0;
}

/* -- backward ----------------------------------------------------------- */

/* Of one key-value head: all its queries, and one tile of keys. */
struct backward_tiles {
    float *q, *dout, *dq, *delta;          /* [group, queries, ..] */
    float *k, *kt, *vt, *dk, *dv, *s, *dp; /* tiles */
};

static size_t queries(const struct plait_attention *a)
{
    return ((size_t)a->q_len + TILE - 1) / TILE * TILE;
}

static size_t backward_floats(const struct plait_attention *a)
{
    size_t group = (size_t)(a->q_heads / a->kv_heads);
    size_t ld = padded((size_t)a->head_dim);

    return group * queries(a) * (3 * ld + 1) + 5 * TILE * ld + 2 * TILE * TILE;
}

static struct backward_tiles backward_place(const struct plait_attention *a,
                                            float *p)
{
    size_t ld = padded((size_t)a->head_dim), tile = TILE * ld;
    size_t n = (size_t)(a->q_heads / a->kv_heads) * queries(a);
    float *tiles = p + n * (3 * ld + 1);
    struct backward_tiles t = {
        .q = p,
        .dout = p + n * ld,
        .dq = p + 2 * n * ld,
        .delta = p + 3 * n * ld,
        .k = tiles,
        .kt = tiles + tile,
        .vt = tiles + 2 * tile,
        .dk = tiles + 3 * tile,
        .dv = tiles + 4 * tile,
        .s = tiles + 5 * tile,
        .dp = tiles + 5 * tile + TILE * TILE,
    };

    return t;
}

/* Queries of head h of the group, in fp32: q, dout, and delta = dout.out */
static void load_queries(const struct attention *x, struct backward_tiles *t,
                         size_t b, size_t h, size_t at)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), Tq = (size_t)a->q_len;
    size_t dense = (size_t)a->q_heads * D;

    for (size_t q0 = 0; q0 < Tq; q0 += TILE) {
        size_t rows = min(TILE, Tq - q0), to = (at + q0) * ld;

        load_any(x->type, t->q + to, ld, x->Q, q_at(a, b, h, q0), a->q_stride,
                 rows, D, 1);
        load_any(x->type, t->dout + to, ld, x->dout, out_at(a, b, h, q0), dense,
                 rows, D, 1);
        /* dq is still free: out rests there while delta is formed. */
        load_any(x->type, t->dq + to, ld, x->out, out_at(a, b, h, q0), dense,
                 rows, D, 1);
        for (size_t i = 0; i < TILE; i++) {
            vec sum = {0};

            for (size_t d = 0; d < ld; d += VLEN)
                sum += vec_load(PLAIT_F32, t->dout + to, i * ld + d, VLEN) *
                       vec_load(PLAIT_F32, t->dq + to, i * ld + d, VLEN);
            t->delta[at + q0 + i] = vec_sum(sum);
        }
        memset(t->dq + to, 0, TILE * ld * sizeof(float));
    }
}

/* s = probabilities, dp = gradient of the scores; row i sees n keys. */
static void probabilities(struct backward_tiles *t, size_t i, size_t n,
                          float scale, float lse, float delta)
{
    float *s = t->s + i * TILE, *dp = t->dp + i * TILE;
    size_t j = 0;

    for (; j < n; j += VLEN) {
        size_t lanes = min(VLEN, n - j);
        vec p = vec_exp(vec_load(PLAIT_F32, s, j, VLEN) * scale - lse);
        vec d = p * (vec_load(PLAIT_F32, dp, j, VLEN) - delta) * scale;

        for (size_t k = lanes; k < VLEN; k++)
            p[k] = d[k] = 0;
        vec_store(PLAIT_F32, s, j, VLEN, p);
        vec_store(PLAIT_F32, dp, j, VLEN, d);
    }
    for (; j < TILE; j++)
        s[j] = dp[j] = 0;
}

/* The tile of queries at `at`, whose rows see the keys of `w`. */
static void backward_tile(struct backward_tiles *t, const float *lse, size_t at,
                          size_t rows, const struct window *w, float scale,
                          size_t D)
{
    size_t ld = padded(D);
    float *q = t->q + at * ld, *dout = t->dout + at * ld;

    for (size_t i = 0; i < rows; i += HIGH) {
        size_t last = min(i + HIGH, rows) - 1, n = visible(w, last);

        product(t->s + i * TILE, TILE, q + i * ld, ld, 1, t->kt, TILE,
                padded(n), D);
        product(t->dp + i * TILE, TILE, dout + i * ld, ld, 1, t->vt, TILE,
                padded(n), D);
        for (size_t k = i; k < i + HIGH; k++) {
            size_t seen = k <= last ? visible(w, k) : 0;

            probabilities(t, k, seen, scale, seen > 0 ? lse[k] : 0,
                          t->delta[at + k]);
        }
        product_add(t->dq + (at + i) * ld, ld, t->dp + i * TILE, TILE, 1, t->k,
                    ld, ld, n);
    }
    for (size_t j = 0; j < w->cols; j += HIGH) {
        size_t i = first_query(w, j, rows);

        product_add(t->dv + j * ld, ld, t->s + i * TILE + j, 1, TILE,
                    dout + i * ld, ld, ld, rows - i);
        product_add(t->dk + j * ld, ld, t->dp + i * TILE + j, 1, TILE,
                    q + i * ld, ld, ld, rows - i);
    }
}

static void backward_keys(const struct attention *x, struct backward_tiles *t,
                          size_t b, size_t kv, size_t k0)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), tile = TILE * ld;
    size_t group = (size_t)(a->q_heads / a->kv_heads);
    size_t cols = min(TILE, (size_t)a->k_len - k0), Tq = (size_t)a->q_len;

    load_any(x->type, t->k, ld, x->V, k_at(a, b, kv, k0), a->kv_stride, cols, D,
             1);
    transpose(t->vt, t->k, ld, D);
    load_any(x->type, t->k, ld, x->K, k_at(a, b, kv, k0), a->kv_stride, cols, D,
             1);
    transpose(t->kt, t->k, ld, D);
    memset(t->dk, 0, 2 * tile * sizeof(float)); /* and dv */
    for (size_t g = 0; g < group; g++) {
        size_t h = kv * group + g;
        const float *lse = x->lse + (b * (size_t)a->q_heads + h) * Tq;

        for (size_t i0 = 0; i0 < Tq; i0 += TILE) {
            struct window w = window_at(a, i0, k0);
            size_t rows = min(TILE, Tq - i0);

            if (visible(&w, rows - 1) > 0)
                backward_tile(t, lse + i0, g * queries(a) + i0, rows, &w,
                              a->scale, D);
        }
    }
    store_any(x->type, x->dK, k_at(a, b, kv, k0), a->kv_stride, t->dk, ld, cols,
              D, !a->zeroed);
    store_any(x->type, x->dV, k_at(a, b, kv, k0), a->kv_stride, t->dv, ld, cols,
              D, !a->zeroed);
}

static void backward_head(const struct attention *x, struct backward_tiles *t,
                          size_t b, size_t kv)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D);
    size_t group = (size_t)(a->q_heads / a->kv_heads);

    for (size_t g = 0; g < group; g++)
        load_queries(x, t, b, kv * group + g, g * queries(a));
    for (size_t k0 = 0; k0 < (size_t)a->k_len; k0 += TILE)
        backward_keys(x, t, b, kv, k0);
    for (size_t g = 0; g < group; g++)
        store_any(x->type, x->dQ, q_at(a, b, kv * group + g, 0), a->q_stride,
                  t->dq + g * queries(a) * ld, ld, (size_t)a->q_len, D,
                  !a->zeroed);
}

/* Threads take whole key-value heads: no two add to the same gradient. */
int CPU_NAME(cpu_attention_backward)(struct plait_queue *q,
                                     enum plait_dtype type,
                                     const struct plait_attention *a, void *dQ,
                                     void *dK, void *dV, const void *dout,
                                     const void *out, const float *lse,
                                     const void *Q, const void *K,
                                     const void *V)
{
    struct attention x = {.type = type,
                          .a = a,
                          .Q = Q,
                          .K = K,
                          .V = V,
                          .out = (void *)out,
                          .lse = (float *)lse,
                          .dout = dout,
                          .dQ = dQ,
                          .dK = dK,
                          .dV = dV};
    size_t heads = (size_t)a->kv_heads, items = (size_t)a->batch * heads;
    size_t each = (backward_floats(a) + 15) / 16 * 16;
    float *place = cpu_scratch(q, CPU_SCRATCH_OP,
                               (size_t)q->dev->threads * each * sizeof(float));

    if (place == NULL)
        return -1;
#pragma omp parallel for num_threads(cpu_threads(q, items *TILE *TILE)) \
    schedule(dynamic, run_of_items(q, items))
    for (size_t n = 0; n < items; n++) {
        struct backward_tiles t =
            backward_place(a, place + (size_t)omp_get_thread_num() * each);

        backward_head(&x, &t, n / heads, n % heads);
    }
    return 0;
}

/* -- merge --------------------------------------------------------------- */

INLINE void merge_row(enum plait_dtype type, void *out, const void *out2,
                      size_t at, size_t D, float w1, float w2)
{
    for (size_t d = 0; d < D; d += VLEN) {
        size_t n = min(VLEN, D - d);

        vec_store(type, out, at + d, n,
                  vec_load(type, out, at + d, n) * w1 +
                      vec_load(type, out2, at + d, n) * w2);
    }
}

static int attention_merge(struct plait_queue *q, enum plait_dtype type,
                           const struct plait_attention *a, void *out,
                           float *lse, const void *out2, const float *lse2)
{
    size_t H = (size_t)a->q_heads, T = (size_t)a->q_len;
    size_t D = (size_t)a->head_dim, rows = (size_t)a->batch * H * T;

#pragma omp parallel for num_threads(cpu_threads(q, rows *D)) schedule(static)
    for (size_t r = 0; r < rows; r++) {
        size_t at = out_at(a, r / (H * T), r / T % H, r % T);
        float l1 = lse[r], l2 = lse2[r], max = l1 < l2 ? l2 : l1;
        float e1, e2, sum;

        if (l1 == -INFINITY && l2 == -INFINITY)
            continue; /* no key in either: 0 and -inf already */
        e1 = expf(l1 - max);
        e2 = expf(l2 - max);
        sum = e1 + e2;
        if (type == PLAIT_F32)
            merge_row(PLAIT_F32, out, out2, at, D, e1 / sum, e2 / sum);
        else if (type == PLAIT_BF16_T)
            merge_row(PLAIT_BF16_T, out, out2, at, D, e1 / sum, e2 / sum);
        else
            merge_row(PLAIT_FP16_T, out, out2, at, D, e1 / sum, e2 / sum);
        lse[r] = max + logf(sum);
    }
    return 0;
}

void CPU_NAME(cpu_fill_attention)(struct plait_ops *ops)
{
    ops->attention_forward = CPU_NAME(cpu_attention_forward);
    ops->attention_backward = CPU_NAME(cpu_attention_backward);
    ops->attention_merge = attention_merge;
}

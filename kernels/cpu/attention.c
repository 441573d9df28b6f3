/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* Attention in tiles of queries by keys (Dao et al., "FlashAttention"): the
 * scores of a tile live in L1 and are never stored. A tile's operands are
 * converted to fp32 and padded with zeros to whole vectors. */
#define TILE 64

#if VLEN == 16
#define WIDE 4 /* vectors of a row the inner loop keeps in registers */
#else
#define WIDE 2
#endif
#define HIGH 4 /* rows */

/* c[HIGH, width vectors] += a[HIGH, K] . b[K, ..]; element (i, k) of a lies
 * at i * row + k * col. */
INLINE void block(int width, float *c, size_t ldc, const float *a, size_t row,
                  size_t col, const float *b, size_t ldb, size_t K)
{
    vec sum[HIGH][WIDE];

    for (int i = 0; i < HIGH; i++)
        for (int j = 0; j < width; j++)
            sum[i][j] = vec_load(PLAIT_F32, c, (size_t)i * ldc +
                                 (size_t)j * VLEN, VLEN);
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

/* c[M,N] += a . b[K,N] with M a multiple of HIGH and N of VLEN */
static void product(float *c, size_t ldc, const float *a, size_t row,
                    size_t col, const float *b, size_t ldb, size_t M, size_t N,
                    size_t K)
{
    size_t j = 0;

    for (; j + WIDE * VLEN <= N; j += WIDE * VLEN)
        for (size_t i = 0; i < M; i += HIGH)
            block(WIDE, c + i * ldc + j, ldc, a + i * row, row, col, b + j,
                  ldb, K);
    for (; j < N; j += VLEN)
        for (size_t i = 0; i < M; i += HIGH)
            block(1, c + i * ldc + j, ldc, a + i * row, row, col, b + j, ldb,
                  K);
}

/* -- tiles -------------------------------------------------------------- */

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t padded(size_t n)
{
    return (n + VLEN - 1) / VLEN * VLEN;
}

/* dst [TILE, ld] = `rows` rows of x, `stride` apart, times s; 0 elsewhere */
INLINE void load_tile(enum plait_dtype type, float *dst, size_t ld,
                      const void *x, size_t at, size_t stride, size_t rows,
                      size_t D, float s)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t d = 0; d < D; d += VLEN)
            vec_store(PLAIT_F32, dst, i * ld + d, VLEN,
                      vec_load(type, x, at + i * stride + d, min(VLEN, D - d)) *
                          s);
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

INLINE void store_row(enum plait_dtype type, void *x, size_t at,
                      const float *src, size_t D, float s, int add)
{
    for (size_t d = 0; d < D; d += VLEN) {
        size_t n = min(VLEN, D - d);
        vec y = vec_load(PLAIT_F32, src, d, n) * s;

        if (add)
            y += vec_load(type, x, at + d, n);
        vec_store(type, x, at + d, n, y);
    }
}

static void store_any(enum plait_dtype type, void *x, size_t at,
                      const float *src, size_t D, float s, int add)
{
    if (type == PLAIT_F32)
        store_row(PLAIT_F32, x, at, src, D, s, add);
    else if (type == PLAIT_BF16_T)
        store_row(PLAIT_BF16_T, x, at, src, D, s, add);
    else
        store_row(PLAIT_FP16_T, x, at, src, D, s, add);
}

/* How many of the keys k0, k0 + 1, .. of the chunk query i sees. */
static size_t visible(const struct plait_attention *a, size_t i, size_t k0)
{
    int64_t n = a->q_pos + (int64_t)i - a->k_pos + 1 - (int64_t)k0;
    int64_t left = (int64_t)a->k_len - (int64_t)k0;

    if (n > left)
        n = left;
    return n > 0 ? (size_t)n : 0;
}

/* The operands of one op. */
struct attention {
    enum plait_dtype type;
    const struct plait_attention *a;
    const void *Q, *K, *V;
    void *out;
    float *lse;
    const void *dout;
    void *dQ, *dK, *dV;
};

static size_t q_at(const struct plait_attention *a, size_t b, size_t h,
                   size_t i)
{
    return (b * (size_t)a->q_len + i) * a->q_stride + h * (size_t)a->head_dim;
}

static size_t k_at(const struct plait_attention *a, size_t b, size_t h,
                   size_t j)
{
    return (b * (size_t)a->k_len + j) * a->kv_stride + h * (size_t)a->head_dim;
}

static size_t out_at(const struct plait_attention *a, size_t b, size_t h,
                     size_t i)
{
    return ((b * (size_t)a->q_len + i) * (size_t)a->q_heads + h) *
           (size_t)a->head_dim;
}

/* -- forward ------------------------------------------------------------ */

struct forward_tiles {
    float *q, *k, *kt, *v, *s, *out; /* k and v share their place */
    float max[TILE], sum[TILE];
};

static size_t forward_floats(size_t D)
{
    return 3 * TILE * padded(D) + padded(D) * TILE + TILE * TILE;
}

static struct forward_tiles forward_place(float *p, size_t D)
{
    size_t tile = TILE * padded(D);
    struct forward_tiles t = {.q = p, .k = p + tile, .v = p + tile,
                              .out = p + 2 * tile, .kt = p + 3 * tile,
                              .s = p + 4 * tile};

    return t;
}

/* One row of scores becomes e^(s - max); what was summed is rescaled. */
static void softmax_row(struct forward_tiles *t, size_t i, size_t n, size_t ld)
{
    float *s = t->s + i * TILE, *out = t->out + i * ld, old = t->max[i];
    vec largest = vec_set(-INFINITY), sum = {0};
    float max = old, keep;

    for (size_t j = 0; j < n; j += VLEN)
        for (size_t k = n - j; k < VLEN; k++)
            s[j + k] = -INFINITY;
    for (size_t j = 0; j < n; j += VLEN)
        largest = vec_max(largest, vec_load(PLAIT_F32, s, j, VLEN));
    for (size_t k = 0; k < VLEN; k++)
        max = max < largest[k] ? largest[k] : max;
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
    t->sum[i] = t->sum[i] * keep + vec_sum(sum);
    t->max[i] = max;
    if (keep != 1)
        for (size_t d = 0; d < ld; d += VLEN)
            vec_store(PLAIT_F32, out, d, VLEN,
                      vec_load(PLAIT_F32, out, d, VLEN) * keep);
}

static void forward_tile(const struct attention *x, struct forward_tiles *t,
                         size_t b, size_t h, size_t q0)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D);
    size_t kv = h / (size_t)(a->q_heads / a->kv_heads);
    size_t rows = min(TILE, (size_t)a->q_len - q0);
    size_t keys = visible(a, q0 + rows - 1, 0);

    load_any(x->type, t->q, ld, x->Q, q_at(a, b, h, q0), a->q_stride, rows, D,
             a->scale);
    memset(t->out, 0, TILE * ld * sizeof(float));
    for (size_t i = 0; i < TILE; i++) {
        t->max[i] = -INFINITY;
        t->sum[i] = 0;
    }
    for (size_t k0 = 0; k0 < keys; k0 += TILE) {
        size_t cols = min(TILE, (size_t)a->k_len - k0);

        load_any(x->type, t->k, ld, x->K, k_at(a, b, kv, k0), a->kv_stride,
                 cols, D, 1);
        transpose(t->kt, t->k, ld, D);
        memset(t->s, 0, TILE * TILE * sizeof(float));
        product(t->s, TILE, t->q, ld, 1, t->kt, TILE, TILE, TILE, D);
        for (size_t i = 0; i < rows; i++)
            softmax_row(t, i, min(TILE, visible(a, q0 + i, k0)), ld);
        load_any(x->type, t->v, ld, x->V, k_at(a, b, kv, k0), a->kv_stride,
                 cols, D, 1);
        product(t->out, ld, t->s, TILE, 1, t->v, ld, TILE, ld, TILE);
    }
    for (size_t i = 0; i < rows; i++) {
        float sum = t->sum[i];
        int none = t->max[i] == -INFINITY && sum == 0;

        store_any(x->type, x->out, out_at(a, b, h, q0 + i), t->out + i * ld, D,
                  none ? 0 : 1 / sum, 0);
        x->lse[(b * (size_t)a->q_heads + h) * (size_t)a->q_len + q0 + i] =
            none ? -INFINITY : t->max[i] + logf(sum);
    }
}

static int attention_forward(struct plait_queue *q, enum plait_dtype type,
                             const struct plait_attention *a, void *out,
                             float *lse, const void *Q, const void *K,
                             const void *V)
{
    struct attention x = {.type = type, .a = a, .Q = Q, .K = K, .V = V,
                          .out = out, .lse = lse};
    size_t D = (size_t)a->head_dim, H = (size_t)a->q_heads;
    size_t tiles = ((size_t)a->q_len + TILE - 1) / TILE;
    size_t items = (size_t)a->batch * H * tiles, each = forward_floats(D);
    float *place = cpu_scratch(q, CPU_SCRATCH_OP,
                               (size_t)q->dev->threads * each * sizeof(float));

    if (place == NULL)
        return -1;
#pragma omp parallel for num_threads(cpu_threads(q, items * TILE * TILE)) \
    schedule(dynamic)
    for (size_t n = 0; n < items; n++) {
        struct forward_tiles t = forward_place(
            place + (size_t)omp_get_thread_num() * each, D);

        forward_tile(&x, &t, n / (H * tiles), n / tiles % H, n % tiles * TILE);
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
        .q = p, .dout = p + n * ld, .dq = p + 2 * n * ld,
        .delta = p + 3 * n * ld, .k = tiles, .kt = tiles + tile,
        .vt = tiles + 2 * tile, .dk = tiles + 3 * tile,
        .dv = tiles + 4 * tile, .s = tiles + 5 * tile,
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
        load_any(x->type, t->dout + to, ld, x->dout, out_at(a, b, h, q0),
                 dense, rows, D, 1);
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

/* The tile of queries at `at` (i0 in its head) against the keys at k0. */
static void backward_tile(const struct attention *x, struct backward_tiles *t,
                          const float *lse, size_t at, size_t i0, size_t k0)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D);
    size_t rows = min(TILE, (size_t)a->q_len - i0);

    memset(t->s, 0, 2 * TILE * TILE * sizeof(float)); /* and dp */
    product(t->s, TILE, t->q + at * ld, ld, 1, t->kt, TILE, TILE, TILE, D);
    product(t->dp, TILE, t->dout + at * ld, ld, 1, t->vt, TILE, TILE, TILE, D);
    for (size_t i = 0; i < TILE; i++) {
        size_t n = i < rows ? min(TILE, visible(a, i0 + i, k0)) : 0;

        probabilities(t, i, n, a->scale, n > 0 ? lse[i0 + i] : 0,
                      t->delta[at + i]);
    }
    product(t->dv, ld, t->s, 1, TILE, t->dout + at * ld, ld, TILE, ld, TILE);
    product(t->dk, ld, t->dp, 1, TILE, t->q + at * ld, ld, TILE, ld, TILE);
    product(t->dq + at * ld, ld, t->dp, TILE, 1, t->k, ld, TILE, ld, TILE);
}

static void backward_keys(const struct attention *x, struct backward_tiles *t,
                          size_t b, size_t kv, size_t k0)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), tile = TILE * ld;
    size_t group = (size_t)(a->q_heads / a->kv_heads);
    size_t cols = min(TILE, (size_t)a->k_len - k0), Tq = (size_t)a->q_len;

    load_any(x->type, t->k, ld, x->V, k_at(a, b, kv, k0), a->kv_stride, cols,
             D, 1);
    transpose(t->vt, t->k, ld, D);
    load_any(x->type, t->k, ld, x->K, k_at(a, b, kv, k0), a->kv_stride, cols,
             D, 1);
    transpose(t->kt, t->k, ld, D);
    memset(t->dk, 0, 2 * tile * sizeof(float)); /* and dv */
    for (size_t g = 0; g < group; g++) {
        size_t h = kv * group + g;
        const float *lse = x->lse + (b * (size_t)a->q_heads + h) * Tq;

        for (size_t i0 = 0; i0 < Tq; i0 += TILE)
            if (visible(a, min(i0 + TILE, Tq) - 1, k0) > 0)
                backward_tile(x, t, lse, g * queries(a) + i0, i0, k0);
    }
    for (size_t j = 0; j < cols; j++) {
        size_t at = k_at(a, b, kv, k0 + j);

        store_any(x->type, x->dK, at, t->dk + j * ld, D, 1, 1);
        store_any(x->type, x->dV, at, t->dv + j * ld, D, 1, 1);
    }
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
        for (size_t i = 0; i < (size_t)a->q_len; i++)
            store_any(x->type, x->dQ, q_at(a, b, kv * group + g, i),
                      t->dq + (g * queries(a) + i) * ld, D, 1, 1);
}

/* Threads take whole key-value heads: no two add to the same gradient. */
static int attention_backward(struct plait_queue *q, enum plait_dtype type,
                              const struct plait_attention *a, void *dQ,
                              void *dK, void *dV, const void *dout,
                              const void *out, const float *lse, const void *Q,
                              const void *K, const void *V)
{
    struct attention x = {.type = type, .a = a, .Q = Q, .K = K, .V = V,
                          .out = (void *)out, .lse = (float *)lse,
                          .dout = dout, .dQ = dQ, .dK = dK, .dV = dV};
    size_t heads = (size_t)a->kv_heads, items = (size_t)a->batch * heads;
    size_t each = (backward_floats(a) + 15) / 16 * 16;
    float *place = cpu_scratch(q, CPU_SCRATCH_OP,
                               (size_t)q->dev->threads * each * sizeof(float));

    if (place == NULL)
        return -1;
#pragma omp parallel for num_threads(cpu_threads(q, items * TILE * TILE)) \
    schedule(dynamic)
    for (size_t n = 0; n < items; n++) {
        struct backward_tiles t = backward_place(
            a, place + (size_t)omp_get_thread_num() * each);

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
    ops->attention_forward = attention_forward;
    ops->attention_backward = attention_backward;
    ops->attention_merge = attention_merge;
}

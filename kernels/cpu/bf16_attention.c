/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/bf16.h"

/* Attention in bf16 by vdpbf16ps, in the tiles of attention.c. Scores, sums
 * and gradients are fp32 while they grow; the probabilities and their
 * gradients are rounded to bf16 to be multiplied again. Operands are packed
 * as words (bf16.h): by rows as they lie, by columns ("turned"), or two rows
 * into one ("paired") where the sum runs over rows. Rows that see few keys
 * have few, large probabilities, whose rounding would not average out: those
 * are "split" into the rounded values and what is left, each multiplied. */
#define HIGH 4 /* rows, and */
#define WIDE 4 /* vectors of columns in registers */
#define HALF (TILE / 2)

/* c[HIGH, width vectors] = (+= if add) a . b over n words; word (i, k) of a
 * lies at i * row + k * col, b is [n, ldb]. */
INLINE void block(int width, int add, float *c, size_t ldc, const word *a,
                  size_t row, size_t col, const uint32_t *b, size_t ldb,
                  size_t n)
{
    __m512 sum[HIGH][WIDE];

#pragma GCC unroll 4
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 4
        for (int j = 0; j < width; j++)
            sum[i][j] = add ? _mm512_loadu_ps(c + (size_t)i * ldc + j * VLEN)
                            : _mm512_setzero_ps();
    for (size_t k = 0; k < n; k++) {
        __m512bh y[WIDE];

#pragma GCC unroll 4
        for (int j = 0; j < width; j++)
            y[j] = (__m512bh)_mm512_loadu_si512(b + k * ldb + j * VLEN);
#pragma GCC unroll 4
        for (int i = 0; i < HIGH; i++) {
            __m512bh x =
                (__m512bh)_mm512_set1_epi32((int)a[(size_t)i * row + k * col]);

#pragma GCC unroll 4
            for (int j = 0; j < width; j++)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], y[j], x);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 4
        for (int j = 0; j < width; j++)
            _mm512_storeu_ps(c + (size_t)i * ldc + j * VLEN, sum[i][j]);
}

/* HIGH rows of c, N (a multiple of VLEN) columns */
INLINE void rows_product(int add, float *c, size_t ldc, const uint32_t *words,
                         size_t row, size_t col, const uint32_t *b, size_t ldb,
                         size_t N, size_t n)
{
    const word *a = (const word *)words;
    size_t j = 0;

    for (; j + WIDE * VLEN <= N; j += WIDE * VLEN)
        block(WIDE, add, c + j, ldc, a, row, col, b + j, ldb, n);
    if (j + 3 * VLEN == N)
        block(3, add, c + j, ldc, a, row, col, b + j, ldb, n);
    else if (j + 2 * VLEN == N)
        block(2, add, c + j, ldc, a, row, col, b + j, ldb, n);
    else if (j < N)
        block(1, add, c + j, ldc, a, row, col, b + j, ldb, n);
}

/* c = a . b */
static void product(float *c, size_t ldc, const uint32_t *a, size_t row,
                    const uint32_t *b, size_t ldb, size_t N, size_t n)
{
    rows_product(0, c, ldc, a, row, 1, b, ldb, N, n);
}

/* c += a . b */
static void product_add(float *c, size_t ldc, const uint32_t *a, size_t row,
                        size_t col, const uint32_t *b, size_t ldb, size_t N,
                        size_t n)
{
    rows_product(1, c, ldc, a, row, col, b, ldb, N, n);
}

/* -- packing ------------------------------------------------------------ */

static size_t words(size_t D)
{
    return (D + 1) / 2;
}

/* 32 values of a row, of which `n` are there */
INLINE __m512i values(const uint16_t *x, size_t n)
{
    return _mm512_maskz_loadu_epi16(
        n >= 32 ? 0xffffffff : (__mmask32)((1u << n) - 1), x);
}

/* dst [TILE, W] = `rows` rows of x, `stride` apart; 0 elsewhere */
static void load_rows(uint32_t *dst, const uint16_t *x, size_t stride,
                      size_t rows, size_t D)
{
    size_t W = words(D);

    for (size_t i = 0; i < rows; i++) {
        prefetch(PLAIT_BF16_T, x, 0, stride, i, rows, D);
        for (size_t k = 0; k < W; k += 16)
            _mm512_mask_storeu_epi32(dst + i * W + k, vec_first(W - k),
                                     values(x + i * stride + 2 * k, D - 2 * k));
    }
    memset(dst + rows * W, 0, (TILE - rows) * W * sizeof(*dst));
}

/* dst [W, TILE] = src [TILE, W] turned over */
static void turn_rows(uint32_t *dst, const uint32_t *src, size_t W)
{
    for (size_t j = 0; j < TILE; j += 16)
        for (size_t k = 0; k < W; k += 16) {
            __m512i r[16];

            for (size_t i = 0; i < 16; i++)
                r[i] = _mm512_maskz_loadu_epi32(vec_first(W - k),
                                                src + (j + i) * W + k);
            turn(r);
            for (size_t i = 0; i < min(16, W - k); i++)
                _mm512_storeu_si512(dst + (k + i) * TILE + j, r[i]);
        }
}

/* dst [HALF, ld] = the rows of src [TILE, W] two by two */
static void pair_rows(uint32_t *dst, size_t ld, const uint32_t *src, size_t D)
{
    const uint16_t *x = (const uint16_t *)src;
    size_t row = 2 * words(D);

    for (size_t i = 0; i < HALF; i++, x += 2 * row)
        for (size_t d = 0; d < ld; d += 16) {
            __m512i low = half_words(x + d, D - d);
            __m512i high = half_words(x + row + d, D - d);

            _mm512_storeu_si512(
                dst + i * ld + d,
                _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
}

/* -- probabilities ------------------------------------------------------ */

/* What rounding to bf16 takes away */
INLINE __m512 left(__m512 x)
{
    return x - vec_rounded(PLAIT_BF16_T, x);
}

/* Whether the tile of queries from i0 on is split, for all its keys. */
static int is_split(const struct plait_attention *a, size_t i0)
{
    return a->q_pos + (int64_t)i0 - a->k_pos < TILE;
}

#define LOG2E 1.44269504f
#define LN2 0.693147181f

/* -- forward ------------------------------------------------------------ */

/* A run of query tiles goes over the keys together, so that a tile of keys
 * is packed once for all of them. */
#define RUN 4

struct forward_tiles {
    float *out, *s;                       /* [RUN, TILE, ld], [HIGH, TILE] */
    uint32_t *q, *k, *kt, *v, *p;         /* q [RUN], p [2, HIGH, HALF] */
    float max[RUN][TILE], sum[RUN][TILE]; /* of 2^score */
};

static size_t forward_words(size_t D)
{
    size_t W = words(D), ld = padded(D);

    return RUN * TILE * (ld + W) + 2 * TILE * W + HALF * ld +
           HIGH * (TILE + 2 * HALF);
}

static struct forward_tiles forward_place(uint32_t *p, size_t D)
{
    size_t W = words(D), ld = padded(D);
    struct forward_tiles t = {.out = (float *)p};

    p += RUN * TILE * ld;
    t.s = (float *)p;
    t.p = p + HIGH * TILE;
    t.v = t.p + 2 * HIGH * HALF;
    t.q = t.v + HALF * ld;
    t.k = t.q + RUN * TILE * W;
    t.kt = t.k + TILE * W;
    return t;
}

/* Lane 4g + k of y[e] = lane 4g + e of x[k]: of HIGH rows, the columns */
INLINE void columns(__m512 y[HIGH], const __m512 x[HIGH])
{
    __m512 a = _mm512_unpacklo_ps(x[0], x[1]);
    __m512 b = _mm512_unpackhi_ps(x[0], x[1]);
    __m512 c = _mm512_unpacklo_ps(x[2], x[3]);
    __m512 d = _mm512_unpackhi_ps(x[2], x[3]);

    y[0] = _mm512_shuffle_ps(a, c, 0x44);
    y[1] = _mm512_shuffle_ps(a, c, 0xee);
    y[2] = _mm512_shuffle_ps(b, d, 0x44);
    y[3] = _mm512_shuffle_ps(b, d, 0xee);
}

/* In lanes k, 4 + k, .. the largest of x[k] */
INLINE __m512 rows_max(const __m512 x[HIGH])
{
    __m512 y[HIGH], m;

    columns(y, x);
    m = _mm512_max_ps(_mm512_max_ps(y[0], y[1]), _mm512_max_ps(y[2], y[3]));
    m = _mm512_max_ps(m, _mm512_shuffle_f32x4(m, m, 0x4e));
    return _mm512_max_ps(m, _mm512_shuffle_f32x4(m, m, 0xb1));
}

/* In lanes k, 4 + k, .. the sum of x[k] */
INLINE __m512 rows_sum(const __m512 x[HIGH])
{
    __m512 y[HIGH], sum;

    columns(y, x);
    sum = (y[0] + y[1]) + (y[2] + y[3]);
    sum += _mm512_shuffle_f32x4(sum, sum, 0x4e);
    return sum + _mm512_shuffle_f32x4(sum, sum, 0xb1);
}

/* Lane k everywhere */
INLINE __m512 row_of(__m512 x, int k)
{
    return _mm512_permutexvar_ps(_mm512_set1_epi32(k), x);
}

INLINE __m512 load_per_row(const float x[HIGH])
{
    return _mm512_broadcast_f32x4(_mm_loadu_ps(x));
}

INLINE void store_per_row(float x[HIGH], __m512 y)
{
    _mm_storeu_ps(x, _mm512_castps512_ps128(y));
}

/* HIGH rows of sums, each times a factor of its own */
static void scale_rows(float *out, size_t ld, __m512 by)
{
    for (int k = 0; k < HIGH; k++, out += ld)
        for (size_t d = 0; d < ld; d += VLEN)
            _mm512_storeu_ps(out + d, _mm512_loadu_ps(out + d) * row_of(by, k));
}

/* The scores of rows i .., of which row i + k sees seen[k] and none more than
 * n, become 2^(s scale - max) in bf16, and what that leaves; what was summed
 * is rescaled. The rows go together because each waits for itself. */
static void softmax_rows(struct forward_tiles *t, size_t r, size_t i,
                         const size_t seen[HIGH], size_t n, int split,
                         float scale, size_t ld)
{
    __m512 x[TILE / VLEN][HIGH], max[HIGH], sum[HIGH], from, keep;
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 old = load_per_row(&t->max[r][i]), all;

    for (int k = 0; k < HIGH; k++) {
        max[k] = none;
        sum[k] = _mm512_setzero_ps();
    }
    for (size_t j = 0; j < n; j += VLEN)
#pragma GCC unroll 4
        for (size_t k = 0; k < HIGH; k++) {
            size_t keys = seen[k] > j ? seen[k] - j : 0;
            __m512 *y = &x[j / VLEN][k];

            *y = _mm512_mask_mul_ps(none, vec_first(keys),
                                    _mm512_loadu_ps(t->s + k * TILE + j),
                                    _mm512_set1_ps(scale));
            max[k] = _mm512_max_ps(*y, max[k]);
        }
    all = _mm512_max_ps(rows_max(max), old);
    /* Rows that have seen no key yet: nothing minus anything */
    from = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(all, none, _CMP_NEQ_OQ), all);
    keep = exp2_near(old - from);
    for (int k = 0; k < HIGH; k++)
        max[k] = row_of(from, k);
    for (size_t j = 0; j < n; j += VLEN)
#pragma GCC unroll 4
        for (size_t k = 0; k < HIGH; k++) {
            __m512 e = exp2_near(x[j / VLEN][k] - max[k]);

            vec_store(PLAIT_BF16_T, t->p + k * HALF, j, VLEN, e);
            if (split)
                vec_store(PLAIT_BF16_T, t->p + (HIGH + k) * HALF, j, VLEN,
                          left(e));
            sum[k] += e;
        }
    store_per_row(&t->max[r][i], all);
    store_per_row(&t->sum[r][i],
                  load_per_row(&t->sum[r][i]) * keep + rows_sum(sum));
    if (_mm512_cmp_ps_mask(keep, _mm512_set1_ps(1), _CMP_NEQ_UQ) != 0)
        scale_rows(t->out + (r * TILE + i) * ld, ld, keep);
}

/* Tile r of the run, whose rows see the keys of `w`. */
static void forward_tile(struct forward_tiles *t, size_t r, size_t rows,
                         const struct window *w, int split, float scale,
                         size_t D)
{
    size_t ld = padded(D), W = words(D);

    for (size_t i = 0; i < rows; i += HIGH) {
        size_t last = min(i + HIGH, rows) - 1, n = visible(w, last);
        size_t seen[HIGH];
        float *out = t->out + (r * TILE + i) * ld;

        if (n == 0)
            continue;
        product(t->s, TILE, t->q + (r * TILE + i) * W, W, t->kt, TILE,
                padded(n), W);
        for (size_t k = 0; k < HIGH; k++)
            seen[k] = i + k <= last ? visible(w, i + k) : 0;
        softmax_rows(t, r, i, seen, n, split, scale, ld);
        product_add(out, ld, t->p, HALF, 1, t->v, ld, ld, words(n));
        if (split)
            product_add(out, ld, t->p + HIGH * HALF, HALF, 1, t->v, ld, ld,
                        words(n));
    }
}

static void forward_start(const struct attention *x, struct forward_tiles *t,
                          size_t b, size_t h, size_t q0, size_t rows)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim;

    for (size_t r = 0; r * TILE < rows; r++)
        load_rows(t->q + r * TILE * words(D),
                  (const uint16_t *)x->Q + q_at(a, b, h, q0 + r * TILE),
                  a->q_stride, min(TILE, rows - r * TILE), D);
    memset(t->out, 0, RUN * TILE * padded(D) * sizeof(float));
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
            _mm512_storeu_ps(t->out + i * ld + d,
                             _mm512_loadu_ps(t->out + i * ld + d) * s);
        lse[i] = none ? -INFINITY : max * LN2 + logf(sum);
    }
    store_any(PLAIT_BF16_T, x->out, out_at(a, b, h, q0), H * D, t->out, ld,
              rows, D, 0);
}

static void forward_run(const struct attention *x, struct forward_tiles *t,
                        size_t b, size_t h, size_t q0)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim;
    size_t kv = h / (size_t)(a->q_heads / a->kv_heads);
    size_t rows = min(RUN * TILE, (size_t)a->q_len - q0);

    forward_start(x, t, b, h, q0, rows);
    for (size_t k0 = 0; k0 < (size_t)a->k_len; k0 += TILE) {
        struct window w = window_at(a, q0, k0);
        size_t at = k_at(a, b, kv, k0);

        if (visible(&w, rows - 1) == 0)
            break;
        load_rows(t->k, (const uint16_t *)x->K + at, a->kv_stride, w.cols, D);
        turn_rows(t->kt, t->k, words(D));
        load_rows(t->k, (const uint16_t *)x->V + at, a->kv_stride, w.cols, D);
        pair_rows(t->v, padded(D), t->k, D);
        for (size_t r = 0; r * TILE < rows; r++, w.seen += TILE)
            forward_tile(t, r, min(TILE, rows - r * TILE), &w,
                         is_split(a, q0 + r * TILE), a->scale * LOG2E, D);
    }
    forward_finish(x, t, b, h, q0, rows);
}

static int attention_forward(struct plait_queue *q, enum plait_dtype type,
                             const struct plait_attention *a, void *out,
                             float *lse, const void *Q, const void *K,
                             const void *V)
{
    struct attention x = {
        .a = a, .Q = Q, .K = K, .V = V, .out = out, .lse = lse};
    size_t D = (size_t)a->head_dim, H = (size_t)a->q_heads;
    size_t runs = ((size_t)a->q_len + RUN * TILE - 1) / (RUN * TILE);
    size_t items = (size_t)a->batch * H * runs;
    size_t each = (forward_words(D) + 15) / 16 * 16;
    uint32_t *place;

    if (type != PLAIT_BF16_T)
        return CPU_NAME(cpu_attention_forward)(q, type, a, out, lse, Q, K, V);
    place = cpu_scratch(q, CPU_SCRATCH_OP,
                        (size_t)q->dev->threads * each * sizeof(*place));
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
    float *dq, *delta;                 /* [group, queries, ..] */
    uint32_t *q, *dout;                /* the same, by rows, */
    uint32_t *q_pairs, *dout_pairs;    /* and paired */
    float *dk, *dv;                    /* tiles */
    uint32_t *k, *kt, *vt, *k_pairs;   /* tiles */
    float *s, *dp;                     /* [HIGH, TILE] */
    uint32_t *ds, *p_pairs, *ds_pairs; /* [2, HIGH, HALF], and twice
                                          [2, HALF, TILE] */
};

static size_t queries(const struct plait_attention *a)
{
    return ((size_t)a->q_len + TILE - 1) / TILE * TILE;
}

static size_t backward_words(const struct plait_attention *a)
{
    size_t W = words((size_t)a->head_dim), ld = padded((size_t)a->head_dim);
    size_t n = (size_t)(a->q_heads / a->kv_heads) * queries(a);

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
    size_t W = words((size_t)a->head_dim), ld = padded((size_t)a->head_dim);
    size_t n = (size_t)(a->q_heads / a->kv_heads) * queries(a);
    struct backward_tiles t;

    t.dq = (float *)take(&p, n * ld);
    t.q_pairs = take(&p, n / 2 * ld);
    t.dout_pairs = take(&p, n / 2 * ld);
    t.dk = (float *)take(&p, TILE * ld);
    t.dv = (float *)take(&p, TILE * ld);
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
static void load_queries(const struct attention *x, struct backward_tiles *t,
                         size_t b, size_t h, size_t at)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), W = words(D);
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

            prefetch(PLAIT_BF16_T, x->out, from, dense, i, rows, D);
            for (size_t d = 0; d < D; d += VLEN)
                sum += vec_load(PLAIT_BF16_T, t->dout + (at + i) * W, d,
                                min(VLEN, D - d)) *
                       vec_load(PLAIT_BF16_T, x->out, from + i * dense + d,
                                min(VLEN, D - d));
            t->delta[at + i] = _mm512_reduce_add_ps(sum);
        }
        memset(t->dq + at * ld, 0, TILE * ld * sizeof(float));
    }
}

/* Two rows of 16 numbers as words of one pair of rows, in bf16 */
INLINE void store_pair(uint32_t *dst, __m512 low, __m512 high)
{
    __m512i l = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
    __m512i h = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));

    _mm512_storeu_si512(dst, _mm512_or_si512(l, _mm512_slli_epi32(h, 16)));
}

/* What the probabilities of one row are made from; n keys are seen. */
struct row {
    const float *s, *dp;
    size_t n;
    float lse, delta, scale; /* lse in base 2 */
};

/* p = probabilities of keys j .., d = gradients of their scores */
INLINE void probabilities(const struct row *r, size_t j, __m512 *p, __m512 *d)
{
    __mmask16 seen = vec_first(r->n > j ? r->n - j : 0);
    __m512 x = _mm512_loadu_ps(r->s + j) * (r->scale * LOG2E) - r->lse;

    *p = _mm512_maskz_mov_ps(seen, exp2_near(x));
    *d = _mm512_maskz_mul_ps(seen, *p * r->scale,
                             _mm512_loadu_ps(r->dp + j) - r->delta);
}

/* Rows i and i + 1 of a tile, of a block that sees at most n keys; p and d
 * are those rows' pairs, and ds is row i. */
INLINE void store_rows(const struct row r[2], size_t n, int split,
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
        store_pair(p_pairs + HALF * TILE + j, left(p[0]), left(p[1]));
        store_pair(ds_pairs + HALF * TILE + j, left(d[0]), left(d[1]));
        vec_store(PLAIT_BF16_T, ds + HIGH * HALF, j, VLEN, left(d[0]));
        vec_store(PLAIT_BF16_T, ds + (HIGH + 1) * HALF, j, VLEN, left(d[1]));
    }
}

static void probability_rows(struct backward_tiles *t, size_t i, size_t n,
                             int split, const struct row r[2])
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

/* Rows i .. of the tile of queries at `at`: probabilities, their gradients,
 * and dq. */
static void backward_rows(struct backward_tiles *t, const float *lse, size_t at,
                          size_t i, size_t rows, const struct window *w,
                          int split, float scale, size_t D)
{
    size_t ld = padded(D), W = words(D);
    size_t last = min(i + HIGH, rows) - 1, n = visible(w, last);

    if (n == 0)
        return;
    product(t->s, TILE, t->q + (at + i) * W, W, t->kt, TILE, padded(n), W);
    product(t->dp, TILE, t->dout + (at + i) * W, W, t->vt, TILE, padded(n), W);
    for (size_t k = i; k < i + HIGH; k += 2) {
        struct row r[2];

        for (size_t e = 0; e < 2; e++) {
            size_t seen = k + e <= last ? visible(w, k + e) : 0;

            r[e] = (struct row){
                .s = t->s + (k + e) % HIGH * TILE,
                .dp = t->dp + (k + e) % HIGH * TILE,
                .n = seen,
                .lse = seen > 0 ? lse[k + e] * LOG2E : 0,
                .delta = seen > 0 ? t->delta[at + k + e] : 0,
                .scale = scale,
            };
        }
        probability_rows(t, k, n, split, r);
    }
    for (int k = 0; k <= split; k++)
        product_add(t->dq + (at + i) * ld, ld, t->ds + k * HIGH * HALF, HALF, 1,
                    t->k_pairs, ld, ld, words(n));
}

/* dk and dv of HIGH keys from j on, from `n` pairs of queries at `at` on */
static void backward_columns(struct backward_tiles *t, size_t at, size_t pair,
                             size_t n, size_t j, int split, size_t ld)
{
    size_t from = (at / 2 + pair) * ld;

    for (int k = 0; k <= split; k++) {
        size_t a = ((size_t)k * HALF + pair) * TILE + j;

        product_add(t->dv + j * ld, ld, t->p_pairs + a, 1, TILE,
                    t->dout_pairs + from, ld, ld, n);
        product_add(t->dk + j * ld, ld, t->ds_pairs + a, 1, TILE,
                    t->q_pairs + from, ld, ld, n);
    }
}

/* The tile of queries at `at`, whose rows see the keys of `w`. */
static void backward_tile(struct backward_tiles *t, const float *lse, size_t at,
                          size_t rows, const struct window *w, int split,
                          float scale, size_t D)
{
    for (size_t i = 0; i < rows; i += HIGH)
        backward_rows(t, lse, at, i, rows, w, split, scale, D);
    for (size_t j = 0; j < w->cols; j += HIGH) {
        size_t pair = first_query(w, j, rows) / 2;

        backward_columns(t, at, pair, words(rows) - pair, j, split, padded(D));
    }
}

static void load_keys(const struct attention *x, struct backward_tiles *t,
                      size_t at, size_t cols)
{
    size_t D = (size_t)x->a->head_dim, W = words(D), ld = padded(D);

    load_rows(t->k, (const uint16_t *)x->V + at, x->a->kv_stride, cols, D);
    turn_rows(t->vt, t->k, W);
    load_rows(t->k, (const uint16_t *)x->K + at, x->a->kv_stride, cols, D);
    turn_rows(t->kt, t->k, W);
    pair_rows(t->k_pairs, ld, t->k, D);
    memset(t->dk, 0, TILE * ld * sizeof(float));
    memset(t->dv, 0, TILE * ld * sizeof(float));
}

static void backward_keys(const struct attention *x, struct backward_tiles *t,
                          size_t b, size_t kv, size_t k0)
{
    const struct plait_attention *a = x->a;
    size_t D = (size_t)a->head_dim, ld = padded(D), at = k_at(a, b, kv, k0);
    size_t group = (size_t)(a->q_heads / a->kv_heads);
    size_t cols = min(TILE, (size_t)a->k_len - k0), Tq = (size_t)a->q_len;

    load_keys(x, t, at, cols);
    for (size_t g = 0; g < group; g++) {
        size_t h = kv * group + g;
        const float *lse = x->lse + (b * (size_t)a->q_heads + h) * Tq;

        for (size_t i0 = 0; i0 < Tq; i0 += TILE) {
            struct window w = window_at(a, i0, k0);
            size_t rows = min(TILE, Tq - i0);

            if (visible(&w, rows - 1) > 0)
                backward_tile(t, lse + i0, g * queries(a) + i0, rows, &w,
                              is_split(a, i0), a->scale, D);
        }
    }
    store_any(PLAIT_BF16_T, x->dK, at, a->kv_stride, t->dk, ld, cols, D,
              !a->zeroed);
    store_any(PLAIT_BF16_T, x->dV, at, a->kv_stride, t->dv, ld, cols, D,
              !a->zeroed);
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
        store_any(PLAIT_BF16_T, x->dQ, q_at(a, b, kv * group + g, 0),
                  a->q_stride, t->dq + g * queries(a) * ld, ld,
                  (size_t)a->q_len, D, !a->zeroed);
}

/* Threads take whole key-value heads: no two add to the same gradient. */
static int attention_backward(struct plait_queue *q, enum plait_dtype type,
                              const struct plait_attention *a, void *dQ,
                              void *dK, void *dV, const void *dout,
                              const void *out, const float *lse, const void *Q,
                              const void *K, const void *V)
{
    struct attention x = {.a = a,
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
    size_t each = (backward_words(a) + 15) / 16 * 16;
    uint32_t *place;

    if (type != PLAIT_BF16_T)
        return CPU_NAME(cpu_attention_backward)(q, type, a, dQ, dK, dV, dout,
                                                out, lse, Q, K, V);
    place = cpu_scratch(q, CPU_SCRATCH_OP,
                        (size_t)q->dev->threads * each * sizeof(*place));
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

void cpu_fill_bf16_attention(struct plait_ops *ops)
{
    ops->attention_forward = attention_forward;
    ops->attention_backward = attention_backward;
}

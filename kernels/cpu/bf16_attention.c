/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass of attention in bf16 by AVX512-BF16's dot products: two
 * values of a row at a time, sums in fp32. */
#include "kernels/cpu/bf16_attention_tiles.h"

struct forward_tiles {
    struct forward_rows rows;     /* exponentials are powers of 2 */
    float *s;                     /* [HIGH, TILE] */
    uint32_t *q, *k, *kt, *v, *p; /* q [RUN], p [2, HIGH, HALF] */
};

static size_t forward_words(size_t D)
{
    size_t W = words_of(D), ld = padded(D);

    return RUN * TILE * (ld + W) + 2 * TILE * W + HALF * ld +
           HIGH * (TILE + 2 * HALF);
}

static struct forward_tiles forward_place(uint32_t *p, size_t D)
{
    size_t W = words_of(D), ld = padded(D);
    struct forward_tiles t = {.rows.out = (float *)p};

    p += RUN * TILE * ld;
    t.s = (float *)p;
    t.p = p + HIGH * TILE;
    t.v = t.p + 2 * HIGH * HALF;
    t.q = t.v + HALF * ld;
    t.k = t.q + RUN * TILE * W;
    t.kt = t.k + TILE * W;
    return t;
}

/* Lane 4g + k of y[e] = lane 4g + e of x[k]: transposes HIGH rows within each
 * 128 bits. */
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

/* Lanes k, 4 + k, .. = the largest lane of x[k]. */
INLINE __m512 rows_max(const __m512 x[HIGH])
{
    __m512 y[HIGH], m;

    columns(y, x);
    m = _mm512_max_ps(_mm512_max_ps(y[0], y[1]), _mm512_max_ps(y[2], y[3]));
    m = _mm512_max_ps(m, _mm512_shuffle_f32x4(m, m, 0x4e));
    return _mm512_max_ps(m, _mm512_shuffle_f32x4(m, m, 0xb1));
}

/* Lanes k, 4 + k, .. = the sum of the lanes of x[k]. */
INLINE __m512 rows_sum(const __m512 x[HIGH])
{
    __m512 y[HIGH], sum;

    columns(y, x);
    sum = (y[0] + y[1]) + (y[2] + y[3]);
    sum += _mm512_shuffle_f32x4(sum, sum, 0x4e);
    return sum + _mm512_shuffle_f32x4(sum, sum, 0xb1);
}

/* All lanes = lane k. */
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

/* Multiplies HIGH rows of sums, each by its own factor. */
static void scale_rows(float *out, size_t ld, __m512 by)
{
    for (int k = 0; k < HIGH; k++, out += ld)
        for (size_t d = 0; d < ld; d += VLEN)
            _mm512_storeu_ps(out + d, _mm512_loadu_ps(out + d) * row_of(by, k));
}

/* Which keys HIGH rows see: row k sees from[k] .. seen[k] - 1, and none of them
 * keys from n on. */
struct rows_keys {
    size_t from[HIGH], seen[HIGH], n;
};

/* Turns the scores of rows row .. row + HIGH - 1 into p = 2^(s scale - max) in
 * bf16, and with `split` also into the rounding errors of p; rescales the sums
 * so far to the new maximum. HIGH rows are computed at once to hide latency,
 * since the steps of a single row depend on each other. */
static void softmax_rows(struct forward_tiles *t, size_t row,
                         const struct rows_keys *keys, int split, float scale,
                         size_t ld)
{
    const size_t *from = keys->from, *seen = keys->seen, n = keys->n;
    __m512 x[TILE / VLEN][HIGH], max[HIGH], sum[HIGH], base, keep;
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 old = load_per_row(&t->rows.max[row]), all;

    for (int k = 0; k < HIGH; k++) {
        max[k] = none;
        sum[k] = _mm512_setzero_ps();
    }
    for (size_t j = 0; j < n; j += VLEN)
#pragma GCC unroll 4
        for (size_t k = 0; k < HIGH; k++) {
            __m512 *y = &x[j / VLEN][k];

            *y = _mm512_mask_mul_ps(none, seen_keys(from[k], seen[k], j),
                                    _mm512_loadu_ps(t->s + k * TILE + j),
                                    _mm512_set1_ps(scale));
            max[k] = _mm512_max_ps(*y, max[k]);
        }
    all = _mm512_max_ps(rows_max(max), old);
    /* -inf - -inf is NaN: rows that have seen no key yet subtract 0. */
    base = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(all, none, _CMP_NEQ_OQ), all);
    keep = exp2_near(old - base);
    for (int k = 0; k < HIGH; k++)
        max[k] = row_of(base, k);
    for (size_t j = 0; j < n; j += VLEN)
#pragma GCC unroll 4
        for (size_t k = 0; k < HIGH; k++) {
            __m512 e = exp2_near(x[j / VLEN][k] - max[k]);

            vec_store(PLAIT_BF16_T, t->p + k * HALF, j, VLEN, e);
            if (split)
                vec_store(PLAIT_BF16_T, t->p + (HIGH + k) * HALF, j, VLEN,
                          rounding_error(e));
            sum[k] += e;
        }
    store_per_row(&t->rows.max[row], all);
    store_per_row(&t->rows.sum[row],
                  load_per_row(&t->rows.sum[row]) * keep + rows_sum(sum));
    if (_mm512_cmp_ps_mask(keep, _mm512_set1_ps(1), _CMP_NEQ_UQ) != 0)
        scale_rows(t->rows.out + row * ld, ld, keep);
}

static void forward_tile(const struct attention *x, void *tiles, size_t r,
                         size_t i0, size_t rows, const struct window *w)
{
    struct forward_tiles *t = tiles;
    size_t D = (size_t)x->a->head_dim, ld = padded(D), W = words_of(D);
    int split = is_split(x->a, i0, rows, w);

    for (size_t i = 0; i < rows; i += HIGH) {
        size_t last = min(i + HIGH, rows) - 1, row = r * TILE + i;
        struct rows_keys keys = {.n = visible(w, last)};

        if (keys.n <= hidden(w, i))
            continue;
        product(t->s, t->q + row * W, W, t->kt, padded(keys.n), W);
        if (x->a->cap > 0)
            cap_rows(x->a, x->a->scale, t->s, HIGH, keys.n);
        for (size_t k = 0; k < HIGH; k++) {
            keys.from[k] = i + k <= last ? hidden(w, i + k) : 0;
            keys.seen[k] = i + k <= last ? visible(w, i + k) : 0;
        }
        softmax_rows(t, row, &keys, split, x->a->scale * LOG2E, ld);
        for (size_t k = 0; k <= (size_t)split; k++)
            product_add(t->rows.out + row * ld, t->p + k * HIGH * HALF,
                        (struct right){t->v, ld}, words_of(keys.n));
    }
}

static void forward_queries(const struct attention *x, void *tiles, size_t at,
                            size_t rows)
{
    struct forward_tiles *t = tiles;
    size_t D = (size_t)x->a->head_dim, stride = x->a->q_stride;

    for (size_t i = 0; i < rows; i += TILE)
        load_rows(t->q + i * words_of(D),
                  (const uint16_t *)x->Q + at + i * stride, stride,
                  min(TILE, rows - i), D);
}

static void forward_keys(const struct attention *x, void *tiles, size_t at,
                         size_t cols)
{
    struct forward_tiles *t = tiles;
    size_t D = (size_t)x->a->head_dim, stride = x->a->kv_stride;

    load_rows(t->k, (const uint16_t *)x->K + at, stride, cols, D);
    transpose_rows(t->kt, t->k, words_of(D));
    load_rows(t->k, (const uint16_t *)x->V + at, stride, cols, D);
    pair_rows(t->v, padded(D), t->k, D);
}

static void forward_item(const struct attention *x, void *place, size_t n)
{
    static const struct forward_steps steps = {
        .load_queries = forward_queries,
        .load_keys = forward_keys,
        .add_tile = forward_tile,
        .log_base = LN2,
    };
    struct forward_tiles t = forward_place(place, (size_t)x->a->head_dim);

    forward_run(x, &steps, &t, n);
}

static int attention_forward(struct plait_queue *q,
                             const struct plait_attention_forward *f)
{
    struct attention x = forward_operands(f);

    /* What is dropped is dropped from tiles in fp32. */
    if (x.type != PLAIT_BF16_T || cpu_few_queries(&x) || x.drops->keys != NULL)
        return CPU_NAME(cpu_attention_forward)(q, f);
    return for_each_item(
        q, &x, forward_items(x.a),
        forward_words((size_t)x.a->head_dim) * sizeof(uint32_t), forward_item);
}

void cpu_fill_bf16_attention(struct plait_ops *ops)
{
    ops->attention_forward = attention_forward;
    ops->attention_backward = cpu_bf16_attention_backward;
}

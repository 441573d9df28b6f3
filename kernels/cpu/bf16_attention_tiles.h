/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_BF16_ATTENTION_TILES_H
#define PLAIT_KERNELS_CPU_BF16_ATTENTION_TILES_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/bf16.h"

/* Tiles of attention in bf16 with vdpbf16ps. Scores, sums and gradients are
 * accumulated in fp32; the probabilities and their gradients are rounded to
 * bf16 for the next product. Operands are packed in words (bf16.h): by rows as
 * in memory, transposed, or two rows in one ("paired") where the sum runs over
 * rows. Rows that see few keys have few and large probabilities, whose rounding
 * errors would not average out: such rows are "split" into rounded values and
 * rounding errors, and both are multiplied. */
#define HIGH 4 /* rows and */
#define WIDE 4 /* vectors of columns in registers */
#define HALF (TILE / 2)

/* Not inlined, because the loops are large and there are several callers. */
#define NOINLINE static __attribute__((noinline))

/* The operands of a product; its result is in struct sums. */
struct left {
    const uint32_t *x; /* word (i, k) lies at i * row + k * col */
    size_t row, col;
};

struct right {
    const uint32_t *x; /* [n, ld] */
    size_t ld;
};

/* The operand from column `col` on. */
INLINE struct right right_at(struct right b, size_t col)
{
    return (struct right){b.x + col, b.ld};
}

/* c[HIGH, width vectors] = (+= if add) a . b over n words */
INLINE void multiply_block(int width, int add, struct sums c, struct left a,
                           struct right b, size_t n)
{
    const word *words = (const word *)a.x;
    __m512 sum[HIGH][WIDE];

#pragma GCC unroll 4
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 4
        for (int j = 0; j < width; j++)
            sum[i][j] = add ? _mm512_loadu_ps(c.x + (size_t)i * c.ld + j * VLEN)
                            : _mm512_setzero_ps();
    for (size_t k = 0; k < n; k++) {
        __m512bh y[WIDE];

#pragma GCC unroll 4
        for (int j = 0; j < width; j++)
            y[j] = (__m512bh)_mm512_loadu_si512(b.x + k * b.ld + j * VLEN);
#pragma GCC unroll 4
        for (int i = 0; i < HIGH; i++) {
            __m512bh x = (__m512bh)_mm512_set1_epi32(
                (int)words[(size_t)i * a.row + k * a.col]);

#pragma GCC unroll 4
            for (int j = 0; j < width; j++)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], y[j], x);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 4
        for (int j = 0; j < width; j++)
            _mm512_storeu_ps(c.x + (size_t)i * c.ld + j * VLEN, sum[i][j]);
}

/* HIGH rows of c, N (a multiple of VLEN) columns */
INLINE void rows_product(int add, struct sums c, struct left a, struct right b,
                         size_t N, size_t n)
{
    size_t j = 0;

    for (; j + WIDE * VLEN <= N; j += WIDE * VLEN)
        multiply_block(WIDE, add, sums_at(c, j), a, right_at(b, j), n);
    if (j + 3 * VLEN == N)
        multiply_block(3, add, sums_at(c, j), a, right_at(b, j), n);
    else if (j + 2 * VLEN == N)
        multiply_block(2, add, sums_at(c, j), a, right_at(b, j), n);
    else if (j < N)
        multiply_block(1, add, sums_at(c, j), a, right_at(b, j), n);
}

/* c [HIGH, TILE] = a . b [n, TILE]; word (i, k) of a: i * row + k */
NOINLINE void product(float *c, const uint32_t *a, size_t row,
                      const uint32_t *b, size_t N, size_t n)
{
    rows_product(0, (struct sums){c, TILE}, (struct left){a, row, 1},
                 (struct right){b, TILE}, N, n);
}

/* c [HIGH, b.ld] += a [HIGH, HALF] . b [n, b.ld] */
NOINLINE void product_add(float *c, const uint32_t *a, struct right b, size_t n)
{
    rows_product(1, (struct sums){c, b.ld}, (struct left){a, HALF, 1}, b, b.ld,
                 n);
}

/* -- packing ------------------------------------------------------------ */

static inline size_t words_of(size_t D)
{
    return (D + 1) / 2;
}

/* 32 values of a row, of which only the first n exist; the others are 0. */
INLINE __m512i values(const uint16_t *x, size_t n)
{
    return _mm512_maskz_loadu_epi16(
        n >= 32 ? 0xffffffff : (__mmask32)((1u << n) - 1), x);
}

/* dst [TILE, W] = `rows` rows of x, `stride` apart; the rest is 0. */
static inline void load_rows(uint32_t *dst, const uint16_t *x, size_t stride,
                             size_t rows, size_t D)
{
    size_t W = words_of(D);

    for (size_t i = 0; i < rows; i++) {
        prefetch(PLAIT_BF16_T, x, (struct head_rows){0, stride, rows, D}, i);
        for (size_t k = 0; k < W; k += 16)
            _mm512_mask_storeu_epi32(dst + i * W + k, vec_first(W - k),
                                     values(x + i * stride + 2 * k, D - 2 * k));
    }
    memset(dst + rows * W, 0, (TILE - rows) * W * sizeof(*dst));
}

/* dst [W, TILE] = src [TILE, W] transposed */
static inline void transpose_rows(uint32_t *dst, const uint32_t *src, size_t W)
{
    for (size_t j = 0; j < TILE; j += 16)
        for (size_t k = 0; k < W; k += 16) {
            __m512i r[16];

            for (size_t i = 0; i < 16; i++)
                r[i] = _mm512_maskz_loadu_epi32(vec_first(W - k),
                                                src + (j + i) * W + k);
            transpose_words(r);
            for (size_t i = 0; i < min(16, W - k); i++)
                _mm512_storeu_si512(dst + (k + i) * TILE + j, r[i]);
        }
}

/* dst [HALF, ld] = the rows of src [TILE, W] in pairs. */
static inline void pair_rows(uint32_t *dst, size_t ld, const uint32_t *src,
                             size_t D)
{
    const uint16_t *x = (const uint16_t *)src;
    size_t row = 2 * words_of(D);

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

/* The part of x that is lost by rounding to bf16. */
INLINE __m512 rounding_error(__m512 x)
{
    return x - vec_rounded(PLAIT_BF16_T, x);
}

/* Whether the tile of queries from i0 on is split: some of its queries see few
 * keys, because the keys or their document begin shortly before. */
static inline int is_split(const struct plait_attention *a, size_t i0,
                           size_t rows, const struct window *w)
{
    int64_t pos = a->q_pos + (int64_t)i0;

    return pos - a->k_pos < TILE ||
           (w->starts != NULL && pos - w->starts[rows - 1] < TILE);
}

/* Of the lanes for keys j and following, those of keys from .. n - 1. */
INLINE __mmask16 seen_keys(size_t from, size_t n, size_t j)
{
    return vec_first(n > j ? n - j : 0) & ~vec_first(from > j ? from - j : 0);
}

#define LOG2E 1.44269504f
#define LN2 0.693147181f

#endif

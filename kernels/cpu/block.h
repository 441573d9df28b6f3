/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_BLOCK_H
#define PLAIT_KERNELS_CPU_BLOCK_H

#include "kernels/cpu/bf16.h"

/* What the products of a linear layer are made of where the processor has
 * AVX-512 and AVX512-BF16, in fp32 and bf16: a block of the result in
 * registers, and what packs the operand whose columns it takes in vectors.
 * A word (bf16.h) is one value in fp32 and two neighbours in k in bf16, so
 * that both types do the same but for one instruction. Blocks follow Goto
 * and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
 * (2008). `type` is a constant wherever these are used. */
#define HIGH 8              /* rows, and */
#define WIDE 3              /* vectors of columns in registers */
#define PANEL (WIDE * VLEN) /* columns */
#define LINE 16             /* words of a cache line */
#define AHEAD 128           /* words: where the packers prefetch */

static inline size_t over(size_t n, size_t d)
{
    return (n + d - 1) / d;
}

/* Values of k in a word */
INLINE size_t values(enum plait_dtype type)
{
    return type == PLAIT_F32 ? 1 : 2;
}

/* Whether N rows, summed over K, are best taken in blocks: few are not worth
 * the packing of a weight, in fp32, where the library has a way for them. */
static inline int has_blocks(enum plait_dtype type, size_t N, size_t K)
{
    if (type == PLAIT_F32)
        return N >= 32 && K > 0;
    return type == PLAIT_BF16_T && K > 0 && K % 2 == 0;
}

/* p + i values */
INLINE const void *at(enum plait_dtype type, const void *p, size_t i)
{
    return (const char *)p + i * plait_dtype_size(type);
}

/* Where a block's sum begins (from NULL: at 0) and where it goes; `past` the
 * caches if it is not wanted again soon, in whole lines. */
struct block_sum {
    const float *from;
    float *to;
    size_t from_row, to_row;
    int past;
};

/* Prefetches to L2 of what is read after a block, while the sums do not use
 * the memory: rows of some lines, `stride` bytes apart. A few lines at a time,
 * spread over the block: the processor drops prefetches that come all at
 * once. */
struct fetch {
    const char *row;
    size_t line, lines, stride; /* the next line of the row */
    size_t left, each;          /* rows; lines at a time */
};

INLINE void fetch_some(struct fetch *f)
{
    for (size_t i = 0; i < f->each && f->left > 0; i++) {
        __builtin_prefetch(f->row + 64 * f->line, 0, 2);
        if (++f->line < f->lines)
            continue;
        f->line = 0;
        f->row += f->stride;
        f->left--;
    }
}

INLINE __m512 block_dot(enum plait_dtype type, __m512 sum, __m512i x, __m512i y)
{
    if (type == PLAIT_F32)
        return _mm512_fmadd_ps((__m512)x, (__m512)y, sum);
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}

/* [HIGH, PANEL] of s = a . b over n words of k; word (i, k) of a lies at
 * i * row + k * col, b is packed [n, PANEL]. Meanwhile the lines of rows from
 * `next` on, laid out as a, are fetched, and some of `f` (NULL: none). */
INLINE void multiply_block(enum plait_dtype type, struct block_sum s,
                           const word *a, size_t row, size_t col,
                           const uint32_t *b, size_t n, const word *next,
                           struct fetch *f)
{
    __m512 sum[HIGH][WIDE];

#pragma GCC unroll 8
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 3
        for (int j = 0; j < WIDE; j++)
            sum[i][j] = s.from != NULL
                            ? _mm512_loadu_ps(s.from + (size_t)i * s.from_row +
                                              j * VLEN)
                            : _mm512_setzero_ps();
    for (size_t line = 0; line < n; line += LINE) {
        size_t end = min(line + LINE, n);

#pragma GCC unroll 8
        for (int i = 0; next != NULL && i < HIGH; i++)
            __builtin_prefetch(next + (size_t)i * row + line);
        if (f != NULL)
            fetch_some(f);
#pragma GCC unroll 4
        for (size_t k = line; k < end; k++) {
            __m512i y[WIDE];

#pragma GCC unroll 3
            for (int j = 0; j < WIDE; j++)
                y[j] = _mm512_loadu_si512(b + k * PANEL + j * VLEN);
#pragma GCC unroll 8
            for (int i = 0; i < HIGH; i++) {
                __m512i x =
                    _mm512_set1_epi32((int)a[(size_t)i * row + k * col]);

#pragma GCC unroll 3
                for (int j = 0; j < WIDE; j++)
                    sum[i][j] = block_dot(type, sum[i][j], y[j], x);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 3
        for (int j = 0; j < WIDE; j++) {
            float *to = s.to + (size_t)i * s.to_row + j * VLEN;

            if (s.past)
                _mm512_stream_ps(to, sum[i][j]);
            else
                _mm512_storeu_ps(to, sum[i][j]);
        }
}

/* -- packing ------------------------------------------------------------ */

/* dst [n, PANEL] = the first n words of `cols` rows of b, ldb words apart,
 * transposed; the columns beyond are 0. */
static inline void pack_transposed(uint32_t *dst, const word *b, size_t ldb,
                                   size_t cols, size_t n)
{
    for (size_t j = 0; j < PANEL; j += 16)
        for (size_t k = 0; k < n; k += 16) {
            __m512i r[16];

            for (size_t i = 0; i < 16; i++)
                r[i] = j + i < cols
                           ? _mm512_maskz_loadu_epi32(vec_first(n - k),
                                                      b + (j + i) * ldb + k)
                           : _mm512_setzero_si512();
            for (size_t i = 0; i < 16; i++)
                __builtin_prefetch(b + (j + i) * ldb + k + AHEAD);
            transpose_words(r);
            for (size_t i = 0; i < min(16, n - k); i++)
                _mm512_storeu_si512(dst + (k + i) * PANEL + j, r[i]);
        }
}

/* Both values of each word added to sum */
INLINE __m512 add_words(__m512 sum, __m512i words)
{
    __m512i high = _mm512_and_si512(words, _mm512_set1_epi32(-65536));

    sum += _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    return sum + _mm512_castsi512_ps(high);
}

/* n <= 16 values as words' low halves, or in fp32 as words */
INLINE __m512i low_words(enum plait_dtype type, const void *x, size_t n)
{
    return type == PLAIT_F32 ? _mm512_maskz_loadu_epi32(vec_first(n), x)
                             : half_words(x, n);
}

/* PANEL columns of what pack_rows() does. */
INLINE void pack_columns(enum plait_dtype type, uint32_t *dst, size_t width,
                         const void *b, size_t ldb, size_t rows, size_t cols,
                         float *sums)
{
    __m512 sum[WIDE] = {_mm512_setzero_ps()};

    for (size_t k = 0; k < rows; k += values(type), dst += width)
#pragma GCC unroll 3
        for (size_t j = 0; j < WIDE; j++) {
            const void *x = at(type, b, k * ldb + 16 * j);
            size_t n = 16 * j < cols ? cols - 16 * j : 0;
            __m512i words = low_words(type, x, n);

            __builtin_prefetch(at(type, x, LINE * ldb));
            if (type == PLAIT_F32) {
                sum[j] += (__m512)words;
            } else {
                __builtin_prefetch(at(type, x, (LINE + 1) * ldb));
                if (k + 1 < rows)
                    words = _mm512_or_si512(
                        words, _mm512_slli_epi32(
                                   low_words(type, at(type, x, ldb), n), 16));
                sum[j] = add_words(sum[j], words);
            }
            _mm512_storeu_si512(dst + 16 * j, words);
        }
    for (size_t j = 0; sums != NULL && j < WIDE; j++)
        _mm512_storeu_ps(sums + 16 * j,
                         _mm512_loadu_ps(sums + 16 * j) + sum[j]);
}

/* dst [n, width] = words of the `rows` rows of b, ldb values apart; columns
 * beyond `cols` are 0, width is some PANELs. sums [width] (NULL: none) += the
 * columns. */
INLINE void pack_rows(enum plait_dtype type, uint32_t *dst, size_t width,
                      const void *b, size_t ldb, size_t rows, size_t cols,
                      float *sums)
{
    for (size_t j = 0; j < width; j += PANEL)
        if (sums != NULL)
            pack_columns(type, dst + j, width, at(type, b, j), ldb, rows,
                         j < cols ? cols - j : 0, sums + j);
        else
            pack_columns(type, dst + j, width, at(type, b, j), ldb, rows,
                         j < cols ? cols - j : 0, NULL);
}

#endif

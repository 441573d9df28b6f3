/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_BLOCK_H
#define PLAIT_KERNELS_CPU_BLOCK_H

#include "kernels/cpu/vec.h"
#ifdef __AVX512F__
#include "kernels/cpu/bf16.h"
#endif

/* What the products of a linear layer are made of, in fp32 and bf16: a block
 * of the result in registers, and what packs the operand whose columns it
 * takes in vectors. What is multiplied are words: of one value in fp32, and of
 * two neighbours in k in bf16 where the processor multiplies those
 * (vdpbf16ps, bf16.h). Where it does not, bf16 values become fp32 words while
 * they are packed, so that a product in bf16 costs what one in fp32 does and
 * reads half of it. Blocks follow Goto and van de Geijn, "Anatomy of
 * High-Performance Matrix Multiplication" (2008). `type` is a constant
 * wherever these are used. */
#if defined(__AVX512F__) /* 32 registers */
#define HIGH 8           /* rows, and */
#define WIDE 3           /* vectors of columns in registers */
#elif defined(__AVX2__)  /* 16 */
#define HIGH 6
#define WIDE 2
#elif defined(__aarch64__) /* 32 */
#define HIGH 8
#define WIDE 2
#else
#define HIGH 4
#define WIDE 2
#endif
#define PANEL (WIDE * VLEN) /* columns */
#define LINE 16             /* words of a cache line */
#define AHEAD 128           /* words: where the packers prefetch */

#if defined(__AVX512BF16__)
#define PAIRS 1
#else
#define PAIRS 0
#endif

#ifndef __AVX512F__
typedef uint32_t word __attribute__((may_alias, aligned(2)));
#endif

static inline size_t over(size_t n, size_t d)
{
    return (n + d - 1) / d;
}

/* Values of k in a word */
INLINE size_t values(enum plait_dtype type)
{
    return PAIRS && type == PLAIT_BF16_T ? 2 : 1;
}

/* Whether words are not what lies in memory. */
INLINE int is_widened(enum plait_dtype type)
{
    return !PAIRS && type == PLAIT_BF16_T;
}

/* Whether N rows, summed over K, are best taken in blocks: few are not worth
 * the packing of a weight, in fp32, where the library has a way for them. */
static inline int has_blocks(enum plait_dtype type, size_t N, size_t K)
{
    if (type == PLAIT_F32)
        return N >= 32 && K > 0;
    return type == PLAIT_BF16_T && K > 0 && K % values(type) == 0;
}

/* p + i values */
INLINE const void *at(enum plait_dtype type, const void *p, size_t i)
{
    return (const char *)p + i * plait_dtype_size(type);
}

/* VLEN words, or n where that is less and then zeros, from value i of p */
INLINE uvec load_words(enum plait_dtype type, const void *p, size_t i, size_t n)
{
    n = min(n, VLEN);
    if (values(type) == 2)
        return (uvec)vec_load(PLAIT_F32, at(type, p, i), 0, n);
    return (uvec)vec_load(type, p, i, n);
}

INLINE void store_words(uint32_t *to, uvec words)
{
    memcpy(to, &words, sizeof(words));
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

/* The rows of a of the block after this one; NULL: they are not fetched.
 * Bytes from row to row, and of what becomes a word. */
struct ahead {
    const char *row;
    size_t stride, word;
};

INLINE void fetch_rows(const struct ahead *next, size_t k)
{
    for (size_t i = 0; i < HIGH; i++)
        __builtin_prefetch(next->row + i * next->stride + k * next->word);
}

INLINE vec block_dot(enum plait_dtype type, vec sum, uvec x, uvec y)
{
#if PAIRS
    if (type == PLAIT_BF16_T)
        return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
#endif
    (void)type;
    return vec_fma((vec)x, (vec)y, sum);
}

/* [HIGH, PANEL] of s = a . b over n words of k; word (i, k) of a lies at
 * i * row + k * col, b is packed [n, PANEL]. Meanwhile what is of use next is
 * fetched: as many words of rows at `next`, and some of `f` (NULL: none). */
INLINE void multiply_block(enum plait_dtype type, struct block_sum s,
                           const word *a, size_t row, size_t col,
                           const uint32_t *b, size_t n, struct ahead next,
                           struct fetch *f)
{
    vec sum[HIGH][WIDE];

#pragma GCC unroll 8
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 3
        for (int j = 0; j < WIDE; j++)
            sum[i][j] = s.from != NULL
                            ? vec_load(PLAIT_F32, s.from,
                                       (size_t)i * s.from_row + j * VLEN, VLEN)
                            : (vec){0};
    for (size_t line = 0; line < n; line += LINE) {
        size_t end = min(line + LINE, n);

        if (next.row != NULL)
            fetch_rows(&next, line);
        if (f != NULL)
            fetch_some(f);
#pragma GCC unroll 4
        for (size_t k = line; k < end; k++) {
            uvec y[WIDE];

#pragma GCC unroll 3
            for (int j = 0; j < WIDE; j++)
                memcpy(&y[j], b + k * PANEL + j * VLEN, sizeof(y[j]));
#pragma GCC unroll 8
            for (int i = 0; i < HIGH; i++) {
                uvec x = a[(size_t)i * row + k * col] - (uvec){0};

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
                vec_stream(to, sum[i][j]);
            else
                memcpy(to, &sum[i][j], sizeof(vec));
        }
}

/* -- packing ------------------------------------------------------------ */

/* Rows become columns. */
INLINE void transpose_tile(uvec r[VLEN])
{
#if defined(__AVX512F__)
    transpose_words((__m512i *)r);
#elif defined(__AVX2__)
    __m256 t[8];

    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps((__m256)r[i], (__m256)r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps((__m256)r[i], (__m256)r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            __m256 low = _mm256_shuffle_ps(t[i + k], t[i + 2 + k], 0x44);
            __m256 high = _mm256_shuffle_ps(t[i + k], t[i + 2 + k], 0xee);

            r[i + 2 * k] = (uvec)low;
            r[i + 2 * k + 1] = (uvec)high;
        }
    for (int i = 0; i < 4; i++) {
        __m256 x = (__m256)r[i], y = (__m256)r[i + 4];

        r[i] = (uvec)_mm256_permute2f128_ps(x, y, 0x20);
        r[i + 4] = (uvec)_mm256_permute2f128_ps(x, y, 0x31);
    }
#elif NEON
    uint64x2_t t[4];

    for (int i = 0; i < 4; i += 2) {
        t[i] = (uint64x2_t)vtrn1q_u32((uint32x4_t)r[i], (uint32x4_t)r[i + 1]);
        t[i + 1] =
            (uint64x2_t)vtrn2q_u32((uint32x4_t)r[i], (uint32x4_t)r[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        r[i] = (uvec)vtrn1q_u64(t[i], t[i + 2]);
        r[i + 2] = (uvec)vtrn2q_u64(t[i], t[i + 2]);
    }
#else
    for (int i = 0; i < VLEN; i++)
        for (int k = 0; k < i; k++) {
            uint32_t x = r[i][k];

            r[i][k] = r[k][i];
            r[k][i] = x;
        }
#endif
}

/* dst [n, PANEL] = the first n words of `cols` rows of b, ldb values apart,
 * transposed; the columns beyond are 0. */
INLINE void pack_transposed(enum plait_dtype type, uint32_t *dst, const void *b,
                            size_t ldb, size_t cols, size_t n)
{
    for (size_t j = 0; j < PANEL; j += VLEN)
        for (size_t k = 0; k < n; k += VLEN) {
            size_t from = j * ldb + k * values(type);
            uvec r[VLEN];

            for (size_t i = 0; i < VLEN; i++)
                r[i] = j + i < cols ? load_words(type, b, from + i * ldb, n - k)
                                    : (uvec){0};
            for (size_t i = 0; i < VLEN; i++)
                __builtin_prefetch(
                    at(type, b, from + i * ldb + AHEAD * values(type)));
            transpose_tile(r);
            for (size_t i = 0; i < min(VLEN, n - k); i++)
                store_words(dst + (k + i) * PANEL + j, r[i]);
        }
}

#if PAIRS
/* Both values of each word added to sum */
INLINE vec add_words(vec sum, uvec words)
{
    sum += (vec)(words << 16);
    return sum + (vec)(words & 0xffff0000);
}

/* Of two rows of k (the second NULL: zeros), n <= VLEN pairs */
INLINE uvec pair_words(const uint16_t *x, const uint16_t *next, size_t n)
{
    __m512i words = half_words(x, n);

    if (next != NULL)
        words =
            _mm512_or_si512(words, _mm512_slli_epi32(half_words(next, n), 16));
    return (uvec)words;
}
#endif

/* PANEL columns of what pack_rows() does. */
INLINE void pack_columns(enum plait_dtype type, uint32_t *dst, size_t width,
                         const void *b, size_t ldb, size_t rows, size_t cols,
                         float *sums)
{
    vec sum[WIDE] = {{0}};

    for (size_t k = 0; k < rows; k += values(type), dst += width)
#pragma GCC unroll 3
        for (size_t j = 0; j < WIDE; j++) {
            const void *x = at(type, b, k * ldb + VLEN * j);
            size_t n = VLEN * j < cols ? min(VLEN, cols - VLEN * j) : 0;
            uvec words;

            for (size_t i = 0; i < values(type); i++)
                __builtin_prefetch(at(type, x, (LINE + i) * ldb));
#if PAIRS
            if (type == PLAIT_BF16_T) {
                words =
                    pair_words(x, k + 1 < rows ? at(type, x, ldb) : NULL, n);
                sum[j] = add_words(sum[j], words);
                store_words(dst + VLEN * j, words);
                continue;
            }
#endif
            words = load_words(type, x, 0, n);
            sum[j] += (vec)words;
            store_words(dst + VLEN * j, words);
        }
    for (size_t j = 0; sums != NULL && j < WIDE; j++) {
        float *to = sums + VLEN * j;

        vec_store(PLAIT_F32, to, 0, VLEN,
                  vec_load(PLAIT_F32, to, 0, VLEN) + sum[j]);
    }
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

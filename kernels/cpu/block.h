/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_BLOCK_H
#define PLAIT_KERNELS_CPU_BLOCK_H

#include "kernels/cpu/vec.h"
#ifdef __AVX512F__
#include "kernels/cpu/bf16.h"
#endif

/* The parts of a linear layer's products in fp32 and bf16: the product of one
 * block of the result in registers, and the packing of the operand whose
 * columns fill the vectors. Operands consist of words: one fp32 value, or two
 * bf16 values that are neighbours in k where the processor multiplies such
 * pairs (vdpbf16ps, bf16.h). Elsewhere bf16 values are widened to fp32 words
 * when they are packed: a bf16 product then costs as much as one in fp32 and
 * reads half as much. Blocks follow Goto and van de Geijn, "Anatomy of
 * High-Performance Matrix Multiplication" (2008). `type` is a constant in all
 * callers. */
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
#define AHEAD 128           /* words: how far ahead the packers prefetch */

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

/* Number of values in a word. */
INLINE size_t values(enum plait_dtype type)
{
    return PAIRS && type == PLAIT_BF16_T ? 2 : 1;
}

/* Whether operands must be converted to become words. */
INLINE int is_widened(enum plait_dtype type)
{
    return !PAIRS && type == PLAIT_BF16_T;
}

/* Whether a product of N rows, summed over K, is computed in blocks. In fp32 it
 * is not for few rows: packing the weight would not pay, and the library has a
 * way for them. */
static inline int has_blocks(enum plait_dtype type, size_t N, size_t K)
{
    if (type == PLAIT_F32)
        return N >= 32 && K > 0;
    return type == PLAIT_BF16_T && K > 0 && K % values(type) == 0;
}

/* The address p + i values. */
INLINE const void *at(enum plait_dtype type, const void *p, size_t i)
{
    return (const char *)p + i * plait_dtype_size(type);
}

/* VLEN words from value i of p on, or n if that is less, the rest 0. */
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

/* Where a block's sum comes from (from NULL: begins at 0) and where it is
 * stored. past: with streaming stores of whole cache lines, if it is not read
 * again soon. */
struct block_sum {
    const float *from;
    float *to;
    size_t from_row, to_row;
    int past;
};

/* Prefetches to L2 what is read after a block, while the block's arithmetic
 * leaves memory idle: `left` rows of some cache lines, `stride` bytes apart. A
 * few lines at a time, because the processor drops prefetches that come all at
 * once. */
struct fetch {
    const char *row;
    size_t line, lines, stride; /* the row's next line, lines per row, bytes */
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

/* The rows of the operand a of the next block; NULL: not prefetched. stride:
 * bytes from row to row, word: bytes in memory of what becomes a word. */
struct ahead {
    const char *row;
    size_t stride, word;
};

INLINE void fetch_rows(const struct ahead *next, size_t k)
{
#pragma GCC unroll 8
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

/* sum += a . b of one word of k: word i of a is at i * row. */
INLINE void multiply_word(enum plait_dtype type, vec sum[HIGH][WIDE],
                          const word *a, size_t row, const uint32_t *b)
{
    uvec y[WIDE];

#pragma GCC unroll 3
    for (int j = 0; j < WIDE; j++)
        memcpy(&y[j], b + j * VLEN, sizeof(y[j]));
#pragma GCC unroll 8
    for (int i = 0; i < HIGH; i++) {
        uvec x = a[(size_t)i * row] - (uvec){0};

#pragma GCC unroll 3
        for (int j = 0; j < WIDE; j++)
            sum[i][j] = block_dot(type, sum[i][j], y[j], x);
    }
}

/* The operands of a block, over n words of k. */
struct block {
    const word *a; /* [HIGH, n]: word (i, k) is at i * row + k * col */
    size_t row, col;
    const uint32_t *b; /* [n, PANEL], packed */
    size_t n;
};

/* [HIGH, PANEL] of s = a . b. Meanwhile it prefetches n words of each row at
 * `next`, and some lines of `f` (NULL: none). */
INLINE void multiply_block(enum plait_dtype type, struct block_sum s,
                           struct block x, struct ahead next, struct fetch *f)
{
    const word *a = x.a;
    const uint32_t *b = x.b;
    size_t row = x.row, col = x.col, n = x.n;
    vec sum[HIGH][WIDE];

#pragma GCC unroll 8
    for (int i = 0; i < HIGH; i++)
#pragma GCC unroll 3
        for (int j = 0; j < WIDE; j++)
            sum[i][j] = s.from != NULL
                            ? vec_load(PLAIT_F32, s.from,
                                       (size_t)i * s.from_row + j * VLEN, VLEN)
                            : (vec){0};
    for (size_t line = 0; line + LINE <= n; line += LINE) {
        if (next.row != NULL)
            fetch_rows(&next, line);
        if (f != NULL)
            fetch_some(f);
#pragma GCC unroll 4
        for (int k = 0; k < LINE; k++)
            multiply_word(type, sum, a + (line + k) * col, row,
                          b + (line + k) * PANEL);
    }
    for (size_t k = n / LINE * LINE; k < n; k++)
        multiply_word(type, sum, a + k * col, row, b + k * PANEL);
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

/* Transposes a square of VLEN x VLEN words. */
INLINE void transpose_tile(uvec r[VLEN])
{
#if defined(__AVX512F__)
    transpose_words((__m512i *)r);
#elif defined(__AVX2__)
    __m256 t[8];

#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps((__m256)r[i], (__m256)r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps((__m256)r[i], (__m256)r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            __m256 low = _mm256_shuffle_ps(t[i + k], t[i + 2 + k], 0x44);
            __m256 high = _mm256_shuffle_ps(t[i + k], t[i + 2 + k], 0xee);

            r[i + 2 * k] = (uvec)low;
            r[i + 2 * k + 1] = (uvec)high;
        }
#pragma GCC unroll 4
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
 * transposed; the columns beyond are 0. Unrolled, so that a square stays in
 * registers. */
INLINE void pack_transposed(enum plait_dtype type, uint32_t *dst, const void *b,
                            size_t ldb, size_t cols, size_t n)
{
    for (size_t j = 0; j < PANEL; j += VLEN)
        for (size_t k = 0; k < n; k += VLEN) {
            size_t from = j * ldb + k * values(type);
            uvec r[VLEN];

#pragma GCC unroll 16
            for (size_t i = 0; i < VLEN; i++)
                r[i] = j + i < cols ? load_words(type, b, from + i * ldb, n - k)
                                    : (uvec){0};
#pragma GCC unroll 16
            for (size_t i = 0; i < VLEN; i++)
                __builtin_prefetch(
                    at(type, b, from + i * ldb + AHEAD * values(type)));
            transpose_tile(r);
#pragma GCC unroll 16
            for (size_t i = 0; i < VLEN; i++)
                if (k + i < n)
                    store_words(dst + (k + i) * PANEL + j, r[i]);
        }
}

#if PAIRS
/* Adds both values of each word to sum. */
INLINE vec add_words(vec sum, uvec words)
{
    sum += (vec)(words << 16);
    return sum + (vec)(words & 0xffff0000);
}

/* n <= VLEN words, each of a value of x and the value of `next` below it (NULL:
 * 0). */
INLINE uvec pair_words(const uint16_t *x, const uint16_t *next, size_t n)
{
    __m512i words = half_words(x, n);

    if (next != NULL)
        words =
            _mm512_or_si512(words, _mm512_slli_epi32(half_words(next, n), 16));
    return (uvec)words;
}
#endif

/* `rows` rows of `cols` values, ld values apart. */
struct rows_of {
    const void *data;
    size_t ld, rows, cols;
};

/* One PANEL of columns of pack_rows(), those of b from its first on. */
INLINE void pack_columns(enum plait_dtype type, uint32_t *dst, size_t width,
                         struct rows_of b, float *sums)
{
    vec sum[WIDE] = {{0}};

    for (size_t k = 0; k < b.rows; k += values(type), dst += width)
#pragma GCC unroll 3
        for (size_t j = 0; j < WIDE; j++) {
            const void *x = at(type, b.data, k * b.ld + VLEN * j);
            size_t n = VLEN * j < b.cols ? min(VLEN, b.cols - VLEN * j) : 0;
            uvec words;

            for (size_t i = 0; i < values(type); i++)
                __builtin_prefetch(at(type, x, (LINE + i) * b.ld));
#if PAIRS
            if (type == PLAIT_BF16_T) {
                words =
                    pair_words(x, k + 1 < b.rows ? at(type, x, b.ld) : NULL, n);
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

/* dst [n, width] = words of the rows of b. Columns beyond b.cols are 0; width
 * is a multiple of PANEL. sums [width] (NULL: none) += the column sums of b. */
INLINE void pack_rows(enum plait_dtype type, uint32_t *dst, size_t width,
                      struct rows_of b, float *sums)
{
    for (size_t j = 0; j < width; j += PANEL) {
        struct rows_of panel = {at(type, b.data, j), b.ld, b.rows,
                                j < b.cols ? b.cols - j : 0};

        if (sums != NULL)
            pack_columns(type, dst + j, width, panel, sums + j);
        else
            pack_columns(type, dst + j, width, panel, NULL);
    }
}

#endif

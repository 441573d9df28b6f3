/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_ATTENTION_TILES_H
#define PLAIT_KERNELS_CPU_ATTENTION_TILES_H

#include "kernels/cpu/attention.h"

/* fp32 tiles of attention, for operands of any type: they are converted and
 * padded with zeros to whole vectors first. */

/* Not inlined, because the loops are large and there are several callers. */
#define NOINLINE static __attribute__((noinline))

#if VLEN == 16
#define WIDE 4 /* vectors of a row that the inner loop keeps in registers */
#else
#define WIDE 2
#endif
#define HIGH 4 /* rows */

/* c[HIGH, width vectors] = (+= if add) a[HIGH, K] . b[K, ..]; element (i, k)
 * of a lies at i * row + k * col. */
INLINE void multiply_block(int width, int add, float *c, size_t ldc,
                           const float *a, size_t row, size_t col,
                           const float *b, size_t ldb, size_t K)
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
        multiply_block(WIDE, add, c + j, ldc, a, row, col, b + j, ldb, K);
    for (; j + 2 * VLEN <= N; j += 2 * VLEN)
        multiply_block(2, add, c + j, ldc, a, row, col, b + j, ldb, K);
    for (; j < N; j += VLEN)
        multiply_block(1, add, c + j, ldc, a, row, col, b + j, ldb, K);
}

/* c = a . b */
NOINLINE void product(float *c, size_t ldc, const float *a, size_t row,
                      size_t col, const float *b, size_t ldb, size_t N,
                      size_t K)
{
    rows_product(0, c, ldc, a, row, col, b, ldb, N, K);
}

/* c += a . b */
NOINLINE void product_add(float *c, size_t ldc, const float *a, size_t row,
                          size_t col, const float *b, size_t ldb, size_t N,
                          size_t K)
{
    rows_product(1, c, ldc, a, row, col, b, ldb, N, K);
}

/* -- tiles -------------------------------------------------------------- */

/* dst [TILE, ld] = `rows` rows of x, `stride` apart, times s; the rest is 0. */
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

static inline void load_any(enum plait_dtype type, float *dst, size_t ld,
                            const void *x, size_t at, size_t stride,
                            size_t rows, size_t D, float s)
{
    if (type == PLAIT_F32)
        load_tile(PLAIT_F32, dst, ld, x, at, stride, rows, D, s);
    else if (type == PLAIT_BF16_T)
        load_tile(PLAIT_BF16_T, dst, ld, x, at, stride, rows, D, s);
    else
        load_tile(PLAIT_FP16_T, dst, ld, x, at, stride, rows, D, s);
}

/* dst [D, TILE] = src [TILE, ld] transposed, a cache line at a time */
static inline void transpose(float *dst, const float *src, size_t ld, size_t D)
{
    for (size_t j = 0; j < TILE; j += 16)
        for (size_t d = 0; d < D; d++)
            for (size_t k = 0; k < 16; k++)
                dst[d * TILE + j + k] = src[(j + k) * ld + d];
}

#endif

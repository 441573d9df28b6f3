/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_ATTENTION_TILES_H
#define PLAIT_KERNELS_CPU_ATTENTION_TILES_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/dropout.h"

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

/* The operands of a product; its result is in struct sums. */
struct left {
    const float *x; /* element (i, k) lies at i * row + k * col */
    size_t row, col;
};

struct right {
    const float *x; /* [K, ld] */
    size_t ld;
};

/* The operand from column `col` on. */
INLINE struct right right_at(struct right b, size_t col)
{
    return (struct right){b.x + col, b.ld};
}

/* c[HIGH, width vectors] = (+= if add) a[HIGH, K] . b[K, ..] */
INLINE void multiply_block(int width, int add, struct sums c, struct left a,
                           struct right b, size_t K)
{
    vec sum[HIGH][WIDE];

    for (int i = 0; i < HIGH; i++)
        for (int j = 0; j < width; j++)
            sum[i][j] =
                add ? vec_load(PLAIT_F32, c.x,
                               (size_t)i * c.ld + (size_t)j * VLEN, VLEN)
                    : (vec){0};
    for (size_t k = 0; k < K; k++)
#pragma GCC unroll 4
        for (int j = 0; j < width; j++) {
            vec x = vec_load(PLAIT_F32, b.x, k * b.ld + (size_t)j * VLEN, VLEN);

#pragma GCC unroll 4
            for (int i = 0; i < HIGH; i++)
                sum[i][j] += x * a.x[(size_t)i * a.row + k * a.col];
        }
    for (int i = 0; i < HIGH; i++)
        for (int j = 0; j < width; j++)
            vec_store(PLAIT_F32, c.x, (size_t)i * c.ld + (size_t)j * VLEN, VLEN,
                      sum[i][j]);
}

/* HIGH rows of c, N (a multiple of VLEN) columns */
INLINE void rows_product(int add, struct sums c, struct left a, struct right b,
                         size_t N, size_t K)
{
    size_t j = 0;

    for (; j + WIDE * VLEN <= N; j += WIDE * VLEN)
        multiply_block(WIDE, add, sums_at(c, j), a, right_at(b, j), K);
    for (; j + 2 * VLEN <= N; j += 2 * VLEN)
        multiply_block(2, add, sums_at(c, j), a, right_at(b, j), K);
    for (; j < N; j += VLEN)
        multiply_block(1, add, sums_at(c, j), a, right_at(b, j), K);
}

/* c [HIGH, TILE] = a . b [K, TILE]; element (i, k) of a: i * row + k */
NOINLINE void product(float *c, const float *a, size_t row, const float *b,
                      size_t N, size_t K)
{
    rows_product(0, (struct sums){c, TILE}, (struct left){a, row, 1},
                 (struct right){b, TILE}, N, K);
}

/* c [HIGH, b.ld] += a [HIGH, TILE] . b [K, b.ld] */
NOINLINE void product_add(float *c, const float *a, struct right b, size_t K)
{
    rows_product(1, (struct sums){c, b.ld}, (struct left){a, TILE, 1}, b, b.ld,
                 K);
}

/* -- tiles -------------------------------------------------------------- */

/* dst [TILE, padded(D)] = the rows r of x, times s; the rest is 0. */
INLINE void load_tile(enum plait_dtype type, float *dst, const void *x,
                      struct head_rows r, float s)
{
    size_t ld = padded(r.D);

    for (size_t i = 0; i < r.rows; i++) {
        prefetch(type, x, r, i);
        for (size_t d = 0; d < r.D; d += VLEN)
            vec_store(
                PLAIT_F32, dst, i * ld + d, VLEN,
                vec_load(type, x, r.at + i * r.stride + d, min(VLEN, r.D - d)) *
                    s);
    }
    memset(dst + r.rows * ld, 0, (TILE - r.rows) * ld * sizeof(float));
}

static inline void load_any(enum plait_dtype type, float *dst, const void *x,
                            struct head_rows r, float s)
{
    if (type == PLAIT_F32)
        load_tile(PLAIT_F32, dst, x, r, s);
    else if (type == PLAIT_BF16_T)
        load_tile(PLAIT_BF16_T, dst, x, r, s);
    else
        load_tile(PLAIT_FP16_T, dst, x, r, s);
}

/* dst [D, TILE] = src [TILE, ld] transposed, a cache line at a time */
static inline void transpose(float *dst, const float *src, size_t ld, size_t D)
{
    for (size_t j = 0; j < TILE; j += 16)
        for (size_t d = 0; d < D; d++)
            for (size_t k = 0; k < 16; k++)
                dst[d * TILE + j + k] = src[(j + k) * ld + d];
}

/* -- dropout ------------------------------------------------------------ */

/* Drops from the first n of x[j] of query i and the keys of w; n is rounded up
 * to whole vectors. */
INLINE void drop_keys(const struct plait_drops *d, const struct window *w,
                      size_t i, float *x, size_t n)
{
    int64_t query = w->pos + w->seen - 1 + (int64_t)i;
    struct drop_row row =
        drop_row(d->rate, plait_drop_row(w->key, query, w->place));

    for (size_t j = 0; j < n; j += VLEN)
        vec_store(PLAIT_F32, x, j, VLEN,
                  vec_drop(row, (uint32_t)(w->pos + (int64_t)j),
                           vec_load(PLAIT_F32, x, j, VLEN)));
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* Moves rows of tokens into the order of the experts and back. */

INLINE void scaled_row(enum plait_dtype type, void *out, size_t to,
                       const void *x, size_t from, float by, size_t C)
{
    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = C - c < VLEN ? C - c : VLEN;

        vec_store(type, out, to + c, n,
                  vec_load(type, x, from + c, n) * vec_set(by));
    }
}

static int rows_spread(struct plait_queue *q, enum plait_dtype type, void *out,
                       const void *x, const int32_t *place, const float *gate,
                       size_t N, int k, size_t C)
{
    size_t n = N * (size_t)k;
    int threads = cpu_threads(q, n * C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i++) {
        size_t to = (size_t)place[i] * C, from = i / (size_t)k * C;
        float by = gate ? gate[i] : 1;

        if (type == PLAIT_F32)
            scaled_row(PLAIT_F32, out, to, x, from, by, C);
        else if (type == PLAIT_BF16_T)
            scaled_row(PLAIT_BF16_T, out, to, x, from, by, C);
        else
            scaled_row(PLAIT_FP16_T, out, to, x, from, by, C);
    }
    return 0;
}

INLINE void joined_row(enum plait_dtype type, void *out, size_t to,
                       const void *rows, const int32_t *place,
                       const float *gate, int k, size_t C)
{
    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = C - c < VLEN ? C - c : VLEN;
        vec sum = {0};

        for (int j = 0; j < k; j++)
            sum += vec_load(type, rows, (size_t)place[j] * C + c, n) *
                   vec_set(gate ? gate[j] : 1);
        vec_store(type, out, to + c, n, sum);
    }
}

static int rows_join(struct plait_queue *q, enum plait_dtype type, void *out,
                     const void *rows, const int32_t *place, const float *gate,
                     size_t N, int k, size_t C)
{
    int threads = cpu_threads(q, N * C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < N; i++) {
        const int32_t *p = place + i * (size_t)k;
        const float *g = gate ? gate + i * (size_t)k : NULL;

        if (type == PLAIT_F32)
            joined_row(PLAIT_F32, out, i * C, rows, p, g, k, C);
        else if (type == PLAIT_BF16_T)
            joined_row(PLAIT_BF16_T, out, i * C, rows, p, g, k, C);
        else
            joined_row(PLAIT_FP16_T, out, i * C, rows, p, g, k, C);
    }
    return 0;
}

INLINE float row_dot(enum plait_dtype type, const void *x, size_t i,
                     const void *y, size_t j, size_t C)
{
    vec sum = {0};

    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = C - c < VLEN ? C - c : VLEN;

        sum += vec_load(type, x, i + c, n) * vec_load(type, y, j + c, n);
    }
    return vec_sum(sum);
}

static int rows_dot(struct plait_queue *q, enum plait_dtype type, float *dgate,
                    const void *dout, const void *rows, const int32_t *place,
                    size_t N, int k, size_t C)
{
    size_t n = N * (size_t)k;
    int threads = cpu_threads(q, n * C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i++) {
        size_t x = i / (size_t)k * C, y = (size_t)place[i] * C;

        if (type == PLAIT_F32)
            dgate[i] = row_dot(PLAIT_F32, dout, x, rows, y, C);
        else if (type == PLAIT_BF16_T)
            dgate[i] = row_dot(PLAIT_BF16_T, dout, x, rows, y, C);
        else
            dgate[i] = row_dot(PLAIT_FP16_T, dout, x, rows, y, C);
    }
    return 0;
}

void CPU_NAME(cpu_fill_rows)(struct plait_ops *ops)
{
    ops->rows_spread = rows_spread;
    ops->rows_join = rows_join;
    ops->rows_dot = rows_dot;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"
#include "kernels/route.h"

/* Moves rows of tokens into the order of the experts and back. */

/* Stores the row of choice i. */
INLINE void scaled_row(enum plait_dtype type, const struct plait_rows *r,
                       size_t i)
{
    const void *x = r->x;
    void *out = r->out;
    size_t C = r->C, to = (size_t)r->place[i] * C, from = i / (size_t)r->k * C;
    float by = r->gate ? r->gate[i] : 1;

    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = C - c < VLEN ? C - c : VLEN;

        vec_store(type, out, to + c, n,
                  vec_load(type, x, from + c, n) * vec_set(by));
    }
}

static int rows_spread(struct plait_queue *q, const struct plait_rows *r)
{
    size_t n = r->N * (size_t)r->k;
    int threads = cpu_threads(q, n * r->C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i++) {
        if (r->type == PLAIT_F32)
            scaled_row(PLAIT_F32, r, i);
        else if (r->type == PLAIT_BF16_T)
            scaled_row(PLAIT_BF16_T, r, i);
        else
            scaled_row(PLAIT_FP16_T, r, i);
    }
    return 0;
}

/* Stores the row of token i. */
INLINE void joined_row(enum plait_dtype type, const struct plait_rows *r,
                       size_t i)
{
    const void *rows = r->rows;
    void *out = r->out;
    size_t k = (size_t)r->k, C = r->C;
    const int32_t *place = r->place + i * k;
    const float *gate = r->gate ? r->gate + i * k : NULL;

    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = C - c < VLEN ? C - c : VLEN;
        vec sum = {0};

        if (r->accumulate)
            sum = vec_load(type, out, i * C + c, n);
        for (size_t j = 0; j < k; j++)
            sum += vec_load(type, rows, (size_t)place[j] * C + c, n) *
                   vec_set(gate ? gate[j] : 1);
        vec_store(type, out, i * C + c, n, sum);
    }
}

static int rows_join(struct plait_queue *q, const struct plait_rows *r)
{
    int threads = cpu_threads(q, r->N * r->C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < r->N; i++) {
        if (r->type == PLAIT_F32)
            joined_row(PLAIT_F32, r, i);
        else if (r->type == PLAIT_BF16_T)
            joined_row(PLAIT_BF16_T, r, i);
        else
            joined_row(PLAIT_FP16_T, r, i);
    }
    return 0;
}

/* The product for choice i. */
INLINE float row_dot(enum plait_dtype type, const struct plait_rows *r,
                     size_t i)
{
    size_t C = r->C, x = i / (size_t)r->k * C, y = (size_t)r->place[i] * C;
    vec sum = {0};

    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = C - c < VLEN ? C - c : VLEN;

        sum += vec_load(type, r->dout, x + c, n) *
               vec_load(type, r->rows, y + c, n);
    }
    return vec_sum(sum);
}

static int rows_dot(struct plait_queue *q, const struct plait_rows *r)
{
    size_t n = r->N * (size_t)r->k;
    int threads = cpu_threads(q, n * r->C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i++) {
        if (r->type == PLAIT_F32)
            r->dgate[i] = row_dot(PLAIT_F32, r, i);
        else if (r->type == PLAIT_BF16_T)
            r->dgate[i] = row_dot(PLAIT_BF16_T, r, i);
        else
            r->dgate[i] = row_dot(PLAIT_FP16_T, r, i);
    }
    return 0;
}

void CPU_NAME(cpu_fill_rows)(struct plait_ops *ops)
{
    ops->rows_spread = rows_spread;
    ops->rows_join = rows_join;
    ops->rows_dot = rows_dot;
}

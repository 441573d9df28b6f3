/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* Loops that the compiler vectorises. Comparisons are written such that a NaN
 * stays a NaN. */

static int average(struct plait_queue *q, float *y, const float *x, float scale,
                   float weight, size_t n)
{
#pragma omp parallel for simd num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i++)
        y[i] += weight * (scale * x[i] - y[i]);
    return 0;
}

static int average_squares(struct plait_queue *q, float *y, const float *x,
                           float scale, float weight, size_t n)
{
#pragma omp parallel for simd num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i++)
        y[i] += weight * (scale * x[i] * (scale * x[i]) - y[i]);
    return 0;
}

static int divide_root(struct plait_queue *q, float *x, const float *v,
                       float scale, float least, float eps, size_t n)
{
#pragma omp parallel for simd num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i++)
        x[i] = scale * x[i] / (sqrtf(v[i] < least ? least : v[i]) + eps);
    return 0;
}

/* -- rows and columns ---------------------------------------------------- */

#define COLUMNS 512 /* columns whose fp32 sums fit L1 */

/* The elements of row i of the matrix that lie in [first, first + n): *begin ..
 * *end - 1, counted from the matrix's first. */
INLINE void row_span(size_t i, size_t first, size_t n, size_t C, size_t *begin,
                     size_t *end)
{
    *begin = i * C < first ? first : i * C;
    *end = (i + 1) * C > first + n ? first + n : (i + 1) * C;
}

static float row_sum(const float *x, size_t n)
{
    vec sum = {0};
    size_t i = 0;

    for (; i + VLEN <= n; i += VLEN) {
        vec v = vec_load(PLAIT_F32, x, i, VLEN);

        sum += v * v;
    }
    if (i < n) {
        vec v = vec_load(PLAIT_F32, x, i, n - i);

        sum += v * v;
    }
    return vec_sum(sum);
}

/* Sums columns from .. to - 1 in the order of the rows, so that the result does
 * not depend on the number of threads. */
static void column_sums(float *cols, const float *x, size_t from, size_t to,
                        size_t first, size_t n, size_t C)
{
    float sums[COLUMNS] = {0};

    for (size_t i = first / C; i * C < first + n; i++) {
        size_t begin, end;

        row_span(i, first, n, C, &begin, &end);
        begin = begin < i * C + from ? i * C + from : begin;
        end = end > i * C + to ? i * C + to : end;
        for (size_t k = begin; k < end; k++)
            sums[k - i * C - from] += x[k - first] * x[k - first];
    }
    for (size_t j = from; j < to; j++)
        cols[j] += sums[j - from];
}

static int factor_sums(struct plait_queue *q, float *rows, float *cols,
                       const float *x, size_t first, size_t n, size_t C)
{
    size_t last = n ? (first + n - 1) / C + 1 : first / C;
    int threads = cpu_threads(q, n);

#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (size_t i = first / C; i < last; i++) {
            size_t begin, end;

            row_span(i, first, n, C, &begin, &end);
            rows[i] += row_sum(x + begin - first, end - begin);
        }
#pragma omp for schedule(static)
        for (size_t j = 0; j < C; j += COLUMNS)
            column_sums(cols, x, j, j + COLUMNS < C ? j + COLUMNS : C, first, n,
                        C);
    }
    return 0;
}

static int factor_divide(struct plait_queue *q, float *x, const float *rows,
                         const float *cols, const float *mean, float scale,
                         float eps, size_t first, size_t n, size_t C)
{
    size_t last = n ? (first + n - 1) / C + 1 : first / C;
    float whole = mean[0] < eps ? eps : mean[0], least = eps * eps;

#pragma omp parallel for num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = first / C; i < last; i++) {
        float row = rows[i] / whole;
        size_t begin, end;

        row_span(i, first, n, C, &begin, &end);
        for (size_t k = begin; k < end; k++) {
            float v = row * cols[k - i * C];

            x[k - first] = scale * x[k - first] / sqrtf(v < least ? least : v);
        }
    }
    return 0;
}

void CPU_NAME(cpu_fill_moments)(struct plait_ops *ops)
{
    ops->average = average;
    ops->average_squares = average_squares;
    ops->divide_root = divide_root;
    ops->factor_sums = factor_sums;
    ops->factor_divide = factor_divide;
}

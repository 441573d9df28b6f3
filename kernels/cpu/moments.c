/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"
#include "kernels/moments.h"

/* Loops that the compiler vectorises. Comparisons are written such that a NaN
 * stays a NaN. */

static int average(struct plait_queue *q, const struct plait_average *a)
{
    const float *x = a->x;
    float *y = a->y, scale = a->scale, weight = a->weight;
    size_t n = a->n;

#pragma omp parallel for simd num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i++)
        y[i] += weight * (scale * x[i] - y[i]);
    return 0;
}

static int average_squares(struct plait_queue *q, const struct plait_average *a)
{
    const float *x = a->x;
    float *y = a->y, scale = a->scale, weight = a->weight;
    size_t n = a->n;

#pragma omp parallel for simd num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i++)
        y[i] += weight * (scale * x[i] * (scale * x[i]) - y[i]);
    return 0;
}

static int divide_root(struct plait_queue *q, const struct plait_divide_root *d)
{
    const float *v = d->v;
    float *x = d->x, scale = d->scale, least = d->least, eps = d->eps;
    size_t n = d->n;

#pragma omp parallel for simd num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i++)
        x[i] = scale * x[i] / (sqrtf(v[i] < least ? least : v[i]) + eps);
    return 0;
}

/* -- rows and columns ---------------------------------------------------- */

#define COLUMNS 512 /* columns whose fp32 sums fit L1 */

/* Elements begin .. end - 1 of the matrix. */
struct range {
    size_t begin, end;
};

/* The elements of row i of the matrix that f has. */
INLINE struct range row_range(const struct plait_factors *f, size_t i)
{
    size_t last = f->first + f->n, C = f->C;

    return (struct range){i * C < f->first ? f->first : i * C,
                          (i + 1) * C > last ? last : (i + 1) * C};
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
static void column_sums(const struct plait_factors *f, size_t from, size_t to)
{
    float sums[COLUMNS] = {0};
    const float *x = f->x;
    size_t first = f->first, C = f->C;

    for (size_t i = first / C; i * C < first + f->n; i++) {
        struct range r = row_range(f, i);

        r.begin = r.begin < i * C + from ? i * C + from : r.begin;
        r.end = r.end > i * C + to ? i * C + to : r.end;
        for (size_t k = r.begin; k < r.end; k++)
            sums[k - i * C - from] += x[k - first] * x[k - first];
    }
    for (size_t j = from; j < to; j++)
        f->cols[j] += sums[j - from];
}

/* One more than the last row that f has elements of. */
static size_t rows_end(const struct plait_factors *f)
{
    return f->n ? (f->first + f->n - 1) / f->C + 1 : f->first / f->C;
}

static int factor_sums(struct plait_queue *q, const struct plait_factors *f)
{
    size_t last = rows_end(f), C = f->C;
    int threads = cpu_threads(q, f->n);

#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (size_t i = f->first / C; i < last; i++) {
            struct range r = row_range(f, i);

            f->rows[i] += row_sum(f->x + r.begin - f->first, r.end - r.begin);
        }
#pragma omp for schedule(static)
        for (size_t j = 0; j < C; j += COLUMNS)
            column_sums(f, j, j + COLUMNS < C ? j + COLUMNS : C);
    }
    return 0;
}

static int factor_divide(struct plait_queue *q, const struct plait_factors *f)
{
    size_t last = rows_end(f), first = f->first, C = f->C;
    float whole = f->mean[0] < f->eps ? f->eps : f->mean[0];
    float least = f->eps * f->eps, scale = f->scale, *x = f->x;

#pragma omp parallel for num_threads(cpu_threads(q, f->n)) schedule(static)
    for (size_t i = first / C; i < last; i++) {
        const float *cols = f->cols;
        float row = f->rows[i] / whole;
        struct range r = row_range(f, i);

        for (size_t k = r.begin; k < r.end; k++) {
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

/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of optimizers that keep means of whole matrices, as
 * formulas. */
#include <math.h>
#include <stdlib.h>

#include "kernels/moments.h"
#include "kernels/ref/ref.h"

int ref_average(struct plait_queue *q, const struct plait_average *a)
{
    float *y = a->y;

    (void)q;
    for (size_t i = 0; i < a->n; i++)
        y[i] = (float)(y[i] + a->weight * ((double)a->scale * a->x[i] - y[i]));
    return 0;
}

int ref_average_squares(struct plait_queue *q, const struct plait_average *a)
{
    float *y = a->y;

    (void)q;
    for (size_t i = 0; i < a->n; i++) {
        double s = (double)a->scale * a->x[i];

        y[i] = (float)(y[i] + a->weight * (s * s - y[i]));
    }
    return 0;
}

int ref_divide_root(struct plait_queue *q, const struct plait_divide_root *d)
{
    (void)q;
    for (size_t i = 0; i < d->n; i++) {
        double under = d->v[i] < d->least ? d->least : d->v[i];

        d->x[i] = (float)((double)d->scale * d->x[i] / (sqrt(under) + d->eps));
    }
    return 0;
}

/* Computes one row or column sum at a time, so that each is rounded once. */
int ref_factor_sums(struct plait_queue *q, const struct plait_factors *f)
{
    size_t first = f->first, end = first + f->n, C = f->C;
    const float *x = f->x;

    (void)q;
    for (size_t i = first / C; i * C < end; i++) {
        double sum = 0;

        for (size_t k = i * C; k < (i + 1) * C; k++)
            if (k >= first && k < end)
                sum += (double)x[k - first] * x[k - first];
        f->rows[i] = (float)(f->rows[i] + sum);
    }
    for (size_t j = 0; j < C; j++) {
        double sum = 0;

        for (size_t k = first + (j + C - first % C) % C; k < end; k += C)
            sum += (double)x[k - first] * x[k - first];
        f->cols[j] = (float)(f->cols[j] + sum);
    }
    return 0;
}

int ref_factor_divide(struct plait_queue *q, const struct plait_factors *f)
{
    double least = (double)f->eps * f->eps;
    double whole = f->mean[0] < f->eps ? f->eps : f->mean[0];
    float *x = f->x;

    (void)q;
    for (size_t i = 0; i < f->n; i++) {
        size_t k = f->first + i;
        double v = (double)f->rows[k / f->C] * f->cols[k % f->C] / whole;

        x[i] = (float)((double)f->scale * x[i] / sqrt(v < least ? least : v));
    }
    return 0;
}

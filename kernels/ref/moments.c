/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of optimizers that keep means of whole matrices, as
 * formulas. */
#include <math.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

int ref_average(struct plait_queue *q, float *y, const float *x, float scale,
                float weight, size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++)
        y[i] = (float)(y[i] + weight * ((double)scale * x[i] - y[i]));
    return 0;
}

int ref_average_squares(struct plait_queue *q, float *y, const float *x,
                        float scale, float weight, size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++) {
        double s = (double)scale * x[i];

        y[i] = (float)(y[i] + weight * (s * s - y[i]));
    }
    return 0;
}

int ref_divide_root(struct plait_queue *q, float *x, const float *v,
                    float scale, float least, float eps, size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++) {
        double under = v[i] < least ? least : v[i];

        x[i] = (float)((double)scale * x[i] / (sqrt(under) + eps));
    }
    return 0;
}

/* Computes one row or column sum at a time, so that each is rounded once. */
int ref_factor_sums(struct plait_queue *q, float *rows, float *cols,
                    const float *x, size_t first, size_t n, size_t C)
{
    size_t end = first + n;

    (void)q;
    for (size_t i = first / C; i * C < end; i++) {
        double sum = 0;

        for (size_t k = i * C; k < (i + 1) * C; k++)
            if (k >= first && k < end)
                sum += (double)x[k - first] * x[k - first];
        rows[i] = (float)(rows[i] + sum);
    }
    for (size_t j = 0; j < C; j++) {
        double sum = 0;

        for (size_t k = first + (j + C - first % C) % C; k < end; k += C)
            sum += (double)x[k - first] * x[k - first];
        cols[j] = (float)(cols[j] + sum);
    }
    return 0;
}

int ref_factor_divide(struct plait_queue *q, float *x, const float *rows,
                      const float *cols, const float *mean, float scale,
                      float eps, size_t first, size_t n, size_t C)
{
    double least = (double)eps * eps, whole = mean[0] < eps ? eps : mean[0];

    (void)q;
    for (size_t k = first; k < first + n; k++) {
        double v = (double)rows[k / C] * cols[k % C] / whole;

        x[k - first] =
            (float)((double)scale * x[k - first] / sqrt(v < least ? least : v));
    }
    return 0;
}

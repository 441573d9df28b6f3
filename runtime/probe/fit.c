/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/probe/fit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double plait_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Each sample, divided by its seconds, is an equation x alpha + y / bw = 1. */
int plait_fit(const struct plait_sample *samples, int n, double *alpha,
              double *bandwidth)
{
    double xx = 0, xy = 0, yy = 0, x1 = 0, y1 = 0, determinant, a, slope;

    for (int i = 0; i < n; i++) {
        double x = samples[i].rounds / samples[i].seconds;
        double y = samples[i].bytes / samples[i].seconds;

        xx += x * x;
        xy += x * y;
        yy += y * y;
        x1 += x;
        y1 += y;
    }
    determinant = xx * yy - xy * xy;
    a = (x1 * yy - y1 * xy) / determinant;
    slope = (y1 * xx - x1 * xy) / determinant;
    if (!(determinant > 0) || a < 0) { /* the best fit with alpha = 0 */
        a = 0;
        slope = y1 / yy;
    }
    if (!(slope > 0) || !isfinite(slope) || !isfinite(a)) {
        errno = EDOM;
        return -1;
    }
    *alpha = a;
    *bandwidth = 1 / slope;
    return 0;
}

double plait_fit_error(const struct plait_sample *samples, int n, double alpha,
                       double bandwidth)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        double t = samples[i].rounds * alpha + samples[i].bytes / bandwidth;
        double off = t / samples[i].seconds - 1;

        sum += off * off;
    }
    return n ? sqrt(sum / n) : 0;
}

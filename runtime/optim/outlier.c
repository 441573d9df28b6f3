/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/outlier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST (PLAIT_OUTLIER_WINDOW / 4)
#define LIMIT 6.0
/* Standard deviation / median absolute deviation of a normal distribution. */
#define NORMAL 1.4826
/* Relative to the median: smaller deviations are rounding errors. */
#define ROUNDING 1e-6

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of x[n]; sorts x. */
static double take_median(double *x, int n)
{
    qsort(x, n, sizeof(*x), compare_numbers);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

double plait_outlier_score(const struct plait_outlier_window *w, double x)
{
    double at[PLAIT_OUTLIER_WINDOW], median, deviation;

    if (w->n < LEAST || !isfinite(x))
        return NAN;
    memcpy(at, w->at, w->n * sizeof(*at));
    median = take_median(at, w->n);
    for (int i = 0; i < w->n; i++)
        at[i] = fabs(w->at[i] - median);
    deviation = NORMAL * take_median(at, w->n);
    if (!(deviation > ROUNDING * fabs(median)))
        deviation = ROUNDING * fabs(median);
    return x == median ? 0 : (x - median) / deviation;
}

void plait_outlier_add(struct plait_outlier_window *w, double x)
{
    if (!isfinite(x))
        return;
    w->at[w->next] = x;
    w->next = (w->next + 1) % PLAIT_OUTLIER_WINDOW;
    if (w->n < PLAIT_OUTLIER_WINDOW)
        w->n++;
}

bool plait_outlier_is(double score)
{
    return score > LIMIT;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/metrics/divergence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_ABOVE = 3 };
#define LEAST_RISE 1.0

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double take_median(const struct plait_divergence *d)
{
    double at[PLAIT_DIVERGENCE_WINDOW];

    memcpy(at, d->at, sizeof(at));
    qsort(at, PLAIT_DIVERGENCE_WINDOW, sizeof(*at), compare_numbers);
    return at[PLAIT_DIVERGENCE_WINDOW / 2];
}

bool plait_divergence_add(struct plait_divergence *d, int64_t step, double loss)
{
    if (!isfinite(loss) || d->said)
        return false;
    if (d->seen == 0) {
        d->first = d->best = loss;
        d->best_step = step;
    }
    d->at[d->seen++ % PLAIT_DIVERGENCE_WINDOW] = loss;
    if (d->seen < PLAIT_DIVERGENCE_WINDOW)
        return false;
    d->level = take_median(d);
    if (d->level <= d->best) {
        d->best = d->level;
        d->best_step = step;
    }
    d->above = d->level - d->best > fmax(LEAST_RISE, (d->first - d->best) / 2)
                   ? d->above + 1
                   : 0;
    d->said = d->above >= STEPS_ABOVE;
    return d->said;
}

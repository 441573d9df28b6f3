/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_ROPE_H
#define PLAIT_KERNELS_ROPE_H

#include <math.h>
#include <stdbool.h>

#include "kernels/kernels.h"

/* Columns of a head that are rotated. */
static inline int plait_rope_columns(const struct plait_rope *r)
{
    return r->columns ? r->columns : r->head_dim;
}

/* The angle in radians that pair d of a head of D columns turns per
 * position. */
static inline double plait_rope_step(const struct plait_rope_angles *a,
                                     size_t d, int D)
{
    double f = pow(a->theta, -2 * (double)d / D), s;

    if (a->pairs)
        return f / a->pairs[d];
    if (!(a->factor > 1))
        return f;
    s = a->original ? a->original * f / (2 * 3.14159265358979323846)
                    : (double)d;
    s = (s - a->low) / (a->high - a->low);
    s = fmin(fmax(s, 0), 1);
    return f * ((1 - s) / a->factor + s);
}

static inline double plait_rope_size(const struct plait_rope_angles *a)
{
    return a->size > 0 ? a->size : 1;
}

/* The pair of D columns that turns `turns` times in the original context. */
static inline double plait_rope_pair(const struct plait_rope_angles *a,
                                     double turns, int D)
{
    return D * log(a->original / (turns * 2 * 3.14159265358979323846)) /
           (2 * log(a->theta));
}

/* YaRN (Peng et al. 2023), as the package transformers has it: from how many
 * turns in the original context pairs slow down (high) and are slowed by the
 * whole factor (low), to the pairs between which they do so evenly. `whole`:
 * these are rounded outwards. */
static inline void plait_rope_yarn(struct plait_rope_angles *a, int D,
                                   bool whole)
{
    double from = plait_rope_pair(a, a->high, D);
    double to = plait_rope_pair(a, a->low, D);

    if (whole) {
        from = floor(from);
        to = ceil(to);
    }
    a->high = fmax(from, 0);
    a->low = fmin(to, D - 1);
    if (a->low == a->high)
        a->low += 0.001;
    a->original = 0;
}

#endif

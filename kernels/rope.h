/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_ROPE_H
#define PLAIT_KERNELS_ROPE_H

#include <math.h>

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

    if (!(a->factor > 1))
        return f;
    s = (a->original * f / (2 * 3.14159265358979323846) - a->low) /
        (a->high - a->low);
    s = fmin(fmax(s, 0), 1);
    return f * ((1 - s) / a->factor + s);
}

#endif

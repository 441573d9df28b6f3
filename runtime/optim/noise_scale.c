/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/noise_scale.h"

#include <math.h>

#define DECAY 0.98

void plait_noise_scale_add(struct plait_noise_scale *s, double big,
                           double big_square, double small, double small_square)
{
    double square, trace;

    if (!isfinite(big_square) || !isfinite(small_square))
        return;
    square = (big * big_square - small * small_square) / (big - small);
    trace = (small_square - big_square) / (1 / small - 1 / big);
    s->square = DECAY * s->square + (1 - DECAY) * square;
    s->trace = DECAY * s->trace + (1 - DECAY) * trace;
    s->weight = DECAY * s->weight + (1 - DECAY);
}

/* Both averages are biased towards 0 by the same factor, which the ratio
 * cancels. */
double plait_noise_scale_value(const struct plait_noise_scale *s)
{
    if (s->weight == 0 || !(s->square > 0) || !(s->trace > 0))
        return NAN;
    return s->trace / s->square;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of a step: warm-up, schedule and decay, and the factor by
 * which gradients are clipped. */
#include "config.h"

#include "runtime/optim/optim.h"

#include <math.h>

double plait_lr_peak(const struct plait_lr_config *lr, double rate, int batch)
{
    double ratio = lr->base_batch > 0 ? (double)batch / lr->base_batch : 1;

    return rate * (lr->scaling == PLAIT_LR_SCALING_SQRT ? sqrt(ratio) : ratio);
}

/* The rate during warm-up, as a fraction of the peak. */
static double warm_share(const struct plait_lr_config *lr, int64_t step)
{
    double from = lr->warmup_from;

    if (lr->warmup_shape == PLAIT_LR_WARMUP_CONSTANT)
        return from;
    return from + (1 - from) * (step + 1) / lr->warmup;
}

static double step_share(const struct plait_lr_config *lr, int64_t step)
{
    double share = 1;

    for (int i = 0; i < lr->decay_at.n && step >= lr->decay_at.at[i]; i++)
        share *= lr->decay_by;
    return share > lr->min ? share : lr->min;
}

/* The rate after warm-up, as a fraction of the way from the minimum to the
 * peak; done: the fraction of those steps already made, 0 .. 1. */
static double way_left(const struct plait_lr_config *lr, double done)
{
    switch (lr->schedule) {
    case PLAIT_LR_COSINE:
        return 0.5 * (1 + cos(acos(-1.0) * done));
    case PLAIT_LR_LINEAR:
        return 1 - done;
    case PLAIT_LR_WSD:
        return done <= lr->stable ? 1 : (1 - done) / (1 - lr->stable);
    default:
        return 1;
    }
}

double plait_lr(const struct plait_lr_config *lr, double peak, int64_t step,
                int64_t steps)
{
    double done;

    if (step < lr->warmup)
        return peak * warm_share(lr, step);
    if (lr->schedule == PLAIT_LR_STEP)
        return peak * step_share(lr, step);
    if (steps <= lr->warmup)
        return peak;
    done = (double)(step - lr->warmup) / (steps - lr->warmup);
    if (done > 1)
        done = 1;
    return peak * (lr->min + (1 - lr->min) * way_left(lr, done));
}

double plait_lr_share(const struct plait_lr_config *lr, int64_t step,
                      int64_t steps, struct plait_lr_sum *sum)
{
    double rate = 0;

    if (step <= sum->steps)
        *sum = (struct plait_lr_sum){0};
    for (; sum->steps < step; sum->steps++) {
        rate = plait_lr(lr, 1, sum->steps, steps);
        sum->squares += rate * rate;
    }
    /* 0 before any step has been taken: the first may be skipped. */
    return sum->squares > 0 ? rate * rate / sum->squares : 0;
}

float plait_clip(double norm, double clip, double loss_scale)
{
    if (!isfinite(norm))
        return NAN;
    if (clip <= 0)
        return 1 / loss_scale;
    return fmin(1, clip / (norm + 1e-6)) / loss_scale;
}

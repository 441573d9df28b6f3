/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/optim.h"

#include <math.h>
#include <string.h>

double plait_lr_peak(const struct plait_lr_config *lr, double rate, int batch)
{
    double ratio = lr->base_batch > 0 ? (double)batch / lr->base_batch : 1;

    return rate * (lr->scaling == PLAIT_LR_SQRT ? sqrt(ratio) : ratio);
}

double plait_lr(const struct plait_lr_config *lr, double peak, int64_t step,
                int64_t steps)
{
    double done, left;

    if (step < lr->warmup)
        return peak * (step + 1) / lr->warmup;
    if (!strcmp(lr->schedule, "constant") || steps <= lr->warmup)
        return peak;
    done = (double)(step - lr->warmup) / (steps - lr->warmup);
    if (done > 1)
        done = 1;
    left = 1 - done;
    if (!strcmp(lr->schedule, "cosine"))
        left = 0.5 * (1 + cos(acos(-1.0) * done));
    return peak * (lr->min + (1 - lr->min) * left);
}

float plait_clip(double norm, double clip, double loss_scale)
{
    if (!isfinite(norm))
        return NAN;
    if (clip <= 0)
        return 1 / loss_scale;
    return fmin(1, clip / (norm + 1e-6)) / loss_scale;
}

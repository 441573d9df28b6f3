/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "runtime/optim/optim.h"
#include "tap.h"

static int close_to(double a, double b)
{
    return fabs(a - b) <= 1e-12 + 1e-12 * fabs(b);
}

static void check_lr(void)
{
    struct plait_lr_config lr = {
        .schedule = "cosine", .warmup = 10, .min = 0.1};

    ok(close_to(plait_lr(&lr, 2, 0, 110), 0.2), "first warm-up step");
    ok(close_to(plait_lr(&lr, 2, 9, 110), 2), "last warm-up step is the peak");
    ok(close_to(plait_lr(&lr, 2, 10, 110), 2), "cosine starts at the peak");
    ok(close_to(plait_lr(&lr, 2, 60, 110), 0.2 + 1.8 / 2), "cosine, half way");
    ok(close_to(plait_lr(&lr, 2, 110, 110), 0.2), "cosine ends at the least");
    ok(close_to(plait_lr(&lr, 2, 500, 110), 0.2), "and stays there");
    lr.schedule = "linear";
    ok(close_to(plait_lr(&lr, 2, 35, 110), 0.2 + 1.8 * 0.75), "linear");
    lr.schedule = "constant";
    ok(close_to(plait_lr(&lr, 2, 109, 110), 2), "constant");
    lr.warmup = 0;
    lr.schedule = "cosine";
    ok(close_to(plait_lr(&lr, 2, 0, 100), 2), "no warm-up");
    lr.warmup = 100;
    ok(close_to(plait_lr(&lr, 2, 49, 20), 1), "warm-up longer than the run");
}

static void check_peak(void)
{
    struct plait_lr_config lr = {.scaling = PLAIT_LR_LINEAR};

    ok(plait_lr_peak(&lr, 0.1, 8192) == 0.1, "a rate for any batch");
    lr.base_batch = 256;
    ok(close_to(plait_lr_peak(&lr, 0.1, 8192), 3.2), "32 times the batch");
    ok(close_to(plait_lr_peak(&lr, 0.1, 64), 0.025), "a quarter of it");
    lr.scaling = PLAIT_LR_SQRT;
    ok(close_to(plait_lr_peak(&lr, 0.1, 4096), 0.4), "by the root");
}

static void check_clip(void)
{
    ok(plait_clip(0.5, 1, 1) == 1, "a small gradient stays");
    ok(fabs(plait_clip(4, 1, 1) - 0.25) < 1e-6, "a large one is scaled");
    ok(plait_clip(4, 0, 1) == 1, "clip 0 clips nothing");
    ok(fabs(plait_clip(4, 1, 1024) * 1024 - 0.25) < 1e-6,
       "the loss scale is taken off");
    ok(isnan(plait_clip(INFINITY, 1, 1)) && isnan(plait_clip(NAN, 0, 1)),
       "no number: the step is skipped");
}

static void check_loss_scale(void)
{
    struct plait_train_config c = {.precision = PLAIT_BF16};
    struct plait_loss_scale s;
    int i;

    plait_loss_scale_init(&s, &c);
    plait_loss_scale_update(&s, true);
    ok(s.scale == 1 && s.skipped == 0, "bf16 needs no loss scale");
    c.precision = PLAIT_FP16;
    plait_loss_scale_init(&s, &c);
    ok(s.scale == 65536, "fp16 begins at 2^16");
    for (i = 0; i < 1999; i++)
        plait_loss_scale_update(&s, false);
    ok(s.scale == 65536, "1999 clean steps change nothing");
    plait_loss_scale_update(&s, false);
    ok(s.scale == 131072, "the 2000th doubles it");
    for (i = 0; i < 1999; i++)
        plait_loss_scale_update(&s, false);
    plait_loss_scale_update(&s, true);
    ok(s.scale == 65536 && s.clean == 0 && s.skipped == 1,
       "an overflow halves it and starts the count anew");
    c.loss_scale = 1024;
    plait_loss_scale_init(&s, &c);
    ok(s.scale == 1024, "or fp16 begins where it is told to");
}

int main(void)
{
    check_lr();
    check_peak();
    check_clip();
    check_loss_scale();
    return done_testing();
}

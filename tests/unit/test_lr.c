/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "runtime/optim/growth.h"
#include "runtime/optim/optim.h"
#include "tap.h"

static int close_to(double a, double b)
{
    return fabs(a - b) <= 1e-12 + 1e-12 * fabs(b);
}

static void check_lr(void)
{
    struct plait_lr_config lr = {
        .schedule = PLAIT_LR_COSINE, .warmup = 10, .min = 0.1};

    ok(close_to(plait_lr(&lr, 2, 0, 110), 0.2), "first warm-up step");
    ok(close_to(plait_lr(&lr, 2, 9, 110), 2), "last warm-up step is the peak");
    ok(close_to(plait_lr(&lr, 2, 10, 110), 2), "cosine starts at the peak");
    ok(close_to(plait_lr(&lr, 2, 60, 110), 0.2 + 1.8 / 2), "cosine, half way");
    ok(close_to(plait_lr(&lr, 2, 110, 110), 0.2), "cosine ends at the least");
    ok(close_to(plait_lr(&lr, 2, 500, 110), 0.2), "and stays there");
    lr.schedule = PLAIT_LR_LINEAR;
    ok(close_to(plait_lr(&lr, 2, 35, 110), 0.2 + 1.8 * 0.75), "linear");
    lr.schedule = PLAIT_LR_CONSTANT;
    ok(close_to(plait_lr(&lr, 2, 109, 110), 2), "constant");
    lr.warmup = 0;
    lr.schedule = PLAIT_LR_COSINE;
    ok(close_to(plait_lr(&lr, 2, 0, 100), 2), "no warm-up");
    lr.warmup = 100;
    ok(close_to(plait_lr(&lr, 2, 49, 20), 1), "warm-up longer than the run");
}

/* Checks plait_lr()'s formulas step by step against their closed form. */
static void check_warmup(void)
{
    struct plait_lr_config lr = {
        .schedule = PLAIT_LR_CONSTANT, .warmup = 120, .warmup_from = 0.25};
    double gradual = 0.25;
    int i, good = 1;

    for (i = 0; i < 300; i++) {
        if (i < 120)
            gradual += 0.75 / 120;
        good &= close_to(plait_lr(&lr, 3, i, 300), 3 * gradual);
    }
    ok(good, "a gradual warm-up adds the same every step, 300 steps");
    lr.warmup_shape = PLAIT_LR_WARMUP_CONSTANT;
    for (good = 1, i = 0; i < 300; i++)
        good &= plait_lr(&lr, 3, i, 300) == (i < 120 ? 0.75 : 3);
    ok(good, "a constant one stays where it starts, 300 steps");
}

static void check_step(void)
{
    int64_t at[] = {60, 61, 200};
    struct plait_lr_config lr = {.schedule = PLAIT_LR_STEP,
                                 .warmup = 20,
                                 .decay_at = {.n = 3, .at = at},
                                 .decay_by = 0.2};
    double want;
    int i, good = 1;

    for (i = 0; i < 300; i++) {
        want = i < 20 ? 2 * (i + 1) / 20. : 2;
        want *= i < 60 ? 1 : i < 61 ? 0.2 : i < 200 ? 0.04 : 0.008;
        good &= close_to(plait_lr(&lr, 2, i, 300), want);
    }
    ok(good, "step: falls after 60, 61 and 200 steps, 300 steps");
    lr.min = 0.03;
    ok(close_to(plait_lr(&lr, 2, 250, 300), 0.06), "but not below the least");
}

static void check_wsd(void)
{
    struct plait_lr_config lr = {
        .schedule = PLAIT_LR_WSD, .warmup = 50, .min = 0.1, .stable = 0.75};
    double want = 2;
    int i, good = 1;

    /* 450 steps after the warm-up: 337.5 at the peak, 112.5 decreasing */
    for (i = 0; i < 500; i++) {
        want = i < 50 ? 2 * (i + 1) / 50. : 2;
        if (i - 50 > 337.5)
            want -= 1.8 * (i - 50 - 337.5) / 112.5;
        good &= close_to(plait_lr(&lr, 2, i, 500), want);
    }
    ok(good, "wsd: up, along, down, 500 steps");
    ok(close_to(plait_lr(&lr, 2, 500, 500), 0.2), "to the least");
    lr.stable = 1;
    ok(plait_lr(&lr, 2, 500, 500) == 2, "stable 1 never falls");
    lr.stable = 0;
    ok(close_to(plait_lr(&lr, 2, 275, 500), 1.1), "stable 0 is linear");
}

static void check_growth(void)
{
    int64_t at[] = {3, 48, 7, 12, 100, 96};
    struct plait_job_config c = {.train.global_batch = 24,
                                 .batch.growth = {.n = 3, .at = at}};
    struct plait_growth g = {0};
    int i, good = 1;

    for (i = 0; i < 200; i++)
        good &= plait_growth_batch(&g, &c, i) == (i < 3     ? 24
                                                  : i < 7   ? 48
                                                  : i < 100 ? 12
                                                            : 96);
    ok(good, "the batch of each step, 200 steps");
    ok(plait_growth_most(&c) == 96, "and the largest");
    c.batch.growth.n = 0;
    ok(plait_growth_batch(&g, &c, 1000) == 24, "no growth: always the same");
}

static void check_peak(void)
{
    struct plait_lr_config lr = {.scaling = PLAIT_LR_SCALING_LINEAR};

    ok(plait_lr_peak(&lr, 0.1, 8192) == 0.1, "a rate for any batch");
    lr.base_batch = 256;
    ok(close_to(plait_lr_peak(&lr, 0.1, 8192), 3.2), "32 times the batch");
    ok(close_to(plait_lr_peak(&lr, 0.1, 64), 0.025), "a quarter of it");
    lr.scaling = PLAIT_LR_SCALING_SQRT;
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
    check_warmup();
    check_step();
    check_wsd();
    check_growth();
    check_peak();
    check_clip();
    check_loss_scale();
    return done_testing();
}

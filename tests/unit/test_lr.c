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
    struct plait_lr_config lr = {"cosine", 10, 0.1};

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

int main(void)
{
    check_lr();
    check_clip();
    return done_testing();
}

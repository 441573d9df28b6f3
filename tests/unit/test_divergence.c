/* SPDX-License-Identifier: Apache-2.0 */
/* When a rising loss is called a divergence, and of which step the best is. */
#include <math.h>

#include "runtime/train/metrics/divergence.h"
#include "tap.h"

/* A loss that falls from 10 to 3 in 100 steps, with some noise. */
static double falling(int64_t step)
{
    return 3 + 7 * exp(-(double)step / 25) + 0.3 * sin((double)(7 * step));
}

/* Adds steps up to the last; the step that is called one, or 0. */
static int64_t run(struct plait_divergence *d, double (*loss)(int64_t),
                   int64_t last)
{
    int64_t said = 0, times = 0;

    *d = (struct plait_divergence){.seen = 0};
    for (int64_t step = 1; step <= last; step++)
        if (plait_divergence_add(d, step, loss(step))) {
            said = step;
            times++;
        }
    return times > 1 ? -1 : said;
}

static double one_spike(int64_t step)
{
    return step == 60 ? 1000 : falling(step);
}

static double rising(int64_t step)
{
    return step < 60 ? falling(step) : 8.5;
}

static double at_once(int64_t step)
{
    return step == 1 ? 5.5 : 1543;
}

static double overflow(int64_t step)
{
    return step < 60 ? falling(step) : INFINITY;
}

static double level(int64_t step)
{
    return 2 + 0.5 * sin((double)(3 * step));
}

int main(void)
{
    struct plait_divergence d;
    int64_t step;

    ok(run(&d, falling, 300) == 0, "a loss that falls is none");
    ok(run(&d, level, 3000) == 0, "nor is one that varies");
    ok(run(&d, one_spike, 300) == 0, "nor a single high loss");
    ok(run(&d, overflow, 300) == 0, "what is no number is told elsewhere");
    step = run(&d, rising, 300);
    ok(step >= 65 && step <= 75, "a loss that stays high is one, once");
    ok(d.best_step > 50 && d.best_step < 66,
       "and the step before it rose is known");
    ok(fabs(d.best - 3.7) < 0.5 && fabs(d.level - 8.5) < 1e-9,
       "with both losses");
    step = run(&d, at_once, 30);
    ok(step > 0 && step <= 15 && d.best_step == 1,
       "so is one that rises at once");
    return done_testing();
}

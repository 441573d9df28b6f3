/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "runtime/train/watchdog/straggler.h"
#include "tap.h"

static struct plait_rank_times times;

static void take(const float *seconds, const int *stage, int n)
{
    if (plait_rank_times(seconds, stage, n, &times) < 0)
        exit(99);
}

int main(void)
{
    static const int one[5] = {0}, pairs[4] = {0, 0, 1, 1},
                     alone[3] = {0, 1, 2};
    struct plait_straggler who = {.rank = -1};
    int said = 0;

    take((float[]){2, 1, 4, 2, 3}, one, 5);
    ok(times.min == 1 && times.median == 2 && times.max == 4 &&
           times.slowest == 2,
       "min, median, max and the slowest of five");
    ok(times.behind == 2 && times.ratio == 2, "... which is twice the median");
    take((float[]){1, 1, 3, 3}, pairs, 4);
    ok(times.slowest >= 2 && times.ratio == 1,
       "a stage with more work is not behind");
    take((float[]){1, 1.5F, 3, 3}, pairs, 4);
    ok(times.behind == 1 && times.ratio == 1.5,
       "of two the one is behind the other");
    take((float[]){1, 2, 9}, alone, 3);
    ok(times.behind == -1 && times.ratio == 1, "nobody with the same work");
    take((float[]){0, 0}, one, 2);
    ok(times.ratio == 1, "no time at all");

    take((float[]){1, 1, 1.4F}, one, 3);
    for (int64_t step = 10; step <= 200; step += 10)
        if (plait_straggler_update(&who, &times, step, 10) && !said++)
            ok(step == 50 && who.rank == 2 && who.since == 0,
               "who is behind for 50 steps is named");
    ok(said == 1, "... once");
    take((float[]){1, 1, 1.2F}, one, 3);
    ok(!plait_straggler_update(&who, &times, 210, 10) && who.rank == -1,
       "one that has caught up");
    take((float[]){1, 1, 1.4F}, one, 3);
    said = 0;
    for (int64_t step = 220; step <= 250; step += 10)
        said += plait_straggler_update(&who, &times, step, 10);
    ok(said == 0 && plait_straggler_update(&who, &times, 260, 10),
       "... and is behind again: after 50 steps");
    return done_testing();
}

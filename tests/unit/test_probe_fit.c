/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/probe/fit.h"
#include "tap.h"

enum { SIZES = 10 };

/* Times of messages over a link of known alpha and bandwidth, each off by up to
 * `noise`. */
static void make(struct plait_sample *samples, double rounds, double alpha,
                 double bandwidth, double noise)
{
    for (int i = 0; i < SIZES; i++) {
        double bytes = 256 * pow(4, i);
        double off = 1 + noise * (2.0 * rand() / RAND_MAX - 1);

        samples[i] = (struct plait_sample){
            rounds, bytes, (rounds * alpha + bytes / bandwidth) * off};
    }
}

static int near(double got, double want, double part)
{
    return fabs(got - want) <= part * want;
}

int main(void)
{
    double odd[] = {5, 1, 100}, even[] = {4, 1, 3, 1000};
    double alpha = -1, bandwidth = -1;
    struct plait_sample s[SIZES];

    ok(plait_median(odd, 3) == 5 && plait_median(even, 4) == 3.5,
       "the median of an odd and of an even number");
    make(s, 1, 5e-6, 46e9, 0);
    ok(plait_fit(s, SIZES, &alpha, &bandwidth) == 0 &&
           near(alpha, 5e-6, 1e-9) && near(bandwidth, 46e9, 1e-9),
       "exact times give the link back: %.3g s, %.4g B/s", alpha, bandwidth);
    ok(plait_fit_error(s, SIZES, alpha, bandwidth) < 1e-9, "without an error");
    make(s, 14, 3e-6, 300e9, 0.1);
    ok(plait_fit(s, SIZES, &alpha, &bandwidth) == 0 && near(alpha, 3e-6, 0.1) &&
           near(bandwidth, 300e9, 0.1),
       "times off by 10 %% give it to 10 %%: %.3g s, %.4g B/s", alpha,
       bandwidth);
    make(s, 1, 0, 10e9, 0.05);
    ok(plait_fit(s, SIZES, &alpha, &bandwidth) == 0 && alpha >= 0 &&
           alpha < 1e-8 && near(bandwidth, 10e9, 0.1),
       "no latency is never a negative one");
    make(s, 1, 5e-6, 1e300, 0);
    alpha = bandwidth = -1;
    ok(plait_fit(s, SIZES, &alpha, &bandwidth) < 0 || bandwidth > 1e15,
       "times that do not grow give no low bandwidth");
    s[0].seconds = INFINITY;
    for (int i = 0; i < SIZES; i++)
        s[i].bytes = 0;
    alpha = bandwidth = -1;
    errno = 0;
    ok(plait_fit(s, SIZES, &alpha, &bandwidth) < 0 && errno == EDOM &&
           alpha == -1 && bandwidth == -1,
       "samples that tell nothing are refused, outputs untouched");
    return done_testing();
}

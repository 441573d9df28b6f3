/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/goodput.h"

#include <math.h>

double plait_failures_between(double prior, double ran, int failures)
{
    return (prior + fmax(ran, 0)) / (1 + failures);
}

double plait_checkpoint_interval(double save, double between)
{
    double x = save / (2 * between);

    if (!(x > 0))
        return save > 0 ? save : 0;
    if (x >= 1)
        return between;
    return sqrt(2 * save * between) * (1 + sqrt(x) / 3 + x / 9) - save;
}

double plait_expected_goodput(const struct plait_failure_costs *c, double ran)
{
    double repeated = c->every > 0 ? c->every / 2 : ran / 2;
    double left = 1 - (c->start + repeated) / c->between;
    double time = 1 + c->wait / c->between;

    if (c->every > 0)
        time += c->save / c->every;
    return fmax(0, left) / time;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "records.h"
#include "tap.h"
#include "topology/predict/estimate.h"

/* Finds the constants of gpu_types.c: three for a family of types, by changing
 * one at a time while the error of the fitted half decreases. The weight of a
 * set is the square root of its rows. */

enum { CONSTANTS = 3 };

/* Dense models have no rows in 16 bits on GB200 and GB300. */
static int counts(const struct record *r)
{
    return !r->moe || (r->config->train.precision == PLAIT_BF16 &&
                       strncmp(r->gpu, "gb", 2) == 0);
}

static int is_of(const struct record *r, const char *family)
{
    return r->fit && counts(r) && strncmp(r->gpu, family, strlen(family)) == 0;
}

static int rows_of(const struct records *all, const char *set,
                   const char *family)
{
    int n = 0;

    for (int i = 0; i < all->n; i++)
        n += is_of(&all->at[i], family) && strcmp(all->at[i].set, set) == 0;
    return n;
}

/* The weighted mean of |x| + x^2, x = log(predicted / measured), with |x|
 * smoothed near 0. */
static double error_of(const struct records *all, const char *family,
                       const double at[CONSTANTS])
{
    double sum = 0, weights = 0;

    for (int i = 0; i < all->n; i++) {
        const struct record *r = &all->at[i];
        struct plait_gpu_type gpu;
        double ratio, weight;

        if (!is_of(r, family))
            continue;
        record_gpu(r, &gpu);
        gpu.matmul = at[0];
        gpu.matmul8 = at[1];
        gpu.attention = at[2];
        if (record_predict(r, &gpu, &ratio, NULL) < 0)
            continue;
        weight = 1 / sqrt(rows_of(all, r->set, family));
        ratio = log(ratio / r->measured);
        sum += weight * (sqrt(ratio * ratio + 1e-4) + ratio * ratio);
        weights += weight;
    }
    return sum / weights;
}

static int move(const struct records *all, const char *family,
                double at[CONSTANTS], double step, double *best)
{
    static const double most[CONSTANTS] = {0.88, 0.88, 0.80};
    int moved = 0;

    for (int k = 0; k < 2 * CONSTANTS; k++) {
        double tried[CONSTANTS], error;

        memcpy(tried, at, sizeof(tried));
        tried[k / 2] += k % 2 ? step : -step;
        tried[k / 2] = fmin(most[k / 2], fmax(0.1, tried[k / 2]));
        error = error_of(all, family, tried);
        if (error < *best) {
            *best = error;
            memcpy(at, tried, sizeof(tried));
            moved = 1;
        }
    }
    return moved;
}

void records_fit(const struct records *all)
{
    static const char *const families[] = {"a100", "h", "b200", "gb200",
                                           "gb300"};

    for (int i = 0; i < 5; i++) {
        double at[CONSTANTS] = {0.8, 0.7, 0.55}, step = 0.1;
        double best = error_of(all, families[i], at);

        for (int round = 0; round < 100; round++)
            if (!move(all, families[i], at, step, &best))
                step *= 0.6;
        diag("%s*: matmul %.3f, matmul8 %.3f, attention %.3f", families[i],
             at[0], at[1], at[2]);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"
#include "tap.h"
#include "topology/predict/estimate.h"

/* Finds the constants of gpu_types.c: three for a family of types (one where
 * there are only a few rows), by changing one at a time while the error of the
 * fitted half decreases. The weight of a set is the square root of its rows. */

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

static int move(const struct records *all, const char *family, int constants,
                double at[CONSTANTS], double step, double *best)
{
    static const double most[CONSTANTS] = {0.88, 0.88, 0.80};
    int moved = 0;

    for (int k = 0; k < 2 * constants; k++) {
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
    static const struct {
        const char *name;
        int constants;
    } families[] = {{"a100", 3},  {"h", 3},      {"b200", 3}, {"gb200", 3},
                    {"gb300", 3}, {"mi250x", 1}, {"gh200", 1}};

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        const char *name = families[i].name;
        double at[CONSTANTS] = {0.8, 0.7, 0.55}, step = 0.1, best;
        struct plait_gpu_type own;

        if (families[i].constants == 1 &&
            plait_gpu_type_find(name, &own, NULL) == 0) {
            at[1] = own.matmul8;
            at[2] = own.attention;
        }
        best = error_of(all, name, at);
        for (int round = 0; round < 100; round++)
            if (!move(all, name, families[i].constants, at, step, &best))
                step *= 0.6;
        diag("%s*: matmul %.3f, matmul8 %.3f, attention %.3f", name, at[0],
             at[1], at[2]);
    }
}

/* --- scale.h --- */

/* log(predicted / measured) of the fitted rows of a set; returns their number.
 * The level of a type whose constant is fitted after this is taken away. */
static int set_ratios(const struct records *all, const char *set,
                      double crowding, double stragglers, double *ratios)
{
    double level = 0;
    int n = 0;

    for (int i = 0; i < all->n; i++) {
        const struct record *r = &all->at[i];
        struct plait_gpu_type gpu;

        if (!r->fit || strcmp(r->set, set) != 0)
            continue;
        record_gpu(r, &gpu);
        gpu.crowding = crowding;
        gpu.stragglers = stragglers;
        if (record_predict(r, &gpu, &ratios[n], NULL) < 0)
            continue;
        ratios[n] = log(ratios[n] / r->measured);
        if (strcmp(r->gpu, "mi250x") == 0 || strcmp(r->gpu, "gh200") == 0)
            level += ratios[n];
        n++;
    }
    for (int i = 0; i < n; i++)
        ratios[i] -= level / n;
    return n;
}

static double scale_error(const struct records *all, double crowding,
                          double stragglers)
{
    double *ratios = calloc((size_t)all->n + 1, sizeof(*ratios));
    double sum = 0, weights = 0;

    for (int set = 0; ratios && records_sets[set]; set++) {
        int n =
            set_ratios(all, records_sets[set], crowding, stragglers, ratios);

        for (int i = 0; i < n; i++)
            sum +=
                (sqrt(ratios[i] * ratios[i] + 1e-4) + ratios[i] * ratios[i]) /
                sqrt(n);
        weights += sqrt(n);
    }
    free(ratios);
    return sum / weights;
}

void records_fit_scale(const struct records *all)
{
    double best = INFINITY, alone = INFINITY, only = 0, at[2] = {0, 0};

    for (int c = 0; c <= 10; c++)
        for (int s = 0; s <= 10; s++) {
            double error = scale_error(all, 0.01 * c, 0.01 * s);

            if (error < best) {
                best = error;
                at[0] = 0.01 * c;
                at[1] = 0.01 * s;
            }
            if (c == 0 && error < alone) {
                alone = error;
                only = 0.01 * s;
            }
        }
    diag("crowding %.2f, stragglers %.2f: error %.4f; stragglers alone %.2f: "
         "%.4f; neither: %.4f",
         at[0], at[1], best, only, alone, scale_error(all, 0, 0));
}

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

/* The constants `first` .. `end - 1`. */
struct family {
    const char *name;
    int first, end;
};

static int move(const struct records *all, const struct family *family,
                double at[CONSTANTS], double step, double *best)
{
    static const double most[CONSTANTS] = {0.88, 0.88, 0.80};
    int moved = 0;

    for (int k = 2 * family->first; k < 2 * family->end; k++) {
        double tried[CONSTANTS], error;

        memcpy(tried, at, sizeof(tried));
        tried[k / 2] += k % 2 ? step : -step;
        tried[k / 2] = fmin(most[k / 2], fmax(0.1, tried[k / 2]));
        error = error_of(all, family->name, tried);
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
    static const struct family families[] = {
        {"a100", 0, 3},  {"h", 0, 3},      {"b200", 0, 3},  {"gb200", 0, 3},
        {"gb300", 0, 3}, {"mi250x", 0, 1}, {"gh200", 0, 1}, {"mi35", 1, 2}};

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        const char *name = families[i].name;
        double at[CONSTANTS] = {0.8, 0.7, 0.55}, step = 0.1, best;
        struct plait_gpu_type own;

        if (families[i].end - families[i].first == 1 &&
            plait_gpu_type_find(families[i].first ? "mi355x" : name, &own,
                                NULL) == 0) {
            at[0] = own.matmul;
            at[1] = own.matmul8;
            at[2] = own.attention;
        }
        best = error_of(all, name, at);
        for (int round = 0; round < 100; round++)
            if (!move(all, &families[i], at, step, &best))
                step *= 0.6;
        diag("%s*: matmul %.3f, matmul8 %.3f, attention %.3f", name, at[0],
             at[1], at[2]);
    }
}

/* --- scale.h --- */

/* Of the GPU types whose names begin so; "": of all. */
struct scale {
    const char *family;
    double crowding, stragglers;
};

/* log(predicted / measured) of the fitted rows of a set; returns their number.
 * The level of a type whose constant is fitted after this is taken away. */
static int set_ratios(const struct records *all, const char *set,
                      const struct scale *at, double *ratios)
{
    double level = 0;
    int n = 0;

    for (int i = 0; i < all->n; i++) {
        const struct record *r = &all->at[i];
        struct plait_gpu_type gpu;

        if (!r->fit || strcmp(r->set, set) != 0 ||
            strncmp(r->gpu, at->family, strlen(at->family)) != 0)
            continue;
        record_gpu(r, &gpu);
        gpu.crowding = at->crowding;
        gpu.stragglers = at->stragglers;
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

static double scale_error(const struct records *all, const struct scale *at)
{
    double *ratios = calloc((size_t)all->n + 1, sizeof(*ratios));
    double sum = 0, weights = 0;

    for (int set = 0; ratios && records_sets[set]; set++) {
        int n = set_ratios(all, records_sets[set], at, ratios);

        for (int i = 0; i < n; i++)
            sum +=
                (sqrt(ratios[i] * ratios[i] + 1e-4) + ratios[i] * ratios[i]) /
                sqrt(n);
        weights += sqrt(n);
    }
    free(ratios);
    return sum / weights;
}

/* Stragglers for all types alike, crowding for those of a family. */
void records_fit_scale(const struct records *all)
{
    static const char *const families[] = {"a100", "h", "b", "gb", "mi250x"};
    struct scale at = {"", 0, 0}, best = at;
    double least = INFINITY, error;

    for (int s = 0; s <= 10; s++) {
        at.stragglers = 0.01 * s;
        error = scale_error(all, &at);
        if (error < least) {
            least = error;
            best = at;
        }
    }
    diag("stragglers alone %.2f: error %.4f", best.stragglers, least);
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        at = best = (struct scale){families[i], 0, 0.05};
        least = INFINITY;
        for (int c = 0; c <= 10; c++) {
            at.crowding = 0.01 * c;
            error = scale_error(all, &at);
            if (c == 0)
                diag("%s: without crowding %.4f", families[i], error);
            if (error < least) {
                least = error;
                best = at;
            }
        }
        diag("%s: crowding %.2f: error %.4f", families[i], best.crowding,
             least);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/moments.h"
#include "ops_cases.h"

/* -- averages and roots: {n} -------------------------------------------- */

static void setup_average(struct trial *t, const int *s)
{
    real32(t, product(s, 1));
    real32(t, product(s, 1));
}

static struct plait_average average_of(struct trial_side *d, const int *s)
{
    return (struct plait_average){.n = product(s, 1),
                                  .scale = 0.7f,
                                  .weight = 0.1f,
                                  .x = d->p[1],
                                  .y = d->p[0]};
}

static int call_average(struct trial_side *d, const int *s)
{
    struct plait_average a = average_of(d, s);

    return d->ops->average(d->q, &a);
}

static int call_average_squares(struct trial_side *d, const int *s)
{
    struct plait_average a = average_of(d, s);

    return d->ops->average_squares(d->q, &a);
}

static void setup_divide_root(struct trial *t, const int *s)
{
    real32(t, product(s, 1));
    trial_real(t, KIND_F32, product(s, 1), 0, 0.01);
}

static int call_divide_root(struct trial_side *d, const int *s)
{
    struct plait_divide_root root = {.n = product(s, 1),
                                     .scale = 0.7f,
                                     .least = 0.002f,
                                     .eps = 1e-3f,
                                     .v = d->p[1],
                                     .x = d->p[0]};

    return d->ops->divide_root(d->q, &root);
}

/* -- rows and columns: {n, first, C} ------------------------------------ */

static size_t nrows(const int *s)
{
    return ((size_t)s[0] + (size_t)s[1] + (size_t)s[2] - 1) / (size_t)s[2];
}

static void setup_factors(struct trial *t, const int *s)
{
    real32(t, (size_t)s[0]);
    trial_real(t, KIND_F32, nrows(s), 0, 0.01);
    trial_real(t, KIND_F32, (size_t)s[2], 0, 0.01);
    trial_real(t, KIND_F32, 1, 0.004, 0.006);
}

static struct plait_factors factors_of(struct trial_side *d, const int *s)
{
    return (struct plait_factors){.first = (size_t)s[1],
                                  .n = (size_t)s[0],
                                  .C = (size_t)s[2],
                                  .scale = 0.7f,
                                  .eps = 1e-3f,
                                  .mean = d->p[3],
                                  .rows = d->p[1],
                                  .cols = d->p[2],
                                  .x = d->p[0]};
}

static int call_factor_sums(struct trial_side *d, const int *s)
{
    struct plait_factors f = factors_of(d, s);

    return d->ops->factor_sums(d->q, &f);
}

static int call_factor_divide(struct trial_side *d, const int *s)
{
    struct plait_factors f = factors_of(d, s);

    return d->ops->factor_divide(d->q, &f);
}

const struct trial_case trial_moments[] = {
    {"average", setup_average, call_average, {{1}, {37}, {100003}}},
    {"average_squares", setup_average, call_average_squares, {{1}, {100003}}},
    {"divide_root", setup_divide_root, call_divide_root, {{1}, {100003}}},
    {"factor_sums",
     setup_factors,
     call_factor_sums,
     {{1, 0, 1},
      {35, 0, 7},
      {2, 3, 7},
      {40, 5, 7},
      {70000, 1, 1030},
      {9000, 700, 9},
      {20000, 13, 20005}}},
    {"factor_divide",
     setup_factors,
     call_factor_divide,
     {{1, 0, 1},
      {35, 0, 7},
      {2, 3, 7},
      {40, 5, 7},
      {70000, 1, 1030},
      {9000, 700, 9},
      {20000, 13, 20005}}},
    {NULL, NULL, NULL, {{0}}},
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "ops_cases.h"

/* -- sums: {n} --------------------------------------------------------- */

static void setup_sum_squares(struct trial *t, const int *s)
{
    real32(t, product(s, 1));
    trial_real(t, KIND_F64, 1, 0, 1);
}

/* Pieces of n elements, the k-th of them k longer, short or odd: how many,
 * and where each begins and how long it is. */
#define PIECES 200
static int pieces(size_t n, int wanted, size_t at[PIECES], size_t size[PIECES])
{
    size_t done = 0;
    int i;

    for (i = 0; i < wanted && i < PIECES; i++) {
        size_t left = n - done, part = n / (size_t)wanted + (size_t)i % 3;

        at[i] = done;
        size[i] = i == wanted - 1 || part > left ? left : part;
        done += size[i];
    }
    return i;
}

/* {n, pieces}, of which the second is left out */
static int call_sum_squares(struct trial_side *d, const int *s)
{
    struct plait_floats list[PIECES];
    size_t at[PIECES], size[PIECES];
    int n = pieces(product(s, 1), s[1], at, size), i, used = 0;

    for (i = 0; i < n; i++)
        if (i != 1)
            list[used++] =
                (struct plait_floats){(float *)d->p[0] + at[i], size[i]};
    return d->ops->sum_squares(d->q, d->p[1], list, used);
}

/* -- optimizer {n, stochastic, with grad_scale, with now, runs} --------- */

static void setup_adamw(struct trial *t, const int *s)
{
    size_t n = product(s, 1);
    struct plait_adamw_now *now;

    real32(t, n);
    trial_real(t, KIND_F32, n, -0.1, 0.1);
    trial_real(t, KIND_F32, n, 0, 0.01);
    real32(t, n);
    real(t, n);
    trial_real(t, KIND_F32, 1, 0.1, 1);
    now = trial_real(t, KIND_F32, sizeof(*now) / sizeof(float), 0, 0);
    *now = (struct plait_adamw_now){
        .seed = 57, .lr = 2e-2f, .correct1 = 3.7f, .correct2 = 7.0f};
}

static int call_adamw(struct trial_side *d, const int *s)
{
    struct plait_adamw p = {
        .lr = 1e-2f,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .eps = 1e-8f,
        .step = 3,
        .stochastic = s[1],
        .seed = 42,
        .grad_scale = s[2] ? d->p[5] : NULL,
        .now = s[3] ? d->p[6] : NULL,
    };

    struct plait_adamw_run run[PIECES];
    size_t at[PIECES], size[PIECES];
    int n = pieces(product(s, 1), s[4], at, size), i, used = 0;

    for (i = 0; i < n; i++)
        if (i != 1)
            run[used++] = (struct plait_adamw_run){
                .master = (float *)d->p[0] + at[i],
                .m = (float *)d->p[1] + at[i],
                .v = (float *)d->p[2] + at[i],
                .grad = (float *)d->p[3] + at[i],
                .weight = (char *)d->p[4] + at[i] * plait_dtype_size(d->type),
                .n = size[i],
                .first = 1000 + at[i],
                .weight_decay = i % 2 ? 0 : 0.1f,
            };
    return d->ops->adamw(d->q, &p, d->type, run, used);
}

static void setup_clip(struct trial *t, const int *s)
{
    double *sum = trial_real(t, KIND_F64, 1, 1, 50);

    real32(t, 1);
    real32(t, 1);
    if (s[1])
        *sum = 0;
}

static int call_clip(struct trial_side *d, const int *s)
{
    return d->ops->clip_scale(d->q, d->p[1], d->p[2], d->p[0],
                              s[2] ? 1.0f : 0.0f);
}

const struct trial_case trial_optim[] = {
    {"sum_squares",
     setup_sum_squares,
     call_sum_squares,
     {{1, 1}, {100003, 1}, {5000, 200}, {200007, 5}}},
    {"adamw",
     setup_adamw,
     call_adamw,
     {{1, 0, 0, 0, 1},
      {1001, 0, 1, 0, 1},
      {70003, 1, 1, 0, 4},
      {5000, 1, 0, 1, 130},
      {60, 0, 1, 0, 70},
      {3001, 0, 1, 1, 3}}},
    {"clip_scale", setup_clip, call_clip, {{1, 0, 1}, {1, 0, 0}, {1, 1, 1}}},
    {NULL, NULL, NULL, {{0}}},
};

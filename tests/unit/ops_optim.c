/* SPDX-License-Identifier: Apache-2.0 */
#include "ops_cases.h"

/* -- sums: {n} --------------------------------------------------------- */

static void setup_sum_squares(struct trial *t, const int *s)
{
    real32(t, product(s, 1));
    trial_real(t, KIND_F64, 1, 0, 1);
}

static int call_sum_squares(struct trial_side *d, const int *s)
{
    return d->ops->sum_squares(d->q, d->p[1], d->p[0], product(s, 1));
}

/* -- optimizer {n, stochastic, with grad_scale, with now} --------------- */

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
        .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
        .weight_decay = 0.1f, .step = 3, .stochastic = s[1], .seed = 42,
        .grad_scale = s[2] ? d->p[5] : NULL,
        .now = s[3] ? d->p[6] : NULL,
    };

    return d->ops->adamw(d->q, &p, d->p[0], d->p[1], d->p[2], d->p[3], d->type,
                         d->p[4], product(s, 1));
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
    {"sum_squares", setup_sum_squares, call_sum_squares, {{1}, {100003}}},
    {"adamw",
     setup_adamw,
     call_adamw,
     {{1, 0, 0, 0},
      {1001, 0, 1, 0},
      {70003, 1, 1, 0},
      {5000, 1, 0, 1},
      {3001, 0, 1, 1}}},
    {"clip_scale", setup_clip, call_clip, {{1, 0, 1}, {1, 0, 0}, {1, 1, 1}}},
    {NULL, NULL, NULL, {{0}}},
};

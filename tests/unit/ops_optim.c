/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/moments.h"
#include "ops_cases.h"

/* -- sums: {n} --------------------------------------------------------- */

static void setup_sum_squares(struct trial *t, const int *s)
{
    real32(t, product(s, 1));
    trial_real(t, KIND_F64, 1, 0, 1);
}

/* Divides n elements into pieces of slightly different lengths; sets where each
 * begins and how long it is, and returns how many there are. */
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

/* {n, pieces}; the second piece is left out */
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

/* -- updates -------------------------------------------------------------- */

/* {n, rule, random weights, scale and now, nesterov, runs, states, bare} */

enum { SCALE = 1, NOW = 2 }; /* bits of the fourth number */
/* The last: states of bf16, of numbers and rates such that all products are
 * exact, so that every side rounds the same sums. */
enum { FP32, RANDOM, NEAREST };
enum { BARE = 1 }; /* the eighth: weights of bf16 have no masters */

/* master, m, v, grad, weight, grad_scale, now, factors, sums */
static void setup_update(struct trial *t, const int *s)
{
    size_t n = product(s, 1);
    enum trial_kind states = s[6] ? KIND_BF16 : KIND_F32;
    struct plait_update_now *now;
    float *grad, *scale;

    real32(t, n);
    trial_real(t, states, n, -0.1, 0.1);
    trial_real(t, states, n, 0, 0.01);
    grad = real32(t, n);
    for (size_t i = 0; i < n && s[6]; i++)
        grad[i] = rintf(grad[i] * 128) / 128;
    real(t, n);
    scale = trial_real(t, KIND_F32, 1, 0.1, 1);
    *scale = s[6] ? 0.5f : *scale;
    now = trial_real(t, KIND_F32, sizeof(*now) / sizeof(float), 0, 0);
    *now = (struct plait_update_now){.seed = 57,
                                     .lr = 2e-2f,
                                     .correct1 = 3.7f,
                                     .correct2 = 7.0f,
                                     .mix = 0.07f};
    trial_real(t, KIND_F32, PIECES, 0.1, 2);
    trial_real(t, KIND_F64, 2 * PIECES, 0, 1);
}

static struct plait_update update_of(const struct trial_side *d, const int *s)
{
    return (struct plait_update){
        .rule = (enum plait_update_rule)s[1],
        .type = d->type,
        .states = s[6] ? PLAIT_BF16_T : PLAIT_F32,
        .random_states = s[6] == RANDOM,
        .lr = s[6] ? 0x1p-6f : 1e-2f,
        .mix = 0.2f,
        .beta1 = s[6] ? 0.5f : 0.9f,
        .beta2 = s[6] ? 0.5f : 0.95f,
        .eps = 1e-8f,
        .momentum = s[4] == 2 ? 0
                    : s[6]    ? 0.5f
                              : 0.9f,
        .nesterov = s[4] == 1,
        .step = 3,
        .random_weights = s[2],
        .seed = 42,
        .grad_scale = s[3] & SCALE ? d->p[5] : NULL,
        .now = s[3] & NOW ? d->p[6] : NULL,
    };
}

/* How many states the rule keeps; {.., nesterov 2}: none, without momentum. */
static int states_of(const int *s)
{
    switch (s[1]) {
    case PLAIT_UPDATE_ADAMW:
    case PLAIT_UPDATE_LAMB:
    case PLAIT_UPDATE_SCHEDULEFREE:
        return 2;
    default:
        return s[4] != 2;
    }
}

/* Lists all pieces but the second; returns how many. */
static int list_runs(const struct trial_side *d, const int *s,
                     struct plait_update_run run[PIECES])
{
    size_t at[PIECES], size[PIECES];
    int n = pieces(product(s, 1), s[5], at, size), i, k, used = 0;

    for (i = 0; i < n; i++) {
        struct plait_update_run r = {
            .master = s[7] && d->type == PLAIT_BF16_T
                          ? NULL
                          : (float *)d->p[0] + at[i],
            .grad = (float *)d->p[3] + at[i],
            .weight = (char *)d->p[4] + at[i] * plait_dtype_size(d->type),
            .n = size[i],
            .origin = {.tensor = 1000 + (uint64_t)i,
                       .row = (size_t)i * 3,
                       .column = (size_t)i * 5,
                       .columns = 1 + (size_t)i * 13 % 40 * 25,
                       .first = (size_t)i * 7},
            .weight_decay = i % 2 || s[6] ? 0 : 0.1f,
            .factor = i % 3 && !s[6] ? (float *)d->p[7] + i : NULL,
            .sums = (double *)d->p[8] + 2 * i,
        };

        for (k = 0; k < states_of(s); k++)
            r.state[k] = (char *)d->p[1 + k] + at[i] * (s[6] ? 2 : 4);
        if (i != 1)
            run[used++] = r;
    }
    return used;
}

static int call_update(struct trial_side *d, const int *s)
{
    struct plait_update p = update_of(d, s);
    struct plait_update_run run[PIECES];
    int n = list_runs(d, s, run);

    return d->ops->update(d->q, &p, run, n);
}

static int call_update_sums(struct trial_side *d, const int *s)
{
    struct plait_update p = update_of(d, s);
    struct plait_update_run run[PIECES];
    int n = list_runs(d, s, run);

    return d->ops->update_sums(d->q, &p, run, n);
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
    struct plait_clip c = {.sum_squares = d->p[0],
                           .factor = s[3] ? 1.0 / 1024 : 1.0,
                           .clip = s[2] ? 1.0 : 0.0,
                           .norm = d->p[2],
                           .scale = d->p[1]};

    return d->ops->clip_scale(d->q, &c);
}

const struct trial_case trial_optim[] = {
    {"sum_squares",
     setup_sum_squares,
     call_sum_squares,
     {{1, 1}, {100003, 1}, {5000, 200}, {200007, 5}}},
    {"AdamW",
     setup_update,
     call_update,
     {{1, PLAIT_UPDATE_ADAMW, 0, 0, 0, 1},
      {1001, PLAIT_UPDATE_ADAMW, 0, SCALE, 0, 1},
      {70003, PLAIT_UPDATE_ADAMW, 1, SCALE, 0, 4},
      {5000, PLAIT_UPDATE_ADAMW, 1, NOW, 0, 130},
      {60, PLAIT_UPDATE_ADAMW, 0, SCALE, 0, 70},
      {3001, PLAIT_UPDATE_ADAMW, 0, SCALE | NOW, 0, 3}}},
    {"SGD",
     setup_update,
     call_update,
     {{1, PLAIT_UPDATE_SGD, 0, 0, 0, 1},
      {5001, PLAIT_UPDATE_SGD, 0, SCALE, 0, 3},
      {70003, PLAIT_UPDATE_SGD, 1, SCALE, 1, 4},
      {5000, PLAIT_UPDATE_SGD, 0, NOW, 2, 130}}},
    {"LARS",
     setup_update,
     call_update,
     {{5001, PLAIT_UPDATE_LARS, 0, SCALE, 0, 3},
      {70003, PLAIT_UPDATE_LARS, 0, NOW, 1, 7},
      {5000, PLAIT_UPDATE_LARS, 0, NOW, 2, 130}}},
    {"NovoGrad",
     setup_update,
     call_update,
     {{5001, PLAIT_UPDATE_NOVOGRAD, 0, SCALE, 0, 3},
      {70003, PLAIT_UPDATE_NOVOGRAD, 1, NOW, 0, 7}}},
    {"LAMB",
     setup_update,
     call_update,
     {{5001, PLAIT_UPDATE_LAMB, 0, SCALE, 0, 3},
      {70003, PLAIT_UPDATE_LAMB, 1, NOW, 0, 7}}},
    {"Lion",
     setup_update,
     call_update,
     {{5001, PLAIT_UPDATE_DIRECTION, 0, SCALE, 0, 3},
      {1, PLAIT_UPDATE_LION, 0, 0, 0, 1},
      {5001, PLAIT_UPDATE_LION, 0, SCALE, 0, 3},
      {70003, PLAIT_UPDATE_LION, 1, NOW, 0, 7}}},
    {"schedule-free AdamW",
     setup_update,
     call_update,
     {{1, PLAIT_UPDATE_SCHEDULEFREE, 0, 0, 0, 1},
      {5001, PLAIT_UPDATE_SCHEDULEFREE, 0, SCALE, 0, 3},
      {70003, PLAIT_UPDATE_SCHEDULEFREE, 1, NOW, 0, 7},
      {5001, PLAIT_UPDATE_LEAD, 0, 0, 0, 3}}},
    {"AdamW, states of bf16",
     setup_update,
     call_update,
     {{1, PLAIT_UPDATE_ADAMW, 0, 0, 0, 1, RANDOM},
      {70003, PLAIT_UPDATE_ADAMW, 0, SCALE | NOW, 0, 4, RANDOM},
      {5000, PLAIT_UPDATE_ADAMW, 1, NOW, 0, 130, RANDOM},
      {70003, PLAIT_UPDATE_ADAMW, 0, SCALE, 0, 4, NEAREST}}},
    {"weights without masters",
     setup_update,
     call_update,
     {{1, PLAIT_UPDATE_ADAMW, 1, 0, 0, 1, FP32, BARE},
      {70003, PLAIT_UPDATE_ADAMW, 1, SCALE | NOW, 0, 4, RANDOM, BARE},
      {5000, PLAIT_UPDATE_ADAMW, 0, NOW, 0, 130, FP32, BARE},
      {5000, PLAIT_UPDATE_SGD, 1, SCALE, 2, 7, FP32, BARE},
      {5000, PLAIT_UPDATE_LAMB, 1, NOW, 0, 7, NEAREST, BARE},
      {70003, PLAIT_UPDATE_LION, 1, SCALE, 0, 7, RANDOM, BARE}}},
    {"states of bf16",
     setup_update,
     call_update,
     {{70003, PLAIT_UPDATE_SGD, 0, SCALE, 1, 4, RANDOM},
      {5000, PLAIT_UPDATE_SGD, 0, NOW, 2, 130, RANDOM},
      {70003, PLAIT_UPDATE_LARS, 0, SCALE, 0, 7, RANDOM},
      {70003, PLAIT_UPDATE_NOVOGRAD, 0, NOW, 0, 7, RANDOM},
      {70003, PLAIT_UPDATE_LAMB, 0, NOW, 0, 7, RANDOM},
      {70003, PLAIT_UPDATE_LION, 0, SCALE | NOW, 0, 7, RANDOM},
      {5001, PLAIT_UPDATE_LION, 0, SCALE, 0, 3, NEAREST}}},
    {"update_sums",
     setup_update,
     call_update_sums,
     {{1, PLAIT_UPDATE_SGD, 0, 0, 0, 1},
      {200007, PLAIT_UPDATE_LARS, 0, SCALE, 0, 5},
      {5000, PLAIT_UPDATE_NOVOGRAD, 0, NOW, 0, 130},
      {200007, PLAIT_UPDATE_LAMB, 0, SCALE | NOW, 0, 5},
      {60, PLAIT_UPDATE_LAMB, 0, SCALE, 0, 70},
      {200007, PLAIT_UPDATE_LAMB, 0, SCALE | NOW, 0, 5, RANDOM},
      {5001, PLAIT_UPDATE_LAMB, 0, SCALE, 0, 70, NEAREST},
      {5001, PLAIT_UPDATE_LARS, 0, SCALE, 0, 70, FP32, BARE},
      {5001, PLAIT_UPDATE_LAMB, 0, NOW, 0, 7, RANDOM, BARE}}},
    {"clip_scale",
     setup_clip,
     call_clip,
     {{1, 0, 1}, {1, 0, 0}, {1, 1, 1}, {1, 0, 1, 1}, {1, 0, 0, 1}}},
    {NULL, NULL, NULL, {{0}}},
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "ops_cases.h"

/* -- experts {tokens, experts, choices, C, run, sequences} --------------- */

static void whole_numbers(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i % 5);
}

static void setup_route(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], E = (size_t)s[1], k = (size_t)s[2];

    trial_real(t, KIND_T, N * E, -3, 3);
    real32(t, N * E);
    trial_int(t, N * k, 0, s[1]);
    real32(t, N * k);
    trial_real(t, KIND_F32, (size_t)s[5] * E, 0, 4);
    real32(t, N * k);
    real(t, N * E);
    trial_int(t, N * k, 0, 1);
    trial_int(t, E + 1, 0, 1);
    trial_int(t, N * k, 0, 1);
    trial_real(t, KIND_F32, N / (size_t)s[4] * E, 0, 0);
    whole_numbers(t->array[10].host, N / (size_t)s[4] * E);
}

static int call_route(struct trial_side *d, const int *s)
{
    size_t N = (size_t)s[0], run = (size_t)s[4];
    void *const *p = d->p;

    return d->ops->route_forward(d->q, d->type, p[1], p[2], p[3], p[0], N, s[1],
                                 s[2]) |
           d->ops->route_load(d->q, p[4], p[2], run, s[5], N, s[1], s[2]) |
           d->ops->route_backward(d->q, d->type, p[6], p[5], p[1], p[2], p[3],
                                  p[4], 0.3f, run, s[5], N, s[1], s[2]) |
           d->ops->route_limit(d->q, p[9], p[3], p[2], NULL, run, N, s[1], s[2],
                               3) |
           d->ops->route_limit(d->q, p[9], p[3], p[2], p[10], run, N, s[1],
                               s[2], 4) |
           d->ops->route_sort(d->q, p[7], p[8], p[9], N * (size_t)s[2],
                              s[1] + 1);
}

static void setup_rows(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], n = N * (size_t)s[2], C = (size_t)s[3];
    int32_t *expert, *place, *count;

    real(t, N * C);
    expert = trial_int(t, n, 0, s[1]);
    place = trial_int(t, n, 0, 1);
    count = trial_int(t, (size_t)s[1], 0, 1);
    real32(t, n);
    real(t, n * C);
    real(t, n * C);
    real(t, N * C);
    real(t, N * C);
    real32(t, n);
    t->ref->route_sort(t->ref_queue, place, count, expert, n, s[1]);
}

static int call_rows(struct trial_side *d, const int *s)
{
    size_t N = (size_t)s[0], C = (size_t)s[3];
    void *const *p = d->p;

    return d->ops->rows_spread(d->q, d->type, p[5], p[0], p[2], p[4], N, s[2],
                               C) |
           d->ops->rows_spread(d->q, d->type, p[6], p[0], p[2], NULL, N, s[2],
                               C) |
           d->ops->rows_join(d->q, d->type, p[7], p[6], p[2], p[4], N, s[2],
                             C) |
           d->ops->rows_join(d->q, d->type, p[8], p[6], p[2], NULL, N, s[2],
                             C) |
           d->ops->rows_dot(d->q, d->type, p[9], p[0], p[5], p[2], N, s[2], C);
}

const struct trial_case trial_experts[] = {
    {"route_forward, load, backward, limit, sort",
     setup_route,
     call_route,
     {{1, 2, 1, 0, 1, 1}, {48, 8, 2, 0, 8, 3}, {700, 5, 5, 0, 350, 2}}},
    {"rows_spread, join, dot",
     setup_rows,
     call_rows,
     {{1, 2, 1, 1}, {48, 8, 2, 37}, {90, 4, 3, 768}}},
    {NULL, NULL, NULL, {{0}}},
};

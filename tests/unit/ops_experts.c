/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear.h"
#include "kernels/route.h"
#include "ops_cases.h"

/* -- experts {tokens, experts, choices, C, run, sequences, by sigmoid (2: of
 * each chosen logit alone), groups, groups to choose from, scores as they
 * are} ------------------------------------------------------------------- */

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
    trial_real(t, KIND_F32, 1, 0.2, 0.8);
    real(t, N * E);
    trial_real(t, KIND_F32, E, -0.4, 0.4);
}

static int call_route(struct trial_side *d, const int *s)
{
    void *const *p = d->p;
    struct plait_route r = {.type = d->type,
                            .N = (size_t)s[0],
                            .E = s[1],
                            .k = s[2],
                            .run = (size_t)s[4],
                            .sequences = s[5],
                            .prob = p[1],
                            .expert = p[2],
                            .gate = p[3],
                            .bias = s[6] == 1 ? p[13] : NULL,
                            .each = s[6] == 2,
                            .groups = s[7],
                            .top_groups = s[8],
                            .whole = s[9],
                            .scale = 2.5f};
    struct plait_route_gradient plain = {
        .dlogits = p[6], .dgate = p[5], .load = p[4], .balance = 0.3f};
    struct plait_route_gradient by_factor = plain;
    struct plait_route_limit from_none = {.kept = p[9], .most = 3};
    struct plait_route_limit from_before = {
        .kept = p[9], .before = p[10], .most = 4};
    struct plait_route_sort sort = {.n = r.N * (size_t)r.k,
                                    .E = r.E + 1,
                                    .expert = p[9],
                                    .place = p[7],
                                    .count = p[8]};

    by_factor.dlogits = p[12];
    by_factor.factor = p[11];
    return d->ops->route_forward(d->q, &r, p[0]) |
           d->ops->route_load(d->q, &r, p[4]) |
           d->ops->route_backward(d->q, &r, &plain) |
           d->ops->route_backward(d->q, &r, &by_factor) |
           d->ops->route_limit(d->q, &r, &from_none) |
           d->ops->route_limit(d->q, &r, &from_before) |
           d->ops->route_sort(d->q, &sort);
}

static void setup_rows(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], n = N * (size_t)s[2], C = (size_t)s[3];
    struct plait_route_sort sort = {.n = n, .E = s[1]};

    real(t, N * C);
    sort.expert = trial_int(t, n, 0, s[1]);
    sort.place = trial_int(t, n, 0, 1);
    sort.count = trial_int(t, (size_t)s[1], 0, 1);
    real32(t, n);
    real(t, n * C);
    real(t, n * C);
    real(t, N * C);
    real(t, N * C);
    real32(t, n);
    t->ref->route_sort(t->ref_queue, &sort);
}

static int call_rows(struct trial_side *d, const int *s)
{
    void *const *p = d->p;
    struct plait_rows gated = {.type = d->type,
                               .N = (size_t)s[0],
                               .k = s[2],
                               .C = (size_t)s[3],
                               .place = p[2],
                               .gate = p[4],
                               .x = p[0],
                               .rows = p[6],
                               .out = p[5]};
    struct plait_rows plain = gated, dot = gated;
    int rc;

    plain.gate = NULL;
    plain.out = p[6];
    rc = d->ops->rows_spread(d->q, &gated) | d->ops->rows_spread(d->q, &plain);
    gated.out = p[7];
    plain.out = p[8];
    plain.accumulate = 1;
    rc |= d->ops->rows_join(d->q, &gated) | d->ops->rows_join(d->q, &plain);
    dot.dout = p[0];
    dot.rows = p[5];
    dot.dgate = p[9];
    return rc | d->ops->rows_dot(d->q, &dot);
}

/* -- products of groups {rows, groups, O, C, spread, act, bias or
 * accumulate, gap} --------------------------------------------------------- */

enum { EVEN, UNEVEN, ALL_TO_ONE, NONE };

/* Sets the rows of each group; UNEVEN leaves some groups without rows, and some
 * rows without a group. */
static void spread_rows(int32_t *count, const int *s)
{
    int left = s[0];

    for (int i = 0; i < s[1]; i++) {
        int n = s[4] == EVEN     ? (left + s[1] - i - 1) / (s[1] - i)
                : s[4] == UNEVEN ? (i % 3 == 1 ? 0 : left * (i % 4 + 1) / 6)
                : s[4] == NONE   ? 0
                                 : (i == s[1] / 2 ? left : 0);

        count[i] = n;
        left -= n;
    }
}

static size_t stride_of(const int *s)
{
    return (size_t)s[2] * (size_t)s[3] + (size_t)s[7];
}

/* Elements of all groups' matrices, or of vectors at the same distance. */
static size_t all_groups(const int *s)
{
    return (size_t)s[1] * stride_of(s);
}

static void setup_grouped(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[2], C = (size_t)s[3];

    spread_rows(trial_int(t, (size_t)s[1], 0, 1), s);
    real(t, N * O);
    real(t, N * O);
    real(t, N * C);
    real(t, all_groups(s));
    real(t, all_groups(s));
    trial_real(t, KIND_T, N * C, -3, 3);
}

static struct plait_groups groups_of(struct trial_side *d, const int *s)
{
    return (struct plait_groups){.n = s[1],
                                 .rows = (size_t)s[0],
                                 .stride = stride_of(s),
                                 .count = d->p[0]};
}

static struct plait_weight *first_weight(struct trial_side *d, const int *s)
{
    return d->ops->weight_create(
        d->dev, &(struct plait_weight_data){d->type, (size_t)s[2], (size_t)s[3],
                                            d->p[4]});
}

static int end_grouped(struct trial_side *d, struct plait_weight *w, int rc)
{
    if (!d->recording)
        rc |= d->ops->queue_sync(d->q);
    d->ops->weight_destroy(w);
    return rc;
}

static int call_grouped_forward(struct trial_side *d, const int *s)
{
    struct plait_groups g = groups_of(d, s);
    struct plait_linear l = {.inp.x = d->p[3],
                             .w = first_weight(d, s),
                             .bias = s[6] ? d->p[5] : NULL,
                             .act = s[5] ? PLAIT_ACT_GELU : PLAIT_ACT_NONE,
                             .pre = d->p[2],
                             .out = d->p[1]};

    return l.w == NULL
               ? -1
               : end_grouped(d, l.w, d->ops->grouped_forward(d->q, &g, &l));
}

/* Computes array 3 from array 1. */
static int call_grouped_input(struct trial_side *d, const int *s)
{
    struct plait_groups g = groups_of(d, s);
    struct plait_linear_dinp l = {.dout.x = d->p[1],
                                  .w = first_weight(d, s),
                                  .act = s[5] ? PLAIT_ACT_GELU : PLAIT_ACT_NONE,
                                  .pre = s[5] ? d->p[6] : NULL,
                                  .dinp = d->p[3]};

    return l.w == NULL
               ? -1
               : end_grouped(d, l.w,
                             d->ops->grouped_backward_input(d->q, &g, &l));
}

static void setup_grouped_weight(struct trial *t, const int *s)
{
    spread_rows(trial_int(t, (size_t)s[1], 0, 1), s);
    real(t, (size_t)s[0] * (size_t)s[2]);
    real(t, (size_t)s[0] * (size_t)s[3]);
    real32(t, all_groups(s));
    real32(t, all_groups(s));
}

static int call_grouped_weight(struct trial_side *d, const int *s)
{
    struct plait_groups g = groups_of(d, s);
    struct plait_linear_dw l = {.type = d->type,
                                .O = (size_t)s[2],
                                .C = (size_t)s[3],
                                .dout.x = d->p[1],
                                .inp.x = d->p[2],
                                .dw = d->p[3],
                                .dbias = s[5] ? d->p[4] : NULL,
                                .accumulate = s[6]};

    return d->ops->grouped_backward_weight(d->q, &g, &l);
}

const struct trial_case trial_experts[] = {
    {"route_forward, load, backward, limit, sort",
     setup_route,
     call_route,
     {{1, 2, 1, 0, 1, 1},
      {48, 8, 2, 0, 8, 3},
      {700, 5, 5, 0, 350, 2},
      {300, 400, 4, 0, 300, 1},
      {48, 8, 2, 0, 8, 3, 1, 0, 0},
      {48, 8, 1, 0, 8, 3, 2},
      {90, 6, 3, 0, 30, 3, 2},
      {60, 64, 6, 0, 20, 3, 1, 8, 3},
      {60, 64, 6, 0, 20, 3, 0, 8, 3, 1},
      {48, 12, 3, 0, 8, 3, 0, 4, 2},
      {48, 8, 2, 0, 8, 3, 1, 0, 0, 1}}},
    {"rows_spread, join, dot",
     setup_rows,
     call_rows,
     {{1, 2, 1, 1}, {48, 8, 2, 37}, {90, 4, 3, 768}}},
    {"grouped_forward",
     setup_grouped,
     call_grouped_forward,
     {{1, 1, 1, 1, EVEN, 0, 0, 0},
      {13, 5, 7, 3, UNEVEN, 1, 1, 2},
      {150, 3, 72, 88, UNEVEN, 1, 1, 8},
      {133, 2, 136, 24, ALL_TO_ONE, 0, 1, 0},
      {40, 2, 24, 328, UNEVEN, 1, 1, 8},
      {70, 40, 8, 16, UNEVEN, 0, 0, 0},
      {9, 3, 16, 8, NONE, 1, 1, 0}}},
    {"grouped_backward_input",
     setup_grouped,
     call_grouped_input,
     {{1, 1, 1, 1, EVEN, 0, 0, 0},
      {13, 5, 7, 3, UNEVEN, 1, 0, 2},
      {150, 3, 88, 72, UNEVEN, 1, 0, 8},
      {133, 2, 24, 136, ALL_TO_ONE, 0, 0, 0},
      {40, 2, 328, 24, UNEVEN, 1, 0, 8},
      {70, 40, 8, 16, UNEVEN, 0, 0, 0},
      {9, 3, 16, 8, NONE, 1, 0, 0}}},
    {"grouped_backward_weight",
     setup_grouped_weight,
     call_grouped_weight,
     {{1, 1, 1, 1, EVEN, 1, 1, 0},
      {13, 5, 7, 3, UNEVEN, 1, 0, 2},
      {150, 3, 72, 88, UNEVEN, 1, 1, 8},
      {133, 2, 136, 24, ALL_TO_ONE, 1, 0, 0},
      {330, 2, 24, 16, ALL_TO_ONE, 1, 1, 0},
      {70, 40, 8, 16, UNEVEN, 0, 1, 0},
      {9, 3, 16, 8, NONE, 1, 0, 0}}},
    {NULL, NULL, NULL, {{0}}},
};

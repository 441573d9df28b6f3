/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts tokens go to, and with what weights. */
#include <math.h>
#include <string.h>

#include "gradients.h"
#include "kernels/route.h"

/* {tokens, experts, choices}, of one sequence. */
static struct plait_route drawn_route(void)
{
    return (struct plait_route){.type = PLAIT_F32,
                                .N = (size_t)s[0],
                                .E = s[1],
                                .k = s[2],
                                .run = (size_t)s[0],
                                .sequences = 1,
                                .prob = stat[0],
                                .expert = tokens,
                                .gate = stat[1]};
}

/* Out is each token's sum of gates times x[3], the sigmoids of its largest
 * logits, and the balance loss of the softmax. */
static struct plait_route each_route(float *logits)
{
    struct plait_route route = drawn_route();

    route.each = true;
    ops->route_forward(q, &route, logits);
    settle();
    return route;
}

static void each_forward(float *out)
{
    struct plait_route route = each_route(x[0]);
    size_t E = (size_t)route.E, k = (size_t)route.k;

    for (size_t i = 0; i < route.N; i++) {
        double sum = 0;

        for (size_t e = 0; e < E; e++)
            sum += (double)x[2][e] * route.prob[i * E + e];
        for (size_t j = i * k; j < (i + 1) * k; j++)
            sum += (double)x[3][j] * route.gate[j];
        out[i] = (float)sum;
    }
}

static void each_check(void)
{
    struct check c = {.name = "route_backward",
                      .outputs = 5,
                      .forward = each_forward,
                      .shape = {5, 6, 2}};
    struct plait_route route;
    size_t bad = 0;

    s = c.shape;
    for (size_t i = 0; i < 30; i++) /* so far apart that the choice stays */
        x[0][i] = 2 - 0.7f * (float)((i * 5 + i / 6) % 6);
    for (size_t i = 0; i < 10; i++) {
        x[2][i] = uniform();
        x[3][i] = uniform();
        r[i / 2] = 1;
    }
    route = each_route(x[0]);
    ops->route_backward(
        q, &route,
        &(struct plait_route_gradient){
            .dlogits = dx[0], .dgate = x[3], .load = x[2], .balance = 1});
    settle();
    memcpy(dx[1], dx[0], 30 * sizeof(float));
    for (size_t i = 0; i < 10; i++)
        bad += !(
            fabs(stat[1][i] -
                 1 / (1 + exp(-(double)x[0][i / 2 * 6 + (size_t)tokens[i]]))) <
            1e-6);
    report(bad == 0, "route_forward: weights are the sigmoids of the logits");
    report(count_wrong(&c, 30, 1e-4) == 0,
           "route_backward: 30 gradients of sigmoids of each logit");
}

/* {tokens, experts, choices, groups, by sigmoid, scores as they are}: out is
 * each token's sum of gates times r, and the balance loss, whose gradient is
 * that of shares of all scores. */
static struct plait_route route_of(float *logits)
{
    struct plait_route route = drawn_route();

    route.bias = s[4] ? x[1] : NULL;
    route.groups = s[3];
    route.top_groups = s[3] - 1;
    route.whole = s[5];
    route.scale = 2.5f;
    ops->route_forward(q, &route, logits);
    settle();
    return route;
}

static void route_forward(float *out)
{
    struct plait_route route = route_of(x[0]);

    for (size_t i = 0; i < route.N; i++) {
        double sum = 0, all = 0;

        for (size_t e = 0; e < (size_t)route.E; e++)
            all += route.prob[i * (size_t)route.E + e];
        for (size_t e = 0; e < (size_t)route.E; e++)
            sum += (double)x[2][e] * route.prob[i * (size_t)route.E + e] / all;
        for (size_t j = i * (size_t)route.k; j < (i + 1) * (size_t)route.k; j++)
            sum += (double)x[3][j] * route.gate[j];
        out[i] = (float)sum;
    }
}

static void route_check(int sigmoid, int whole)
{
    struct check c = {.name = "route_backward",
                      .outputs = 5,
                      .forward = route_forward,
                      .shape = {5, 12, 3, 4, sigmoid, whole}};
    size_t n = 60;
    struct plait_route route;

    s = c.shape;
    /* so that the same are chosen whatever a small change is: logits, */
    for (size_t i = 0; i < n; i++)
        x[0][i] = sigmoid ? 3 * uniform()
                          : 0.5f * (float)(i * 5 % 12) + 0.1f * uniform();
    for (size_t i = 0; i < 15; i++) {
        x[1][i] = 4 * (float)(i * 5 % 12); /* biases */
        x[2][i] = uniform(); /* of the balance loss, for each expert */
        x[3][i] = uniform(); /* the gates' gradients */
        r[i / 3] = 1;
    }
    route = route_of(x[0]);
    ops->route_backward(
        q, &route,
        &(struct plait_route_gradient){
            .dlogits = dx[0], .dgate = x[3], .load = x[2], .balance = 1});
    settle();
    memcpy(dx[1], dx[0], n * sizeof(float));
    report(count_wrong(&c, n, 1e-4) == 0,
           "route_backward: %zu gradients of %s, %s", n,
           sigmoid ? "sigmoids" : "softmax",
           whole ? "as they are" : "as shares");
}

/* Whom the bias and the groups let through. The first token's best expert, 0,
 * is in the first group, whose two best together are less than those of the
 * second, though all three are more; of the second token the bias turns the
 * order. Of the third a score of an expert that is not chosen is NaN. */
static void groups_check(void)
{
    const float logits[18] = {3,  -2, -2, 1.4f, 1.4f, -9, 0.1f, 0.2f, -9,
                              -9, -9, -9, 1,    2,    0,  0,    NAN,  0};
    const float bias[6] = {0.5f, 0, 0, 0, 0, 0};
    float *prob = stat[0], *gate = stat[1];
    struct plait_route route = {.type = PLAIT_F32,
                                .N = 3,
                                .E = 6,
                                .k = 2,
                                .prob = prob,
                                .expert = tokens,
                                .gate = gate,
                                .bias = x[1],
                                .groups = 2,
                                .top_groups = 1,
                                .scale = 3};

    memcpy(x[0], logits, sizeof(logits));
    memcpy(x[1], bias, sizeof(bias));
    ops->route_forward(q, &route, x[0]);
    settle();
    report(tokens[0] == 3 && tokens[1] == 4 && tokens[2] == 0 && tokens[3] == 1,
           "route_forward: within the best group, by biased scores");
    report(
        fabs(gate[0] + gate[1] - 3) < 1e-5 && gate[2] < gate[3],
        "route_forward: weights are of scores without the bias, times scale");
    report(isnan(gate[4]) && isnan(gate[5]),
           "route_forward: a NaN among the scores shows in the weights");
    route.bias = NULL;
    route.whole = 1;
    ops->route_forward(q, &route, x[0]);
    settle();
    report(tokens[0] == 0 && tokens[1] == 1 && tokens[2] == 1 && tokens[3] == 0,
           "route_forward: of softmax within the group of the best expert");
    report(fabsf(gate[0] - 3 * prob[0]) < 1e-6f &&
               fabsf(gate[1] - 3 * prob[1]) < 1e-6f,
           "route_forward: weights are probabilities as they are, times scale");
    report(isnan(gate[4]) && isnan(gate[5]),
           "route_forward: a NaN among the logits shows in the weights");
}

/* Two logits whose probabilities are equal in fp32: the larger one is chosen,
 * at whichever position. */
static void close_check(void)
{
    const float logits[6] = {-0.5f, 0.01f,       0.01000001f,
                             -0.5f, 0.01000001f, 0.01f};
    float *prob = stat[0];
    int32_t *expert = tokens;
    struct plait_route route = {.type = PLAIT_F32,
                                .N = 2,
                                .E = 3,
                                .k = 1,
                                .prob = prob,
                                .expert = expert,
                                .gate = stat[1],
                                .scale = 1};

    memcpy(x[0], logits, sizeof(logits));
    ops->route_forward(q, &route, x[0]);
    settle();
    report(prob[1] == prob[2] && prob[4] == prob[5] && expert[0] == 2 &&
               expert[1] == 1,
           "route_forward: chooses by logits");
}

void check_routes(void)
{
    close_check();
    for (int i = 0; i < 4; i++)
        route_check(i / 2, i % 2);
    each_check();
    groups_check();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Products, activations and dropout. */
#include "gradients.h"
#include "kernels/linear.h"

static struct plait_weight *weight_of_x1(void)
{
    return ops->weight_create(
        dev, &(struct plait_weight_data){PLAIT_F32, (size_t)s[1], (size_t)s[2],
                                         x[1]});
}

/* {N, O, C}; inputs inp, w, bias */
static void linear_forward(float *out)
{
    struct plait_linear l = {.N = (size_t)s[0],
                             .inp.x = x[0],
                             .w = weight_of_x1(),
                             .bias = x[2],
                             .act = s[3] ? PLAIT_ACT_GELU : PLAIT_ACT_NONE,
                             .pre = s[3] ? stat[0] : NULL,
                             .out = out};

    ops->linear_forward(q, &l);
    ops->weight_destroy(l.w);
}

static void linear_backward(void)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];
    const float *dout = s[3] ? stat[1] : r;
    struct plait_linear_dinp dinp = {
        .N = N, .dout.x = dout, .w = weight_of_x1(), .dinp = dx[0]};
    struct plait_linear_dw dw = {.type = PLAIT_F32,
                                 .N = N,
                                 .O = O,
                                 .C = C,
                                 .dout.x = dout,
                                 .inp.x = x[0],
                                 .dw = dx[1],
                                 .dbias = dx[2],
                                 .accumulate = 1};

    if (s[3])
        ops->gelu_backward(q, &(struct plait_gelu_backward){.type = PLAIT_F32,
                                                            .dinp = stat[1],
                                                            .dout = r,
                                                            .inp = stat[0],
                                                            .n = N * O});
    ops->linear_backward_input(q, &dinp);
    ops->linear_backward_weight(q, &dw);
    ops->weight_destroy(dinp.w);
}

/* linear(gelu(inp)): the backward includes the activation's slope. */
static void after_gelu_forward(float *out)
{
    struct plait_linear l = {
        .N = (size_t)s[0], .inp.x = stat[0], .w = weight_of_x1(), .out = out};

    ops->gelu_forward(q,
                      &(struct plait_gelu_forward){.type = PLAIT_F32,
                                                   .out = stat[0],
                                                   .inp = x[0],
                                                   .n = (size_t)(s[0] * s[2])});
    ops->linear_forward(q, &l);
    ops->weight_destroy(l.w);
}

static void after_gelu_backward(void)
{
    struct plait_linear_dinp l = {.N = (size_t)s[0],
                                  .dout.x = r,
                                  .w = weight_of_x1(),
                                  .act = PLAIT_ACT_GELU,
                                  .pre = x[0],
                                  .dinp = dx[0],
                                  .accumulate = 1};

    ops->linear_backward_input(q, &l);
    ops->weight_destroy(l.w);
}

/* {N, O, C, groups}: w and bias of all groups are adjacent */
static struct plait_groups groups_of(void)
{
    int32_t left = s[0];

    for (int i = 0; i < s[3]; i++) {
        tokens[i] = i == 1 ? 0 : (left + 1) / 2;
        left -= tokens[i];
    }
    return (struct plait_groups){.n = s[3],
                                 .rows = (size_t)s[0],
                                 .stride = (size_t)s[1] * (size_t)(s[2] + 1),
                                 .count = tokens};
}

static void grouped_forward(float *out)
{
    struct plait_groups g = groups_of();
    struct plait_linear l = {.inp.x = x[0],
                             .w = weight_of_x1(),
                             .bias = x[1] + s[1] * s[2],
                             .act = PLAIT_ACT_GELU,
                             .pre = stat[0],
                             .out = out};

    ops->grouped_forward(q, &g, &l);
    ops->weight_destroy(l.w);
}

static void grouped_backward(void)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];
    struct plait_groups g = groups_of();
    struct plait_linear_dinp dinp = {
        .dout.x = stat[1], .w = weight_of_x1(), .dinp = dx[0]};
    struct plait_linear_dw dw = {.type = PLAIT_F32,
                                 .O = O,
                                 .C = C,
                                 .dout.x = stat[1],
                                 .inp.x = x[0],
                                 .dw = dx[1],
                                 .dbias = dx[1] + O * C};

    ops->gelu_backward(q, &(struct plait_gelu_backward){.type = PLAIT_F32,
                                                        .dinp = stat[1],
                                                        .dout = r,
                                                        .inp = stat[0],
                                                        .n = N * O});
    ops->grouped_backward_input(q, &g, &dinp);
    ops->grouped_backward_weight(q, &g, &dw);
    ops->weight_destroy(dinp.w);
}

/* {N, F} */
static void swiglu_forward(float *out)
{
    ops->swiglu_forward(
        q, &(struct plait_swiglu_forward){.type = PLAIT_F32,
                                          .out = out,
                                          .inp = x[0],
                                          .N = (size_t)s[0],
                                          .F = (size_t)s[1],
                                          .kind = (enum plait_glu)s[2]});
}

static void swiglu_backward(void)
{
    ops->swiglu_backward(
        q, &(struct plait_swiglu_backward){.type = PLAIT_F32,
                                           .dinp = dx[0],
                                           .dout = r,
                                           .inp = x[0],
                                           .N = (size_t)s[0],
                                           .F = (size_t)s[1],
                                           .kind = (enum plait_glu)s[2]});
}

/* {N, C, T} */
static void drop(float *out, const float *in)
{
    ops->dropout(q, &(struct plait_dropout){
                        .type = PLAIT_F32,
                        .drops = {.keys = keys, .place = 2, .rate = 0.4f},
                        .out = out,
                        .inp = in,
                        .N = (size_t)s[0],
                        .C = (size_t)s[1],
                        .T = (size_t)s[2]});
}

static void dropout_forward(float *out)
{
    drop(out, x[0]);
}

static void dropout_backward(void)
{
    drop(dx[0], r);
}

static const struct check checks[] = {
    {"linear", {12, 20, 5}, 15, linear_forward, linear_backward, {3, 5, 4, 0}},
    {"linear and gelu",
     {12, 20, 5},
     15,
     linear_forward,
     linear_backward,
     {3, 5, 4, 1}},
    {"linear after gelu",
     {12},
     15,
     after_gelu_forward,
     after_gelu_backward,
     {3, 5, 4}},
    {"products of groups",
     {28, 75},
     35,
     grouped_forward,
     grouped_backward,
     {7, 5, 4, 3}},
    {"swiglu", {30}, 15, swiglu_forward, swiglu_backward, {3, 5, 0}},
    {"geglu", {30}, 15, swiglu_forward, swiglu_backward, {3, 5, 1}},
    {"clamped swiglu", {30}, 15, swiglu_forward, swiglu_backward, {3, 5, 2}},
    {"clamped swiglu beyond its limits",
     {30},
     15,
     swiglu_forward,
     swiglu_backward,
     {3, 5, 2, 0, 0, 0, 0, 10}},
    {"dropout",
     {6 * 10},
     6 * 10,
     dropout_forward,
     dropout_backward,
     {6, 10, 3}},
};

void check_layers(void)
{
    run_checks(checks, sizeof(checks) / sizeof(*checks));
}

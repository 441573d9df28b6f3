/* SPDX-License-Identifier: Apache-2.0 */
/* Compares every backward op of ref, or of the GPU with argument "cuda", with
 * finite differences of its forward. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/dtype.h"
#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "kernels/route.h"
#include "kernels/xent.h"
#include "tap.h"
#include "test_seed.h"

#define INPUTS_MOST 4
#define FLOATS_MOST 4096

/* loss() = sum of out * r through the forward op; gradient() fills dx[] of
 * each input through the backward op with dout = r. */
struct check {
    const char *name;
    size_t inputs[INPUTS_MOST]; /* elements of each input, 0: none */
    size_t outputs;
    void (*forward)(float *out);
    void (*backward)(void);
    int shape[8]; /* the last: so many times as large inputs; 0: as drawn */
};

static const struct plait_ops *ops;
static struct plait_device *dev;
static struct plait_queue *q;
static uint64_t seed, drawn;
static const int *s; /* shape of the current check */
/* memory that host and device can both access */
static float (*x)[FLOATS_MOST], (*dx)[FLOATS_MOST], (*stat)[FLOATS_MOST];
static float *r, *y, *out2, *lse2, *target;
static double *total;
static uint64_t *keys; /* of sequences */
static int32_t *tokens;

static void *reserved[16];
static int nreserved;

static void *reserve(size_t bytes)
{
    void *p = ops->pinned_alloc(dev, bytes);

    if (p == NULL)
        exit(99);
    reserved[nreserved++] = p;
    return p;
}

static void reserve_all(void)
{
    x = reserve(INPUTS_MOST * sizeof(*x));
    dx = reserve(INPUTS_MOST * sizeof(*dx));
    stat = reserve(2 * sizeof(*stat));
    r = reserve(sizeof(*stat));
    y = reserve(sizeof(*stat));
    out2 = reserve(sizeof(*stat));
    lse2 = reserve(sizeof(*stat));
    target = reserve(sizeof(*stat));
    total = reserve(sizeof(*total));
    tokens = reserve(FLOATS_MOST * sizeof(*tokens));
    keys = reserve(2 * sizeof(*keys));
    keys[0] = 0x9e3779b97f4a7c15;
    keys[1] = 17;
}

/* Waits, before the host accesses memory that an op uses. */
static void settle(void)
{
    ops->queue_sync(q);
}

static float uniform(void)
{
    return (float)plait_rounding_bits(seed, drawn++) * 0x1p-31f - 1;
}

static double loss(const struct check *c)
{
    double sum = 0;

    c->forward(y);
    settle();
    for (size_t i = 0; i < c->outputs; i++)
        sum += (double)y[i] * r[i];
    return sum;
}

/* The seven-point formula. Its error is of order h^6, so that h may be long
 * enough for the forward's rounding, which is divided by h, to be small. */
static double difference(const struct check *c, float *at)
{
    static const double weight[] = {-1, 9, -45, 45, -9, 1};
    static const float offset[] = {-3, -2, -1, 1, 2, 3};
    const float h = 0x1p-4f, kept = *at;
    double sum = 0;

    for (int i = 0; i < 6; i++) {
        *at = kept + offset[i] * h;
        sum += weight[i] * loss(c);
    }
    *at = kept;
    return sum / (60 * (double)h);
}

/* Inputs beyond the limits of a gate, 7 and -7, and between them, but none so
 * near that a difference would reach across. */
static void enlarge(float *at, size_t n, float times)
{
    for (size_t i = 0; i < n; i++) {
        at[i] *= times;
        if (fabsf(fabsf(at[i]) - 7) < 0.25f)
            at[i] *= 1.1f;
    }
}

static void run(const struct check *c)
{
    size_t bad = 0, seen = 0;

    s = c->shape;
    for (int k = 0; k < INPUTS_MOST; k++)
        for (size_t i = 0; i < FLOATS_MOST; i++) {
            x[k][i] = uniform();
            dx[k][i] = 0;
        }
    if (s[7])
        enlarge(x[0], c->inputs[0], (float)s[7]);
    for (size_t i = 0; i < FLOATS_MOST; i++) {
        r[i] = uniform();
        tokens[i] = (int32_t)(plait_rounding_bits(seed, drawn++) % 7);
    }
    c->forward(y);
    settle();
    c->backward();
    settle();
    for (int k = 0; k < INPUTS_MOST; k++) {
        double squares = 0, rms;

        for (size_t i = 0; i < c->inputs[k]; i++)
            squares += (double)dx[k][i] * dx[k][i];
        rms = sqrt(squares / (double)(c->inputs[k] + (c->inputs[k] == 0)));
        for (size_t i = 0; i < c->inputs[k]; i++, seen++) {
            double d = difference(c, &x[k][i]);

            if (!(fabs(dx[k][i] - d) <= 1e-4 * rms + 1e-3 * fabs(d)) &&
                bad++ < 4)
                diag("input %d [%zu]: %.7g, difference %.7g", k, i,
                     (double)dx[k][i], d);
        }
    }
    ok(bad == 0 && seen > 0, "%s: %zu gradients", c->name, seen);
}

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

/* {N, C}; inputs inp, residual, gamma, beta. The sum goes to y[N*C..]. */
static void layernorm_forward(float *out)
{
    size_t n = (size_t)(s[0] * s[1]);

    ops->norm_forward(q, &(struct plait_norm_forward){.out = out,
                                                      .mean = stat[0],
                                                      .rstd = stat[1],
                                                      .sum = out + n,
                                                      .inp = x[0],
                                                      .residual = x[1],
                                                      .gamma = x[2],
                                                      .beta = x[3],
                                                      .eps = 1e-5f,
                                                      .N = (size_t)s[0],
                                                      .C = (size_t)s[1]});
}

static void layernorm_backward(void)
{
    size_t n = (size_t)(s[0] * s[1]);

    memcpy(dx[0], r + n, n * sizeof(float));
    ops->norm_backward(q, &(struct plait_norm_backward){.dx = dx[0],
                                                        .accumulate = 1,
                                                        .dgamma = dx[2],
                                                        .dbeta = dx[3],
                                                        .dout = r,
                                                        .x = y + n,
                                                        .gamma = x[2],
                                                        .mean = stat[0],
                                                        .rstd = stat[1],
                                                        .N = (size_t)s[0],
                                                        .C = (size_t)s[1]});
    settle();
    memcpy(dx[1], dx[0], n * sizeof(float));
}

static void rmsnorm_forward(float *out)
{
    size_t n = (size_t)(s[0] * s[1]);

    ops->norm_forward(q, &(struct plait_norm_forward){.out = out,
                                                      .rstd = stat[1],
                                                      .sum = out + n,
                                                      .inp = x[0],
                                                      .residual = x[1],
                                                      .gamma = x[2],
                                                      .eps = 1e-5f,
                                                      .plus = (float)s[2],
                                                      .N = (size_t)s[0],
                                                      .C = (size_t)s[1]});
}

static void rmsnorm_backward(void)
{
    size_t n = (size_t)(s[0] * s[1]);

    memcpy(dx[0], r + n, n * sizeof(float));
    ops->norm_backward(q, &(struct plait_norm_backward){.dx = dx[0],
                                                        .accumulate = 1,
                                                        .dgamma = dx[2],
                                                        .dout = r,
                                                        .x = y + n,
                                                        .gamma = x[2],
                                                        .rstd = stat[1],
                                                        .plus = (float)s[2],
                                                        .N = (size_t)s[0],
                                                        .C = (size_t)s[1]});
    settle();
    memcpy(dx[1], dx[0], n * sizeof(float));
}

/* {N, C}: an RMS norm of rows of which two ranks have the halves; inputs the
 * halves, their gammas. Its sums are added as the ranks would. */
static struct plait_norm_part half_of(int i, float *out, const float *dout)
{
    size_t n = (size_t)(s[0] * s[1]);

    return (struct plait_norm_part){.out = out,
                                    .dgamma = dx[2 + i],
                                    .dout = dout ? dout + (size_t)i * n : NULL,
                                    .x = x[i],
                                    .gamma = x[2 + i],
                                    .sums = stat[0] + i * s[0],
                                    .mean = 0.5f / (float)s[1],
                                    .eps = 1e-5f,
                                    .rstd = stat[1] + i * s[0],
                                    .N = (size_t)s[0],
                                    .C = (size_t)s[1]};
}

static void add_halves(struct plait_norm_part p[2])
{
    ops->norm_part_sums(q, &p[0]);
    ops->norm_part_sums(q, &p[1]);
    settle();
    for (int i = 0; i < s[0]; i++)
        p[0].sums[i] = p[1].sums[i] = p[0].sums[i] + p[1].sums[i];
}

static void norm_part_forward(float *out)
{
    size_t n = (size_t)(s[0] * s[1]);
    struct plait_norm_part p[2] = {half_of(0, out, NULL),
                                   half_of(1, out + n, NULL)};

    add_halves(p);
    for (int i = 0; i < 2; i++)
        ops->norm_part_forward(q, &p[i]);
}

static void norm_part_backward(void)
{
    struct plait_norm_part p[2] = {half_of(0, dx[0], r), half_of(1, dx[1], r)};

    add_halves(p);
    for (int i = 0; i < 2; i++)
        ops->norm_part_backward(q, &p[i]);
}

/* {N, T, C, first, count, pos0}; inputs wte, wpe */
static void embedding_forward(float *out)
{
    ops->embedding_forward(q, &(struct plait_embedding_forward){
                                  .out = out,
                                  .tokens = tokens,
                                  .wte = x[0],
                                  .wpe = x[1],
                                  .first = s[3],
                                  .count = s[4],
                                  .at = {.T = (size_t)s[1], .pos0 = s[5]},
                                  .N = (size_t)s[0],
                                  .C = (size_t)s[2]});
}

static void embedding_backward(void)
{
    ops->embedding_backward(q, &(struct plait_embedding_backward){
                                   .dwte = dx[0],
                                   .dwpe = dx[1],
                                   .tokens = tokens,
                                   .dout = r,
                                   .first = s[3],
                                   .count = s[4],
                                   .at = {.T = (size_t)s[1], .pos0 = s[5]},
                                   .N = (size_t)s[0],
                                   .C = (size_t)s[2]});
}

/* Rotates p [N,heads,D]. */
static void rotate(float *p, int direction)
{
    ops->rope(q, &(struct plait_rope){.x = p,
                                      .stride = (size_t)(s[2] * s[3]),
                                      .heads = s[2],
                                      .head_dim = s[3],
                                      .columns = s[5],
                                      .direction = direction,
                                      .angles = {100, 4, 1, 4, 20, 1.3},
                                      .at = {.T = (size_t)s[1], .pos0 = s[4]},
                                      .N = (size_t)s[0]});
}

/* {N, T, heads, D, pos0, columns} */
static void rope_forward(float *out)
{
    size_t n = (size_t)(s[0] * s[2] * s[3]);

    memcpy(out, x[0], n * sizeof(float));
    rotate(out, 1);
}

static void rope_backward(void)
{
    size_t n = (size_t)(s[0] * s[2] * s[3]);

    memcpy(dx[0], r, n * sizeof(float));
    rotate(dx[0], -1);
}

/* {N, heads, D}; backward comes after forward, whose output it reads. */
static void normalize_heads(float *p, const float *normed)
{
    ops->head_norm(q, &(struct plait_head_norm){.x = p,
                                                .y = normed,
                                                .stride = (size_t)(s[1] * s[2]),
                                                .heads = s[1],
                                                .head_dim = s[2],
                                                .rstd = stat[0],
                                                .eps = 0.1f,
                                                .N = (size_t)s[0]});
}

static void head_norm_forward(float *out)
{
    memcpy(out, x[0], (size_t)(s[0] * s[1] * s[2]) * sizeof(float));
    normalize_heads(out, NULL);
}

static void head_norm_backward(void)
{
    memcpy(dx[0], r, (size_t)(s[0] * s[1] * s[2]) * sizeof(float));
    normalize_heads(dx[0], y);
}

/* {B, T, heads, kv heads, D, cap, dropout}; inputs q, k, v */
static struct plait_attention attention_of(int k_len, int k_pos)
{
    struct plait_attention a = {
        .batch = s[0],
        .q_len = s[1],
        .k_len = k_len,
        .q_heads = s[2],
        .kv_heads = s[3],
        .head_dim = s[4],
        .q_stride = (size_t)(s[2] * s[4]),
        .kv_stride = (size_t)(s[3] * s[4]),
        .k_pos = k_pos,
        .scale = 0.7f,
        .cap = (float)s[5],
    };

    return a;
}

static struct plait_drops drops_of(void)
{
    return (struct plait_drops){
        .keys = s[6] ? keys : NULL, .place = 9, .rate = 0.3f};
}

/* Attention to the k_len keys from k_pos on, which is 0 with several
 * sequences. */
static void attend(float *out, float *lse, int k_len, int k_pos)
{
    struct plait_attention a = attention_of(k_len, k_pos);
    size_t first = (size_t)k_pos * a.kv_stride;

    ops->attention_forward(
        q, &(struct plait_attention_forward){.type = PLAIT_F32,
                                             .a = a,
                                             .drops = drops_of(),
                                             .out = out,
                                             .lse = lse,
                                             .Q = x[0],
                                             .K = x[1] + first,
                                             .V = x[2] + first});
}

static void attend_backward(int k_len, int k_pos)
{
    struct plait_attention a = attention_of(k_len, k_pos);
    size_t first = (size_t)k_pos * a.kv_stride;

    ops->attention_backward(
        q, &(struct plait_attention_backward){.type = PLAIT_F32,
                                              .a = a,
                                              .drops = drops_of(),
                                              .dQ = dx[0],
                                              .dK = dx[1] + first,
                                              .dV = dx[2] + first,
                                              .dout = r,
                                              .out = y,
                                              .lse = stat[0],
                                              .Q = x[0],
                                              .K = x[1] + first,
                                              .V = x[2] + first});
}

static void attention_forward(float *out)
{
    attend(out, stat[0], s[1], 0);
}

static void attention_backward(void)
{
    attend_backward(s[1], 0);
}

/* The same with the sinks x[3], which follow it. */
static void sink_forward(float *out)
{
    attend(out, stat[0], s[1], 0);
    ops->attention_sink(q, &(struct plait_attention_sink){.type = PLAIT_F32,
                                                          .batch = s[0],
                                                          .q_len = s[1],
                                                          .heads = s[2],
                                                          .head_dim = s[4],
                                                          .sink = x[3],
                                                          .out = out,
                                                          .lse = stat[0]});
}

static void sink_backward(void)
{
    ops->attention_sink_backward(
        q, &(struct plait_attention_sink_gradient){.type = PLAIT_F32,
                                                   .batch = s[0],
                                                   .q_len = s[1],
                                                   .heads = s[2],
                                                   .head_dim = s[4],
                                                   .sink = x[3],
                                                   .out = y,
                                                   .dout = r,
                                                   .lse = stat[0],
                                                   .dsink = dx[3]});
    attend_backward(s[1], 0);
}

/* One batch whose keys come in two chunks, as in ring attention. */
static void ring_forward(float *out)
{
    int half = s[1] / 2;

    attend(out, stat[0], half, 0);
    attend(out2, lse2, half, half);
    ops->attention_merge(
        q, &(struct plait_attention_merge){.type = PLAIT_F32,
                                           .a = attention_of(half, half),
                                           .out = out,
                                           .lse = stat[0],
                                           .out2 = out2,
                                           .lse2 = lse2});
}

static void ring_backward(void)
{
    int half = s[1] / 2;

    attend_backward(half, 0);
    attend_backward(half, half);
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

static struct plait_xent xent_of(const int32_t *targets, int N, float scale)
{
    return (struct plait_xent){.type = PLAIT_F32,
                               .N = (size_t)N,
                               .stride = (size_t)s[2],
                               .count = s[1],
                               .logits = dx[0],
                               .targets = targets,
                               .max = stat[0],
                               .sum = stat[1],
                               .target = target,
                               .scale = scale,
                               .cap = (float)s[3],
                               .loss = total};
}

/* In place, if the logits have one. */
static void cap_logits(const struct plait_xent *c)
{
    if (c->cap > 0)
        ops->softcap(q, &(struct plait_scale){.type = PLAIT_F32,
                                              .x = c->logits,
                                              .s = c->cap,
                                              .n = c->N * c->stride});
}

/* {N, V, stride, cap}: the outputs are the losses of the rows; r is 1 */
static void xent_forward(float *out)
{
    for (size_t i = 0; i < (size_t)s[0]; i++) {
        struct plait_xent c = xent_of(tokens + i, 1, 1);

        *total = 0;
        memcpy(dx[0], x[0] + i * c.stride, c.stride * sizeof(float));
        cap_logits(&c);
        ops->xent_stats(q, &c);
        ops->xent_backward(q, &c);
        settle();
        out[i] = (float)*total;
    }
}

static void xent_backward(void)
{
    struct plait_xent c = xent_of(tokens, s[0], 0.25f);

    *total = 0;
    for (size_t i = 0; i < (size_t)s[0]; i++)
        r[i] = 0.25f;
    memcpy(dx[0], x[0], (size_t)(s[0] * s[2]) * sizeof(float));
    cap_logits(&c);
    ops->xent_stats(q, &c);
    ops->xent_backward(q, &c);
    settle();
    memcpy(dx[1], dx[0], (size_t)(s[0] * s[2]) * sizeof(float));
}

static void xent_check(int cap)
{
    struct check c = {.name = "xent_backward",
                      .outputs = 5,
                      .forward = xent_forward,
                      .shape = {5, 7, 9, cap}};
    size_t bad = 0;

    s = c.shape;
    for (size_t i = 0; i < 45; i++)
        x[0][i] = 3 * uniform();
    for (size_t i = 0; i < 5; i++)
        tokens[i] = (int32_t)i;
    tokens[3] = -1; /* masked */
    xent_backward();
    for (size_t i = 0; i < 45; i++) {
        double d = difference(&c, &x[0][i]);

        if (!(fabs(dx[1][i] - d) <= 1e-5 + 1e-3 * fabs(d)) && bad++ < 4)
            diag("[%zu]: %.7g, difference %.7g", i, (double)dx[1][i], d);
    }
    ok(bad == 0, "xent_backward: 45 gradients, padding and a masked row%s",
       cap ? ", of capped logits" : "");
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
    {"layernorm with residual",
     {32, 32, 8, 8},
     64,
     layernorm_forward,
     layernorm_backward,
     {4, 8}},
    {"rmsnorm with residual",
     {32, 32, 8},
     64,
     rmsnorm_forward,
     rmsnorm_backward,
     {4, 8, 0}},
    {"rmsnorm of 1 + gamma",
     {32, 32, 8},
     64,
     rmsnorm_forward,
     rmsnorm_backward,
     {4, 8, 1}},
    {"rmsnorm in two halves",
     {20, 20, 5, 5},
     40,
     norm_part_forward,
     norm_part_backward,
     {4, 5}},
    {"norm of heads",
     {3 * 2 * 8},
     3 * 2 * 8,
     head_norm_forward,
     head_norm_backward,
     {3, 2, 8}},
    {"embedding",
     {24, 48},
     96,
     embedding_forward,
     embedding_backward,
     {12, 6, 8, 2, 3, 0}},
    {"rope", {96}, 96, rope_forward, rope_backward, {6, 3, 2, 8, 5}},
    {"rope", {96}, 96, rope_forward, rope_backward, {6, 3, 2, 8, 5, 6}},
    {"attention",
     {2 * 5 * 4 * 4, 2 * 5 * 2 * 4, 2 * 5 * 2 * 4},
     2 * 5 * 4 * 4,
     attention_forward,
     attention_backward,
     {2, 5, 4, 2, 4, 0}},
    {"attention, capped",
     {2 * 5 * 4 * 4, 2 * 5 * 2 * 4, 2 * 5 * 2 * 4},
     2 * 5 * 4 * 4,
     attention_forward,
     attention_backward,
     {2, 5, 4, 2, 4, 1}},
    {"attention, dropout",
     {2 * 5 * 4 * 4, 2 * 5 * 2 * 4, 2 * 5 * 2 * 4},
     2 * 5 * 4 * 4,
     attention_forward,
     attention_backward,
     {2, 5, 4, 2, 4, 1, 1}},
    {"attention with sinks",
     {2 * 5 * 4 * 4, 2 * 5 * 2 * 4, 2 * 5 * 2 * 4, 4},
     2 * 5 * 4 * 4,
     sink_forward,
     sink_backward,
     {2, 5, 4, 2, 4, 0}},
    {"attention in two chunks",
     {6 * 2 * 4, 6 * 1 * 4, 6 * 1 * 4},
     6 * 2 * 4,
     ring_forward,
     ring_backward,
     {1, 6, 2, 1, 4, 0}},
    {"attention in two chunks, capped",
     {6 * 2 * 4, 6 * 1 * 4, 6 * 1 * 4},
     6 * 2 * 4,
     ring_forward,
     ring_backward,
     {1, 6, 2, 1, 4, 1}},
    {"attention in two chunks, dropout",
     {6 * 2 * 4, 6 * 1 * 4, 6 * 1 * 4},
     6 * 2 * 4,
     ring_forward,
     ring_backward,
     {1, 6, 2, 1, 4, 0, 1}},
    {"dropout",
     {6 * 10},
     6 * 10,
     dropout_forward,
     dropout_backward,
     {6, 10, 3}},
};

/* {tokens, experts, choices}: out is each token's sum of gates times x[3], the
 * sigmoids of its largest logits, and the balance loss of the softmax. */
static struct plait_route each_route(float *logits)
{
    struct plait_route route = {.type = PLAIT_F32,
                                .N = (size_t)s[0],
                                .E = s[1],
                                .k = s[2],
                                .run = (size_t)s[0],
                                .sequences = 1,
                                .prob = stat[0],
                                .expert = tokens,
                                .gate = stat[1],
                                .each = true};

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
    ok(bad == 0, "route_forward: weights are the sigmoids of the logits");
    bad = 0;
    for (size_t i = 0; i < 30; i++) {
        double d = difference(&c, &x[0][i]);

        if (!(fabs(dx[1][i] - d) <= 1e-4 + 1e-3 * fabs(d)) && bad++ < 4)
            diag("[%zu]: %.7g, difference %.7g", i, (double)dx[1][i], d);
    }
    ok(bad == 0, "route_backward: 30 gradients of sigmoids of each logit");
}

/* {tokens, experts, choices, groups, by sigmoid, scores as they are}: out is
 * each token's sum of gates times r, and the balance loss, whose gradient is
 * that of shares of all scores. */
static struct plait_route route_of(float *logits)
{
    struct plait_route route = {.type = PLAIT_F32,
                                .N = (size_t)s[0],
                                .E = s[1],
                                .k = s[2],
                                .run = (size_t)s[0],
                                .sequences = 1,
                                .prob = stat[0],
                                .expert = tokens,
                                .gate = stat[1],
                                .bias = s[4] ? x[1] : NULL,
                                .groups = s[3],
                                .top_groups = s[3] - 1,
                                .whole = s[5],
                                .scale = 2.5f};

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
    size_t n = 60, bad = 0;
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
    for (size_t i = 0; i < n; i++) {
        double d = difference(&c, &x[0][i]);

        if (!(fabs(dx[1][i] - d) <= 1e-4 + 1e-3 * fabs(d)) && bad++ < 4)
            diag("[%zu]: %.7g, difference %.7g", i, (double)dx[1][i], d);
    }
    ok(bad == 0, "route_backward: %zu gradients of %s, %s", n,
       sigmoid ? "sigmoids" : "softmax", whole ? "as they are" : "as shares");
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
    ok(tokens[0] == 3 && tokens[1] == 4 && tokens[2] == 0 && tokens[3] == 1,
       "route_forward: within the best group, by biased scores");
    ok(fabs(gate[0] + gate[1] - 3) < 1e-5 && gate[2] < gate[3],
       "route_forward: weights are of scores without the bias, times scale");
    ok(isnan(gate[4]) && isnan(gate[5]),
       "route_forward: a NaN among the scores shows in the weights");
    route.bias = NULL;
    route.whole = 1;
    ops->route_forward(q, &route, x[0]);
    settle();
    ok(tokens[0] == 0 && tokens[1] == 1 && tokens[2] == 1 && tokens[3] == 0,
       "route_forward: of softmax within the group of the best expert");
    ok(fabsf(gate[0] - 3 * prob[0]) < 1e-6f &&
           fabsf(gate[1] - 3 * prob[1]) < 1e-6f,
       "route_forward: weights are probabilities as they are, times scale");
    ok(isnan(gate[4]) && isnan(gate[5]),
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
    ok(prob[1] == prob[2] && prob[4] == prob[5] && expert[0] == 2 &&
           expert[1] == 1,
       "route_forward: chooses by logits");
}

int main(int argc, char **argv)
{
    const char *why = NULL;

    seed = test_seed();
    ops = argc > 1 && strcmp(argv[1], "cuda") == 0 ? plait_ops_cuda(&why)
                                                   : plait_ops_ref();
    if (ops == NULL)
        return skip_all(why);
    dev = ops->device_create(0, 1);
    q = ops->queue_create(dev, 0);
    if (dev == NULL || q == NULL)
        return 1;
    reserve_all();
    for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++)
        run(&checks[i]);
    xent_check(0);
    xent_check(2);
    close_check();
    for (int i = 0; i < 4; i++)
        route_check(i / 2, i % 2);
    each_check();
    groups_check();
    while (nreserved > 0)
        ops->pinned_free(dev, reserved[--nreserved]);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
    return done_testing();
}

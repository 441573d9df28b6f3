/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "gradients.h"

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

static const struct check checks[] = {
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
};

void check_norms(void)
{
    run_checks(checks, sizeof(checks) / sizeof(*checks));
}

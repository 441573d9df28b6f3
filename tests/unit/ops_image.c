/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/image.h"
#include "ops_cases.h"

/* -- convolution {N, H, W, C, O, kernel, stride, pad} -----------------------
 */

static struct plait_conv conv_of(const int *s)
{
    return (struct plait_conv){.N = (size_t)s[0],
                               .H = (size_t)s[1],
                               .W = (size_t)s[2],
                               .C = (size_t)s[3],
                               .O = (size_t)s[4],
                               .kernel = s[5],
                               .stride = s[6],
                               .pad = s[7]};
}

static void setup_conv(struct trial *t, const int *s)
{
    struct plait_conv c = conv_of(s);

    real32(t, product(s, 4));
    real32(t, c.O * plait_conv_patch(&c));
    real32(t, plait_conv_rows(&c) * c.O);
    real32(t, plait_conv_rows(&c) * c.O);
    real32(t, product(s, 4));
    real32(t, c.O * plait_conv_patch(&c));
    real32(t, c.O * plait_conv_patch(&c));
}

static int call_conv(struct trial_side *d, const int *s)
{
    const struct plait_image_ops *ops = d->ops->image;
    struct plait_conv c = conv_of(s);
    struct plait_conv_arrays a = {.inp = d->p[0],
                                  .w = d->p[1],
                                  .dout = d->p[2],
                                  .out = d->p[3],
                                  .dinp = d->p[4],
                                  .dw = d->p[5]};
    struct plait_conv_arrays more = a;

    more.dw = d->p[6];
    more.accumulate = 1;
    return ops->conv_forward(d->q, &c, &a) |
           ops->conv_backward_input(d->q, &c, &a) |
           ops->conv_backward_weight(d->q, &c, &a) |
           ops->conv_backward_weight(d->q, &c, &more);
}

static void setup_maxpool(struct trial *t, const int *s)
{
    struct plait_conv c = conv_of(s);

    real32(t, product(s, 4));
    real32(t, plait_conv_rows(&c) * c.C);
    real32(t, plait_conv_rows(&c) * c.C);
    real32(t, product(s, 4));
}

static int call_maxpool(struct trial_side *d, const int *s)
{
    const struct plait_image_ops *ops = d->ops->image;
    struct plait_conv c = conv_of(s);
    struct plait_conv_arrays a = {
        .inp = d->p[0], .dout = d->p[1], .out = d->p[2], .dinp = d->p[3]};

    return ops->maxpool_forward(d->q, &c, &a) |
           ops->maxpool_backward(d->q, &c, &a);
}

/* -- batch norm {groups, rows, C, with residual} -----------------------------
 */

enum { X, STATS, GAMMA, BETA, RESIDUAL, OUT, DOUT, SUMS, DX, DRESIDUAL };

static struct plait_batchnorm norm_of(void *const *p, const int *s)
{
    return (struct plait_batchnorm){.groups = (size_t)s[0],
                                    .rows = (size_t)s[1],
                                    .C = (size_t)s[2],
                                    .eps = 1e-5f,
                                    .x = p[X],
                                    .stats = p[STATS],
                                    .gamma = p[GAMMA],
                                    .beta = p[BETA],
                                    .residual = s[3] ? p[RESIDUAL] : NULL,
                                    .relu = s[3],
                                    .out = p[OUT],
                                    .dout = p[DOUT],
                                    .sums = p[SUMS],
                                    .dx = p[DX]};
}

static void setup_norm(struct trial *t, const int *s)
{
    size_t n = product(s, 3), stats = (size_t)s[0] * (size_t)s[2];

    trial_real(t, KIND_F32, n, -1, 3);
    trial_real(t, KIND_F32, 2 * stats, 0.5, 2);
    real32(t, (size_t)s[2]);
    real32(t, (size_t)s[2]);
    real32(t, n);
    real32(t, n);
    real32(t, n);
    real32(t, 2 * stats);
    real32(t, n);
    real32(t, n);
}

static int call_norm_stats(struct trial_side *d, const int *s)
{
    struct plait_batchnorm b = norm_of(d->p, s);

    return d->ops->image->batchnorm_stats(d->q, &b);
}

static int call_norm_forward(struct trial_side *d, const int *s)
{
    struct plait_batchnorm b = norm_of(d->p, s);

    return d->ops->image->batchnorm_forward(d->q, &b);
}

static int call_norm_backward(struct trial_side *d, const int *s)
{
    const struct plait_image_ops *ops = d->ops->image;
    struct plait_batchnorm b = norm_of(d->p, s);

    b.out = s[3] ? d->p[OUT] : NULL;
    b.dresidual = s[3] ? d->p[DRESIDUAL] : NULL;
    b.count = b.rows + 3;
    return ops->batchnorm_backward(d->q, &b) | ops->batchnorm_sums(d->q, &b);
}

/* {n, C} */
static void setup_join(struct trial *t, const int *s)
{
    size_t C = (size_t)s[1];

    real32(t, 2 * C);
    real32(t, (size_t)s[0] * 2 * C);
    real32(t, 2 * C);
}

static int call_join(struct trial_side *d, const int *s)
{
    const struct plait_image_ops *ops = d->ops->image;
    struct plait_batchnorm_join j = {.n = (size_t)s[0],
                                     .C = (size_t)s[1],
                                     .each = d->p[1],
                                     .stats = d->p[0]};
    struct plait_batchnorm_fold f = {.groups = j.n,
                                     .C = j.C,
                                     .weight = 0.1f,
                                     .keep = 0.9f,
                                     .unbias = 1.25f,
                                     .stats = d->p[1],
                                     .running = d->p[0],
                                     .delta = d->p[2]};

    return ops->batchnorm_fold(d->q, &f) | ops->batchnorm_join(d->q, &j);
}

/* -- the rest: {N, rows, C} ---------------------------------------------------
 */

static void setup_rest(struct trial *t, const int *s)
{
    real32(t, product(s, 3));
    real32(t, product(s, 3));
    real32(t, (size_t)s[0] * (size_t)s[2]);
    real32(t, product(s, 3));
}

static int call_rest(struct trial_side *d, const int *s)
{
    const struct plait_image_ops *ops = d->ops->image;
    struct plait_avgpool p = {(size_t)s[0], (size_t)s[1], (size_t)s[2]};
    size_t n = p.N * p.rows * p.C;

    return ops->relu_backward(d->q, d->p[1], d->p[0], n) |
           ops->avgpool_backward(d->q, &p, d->p[3], d->p[2]) |
           ops->avgpool_forward(d->q, &p, d->p[2], d->p[0]) |
           ops->relu(d->q, d->p[0], n);
}

/* {N, classes, squared} */
static void setup_loss(struct trial *t, const int *s)
{
    trial_real(t, KIND_F32, product(s, 2), -6, 6);
    trial_int(t, (size_t)s[0], 0, s[1]);
    trial_real(t, KIND_F64, 2, 0, 1);
}

static int call_loss(struct trial_side *d, const int *s)
{
    struct plait_class_loss l = {.N = (size_t)s[0],
                                 .classes = (size_t)s[1],
                                 .scale = 0.25f,
                                 .smoothing = s[2] ? 0 : 0.1f,
                                 .squared = s[2],
                                 .logits = d->p[0],
                                 .labels = d->p[1],
                                 .sums = d->p[2]};

    return d->ops->image->class_loss(d->q, &l);
}

const struct trial_case trial_image[] = {
    {"convolution",
     setup_conv,
     call_conv,
     {{2, 9, 7, 3, 16, 3, 1, 1},
      {3, 8, 8, 16, 32, 3, 2, 1},
      {2, 8, 8, 16, 8, 1, 2, 0},
      {1, 23, 20, 3, 5, 7, 2, 3},
      {4, 5, 5, 32, 32, 3, 1, 1},
      {5, 1, 1, 1, 1, 1, 1, 0}}},
    {"maxpool",
     setup_maxpool,
     call_maxpool,
     {{2, 9, 8, 5, 5, 3, 2, 1}, {1, 4, 4, 16, 16, 2, 2, 0}}},
    {"batchnorm_stats",
     setup_norm,
     call_norm_stats,
     {{1, 3000, 16}, {3, 50, 20}, {4, 1, 3}, {2, 9, 300}}},
    {"batchnorm_forward",
     setup_norm,
     call_norm_forward,
     {{1, 1100, 16, 0}, {3, 50, 20, 1}, {2, 9, 300, 1}}},
    {"batchnorm_backward",
     setup_norm,
     call_norm_backward,
     {{1, 1100, 16, 0}, {3, 50, 20, 1}, {2, 9, 300, 1}}},
    {"batchnorm_join and fold", setup_join, call_join, {{4, 16}, {1, 3}}},
    {"relu, avgpool", setup_rest, call_rest, {{3, 49, 20}, {33, 64, 16}}},
    {"class_loss",
     setup_loss,
     call_loss,
     {{37, 10, 0}, {5, 1000, 0}, {9, 10, 1}, {6, 1, 1}, {3, 1, 0}}},
    {0},
};

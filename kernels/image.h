/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_IMAGE_H
#define PLAIT_KERNELS_IMAGE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operations of image models, in a table beside struct plait_ops and with
 * the same rules. Everything is fp32. Images are stored channels last, [N, H,
 * W, C], so that all ops but the convolution see rows of C channels. */

/* A convolution of N images [H,W,C] with O kernels [kernel,kernel,C]; the
 * weight is [O, kernel * kernel * C]. The image is padded with zeros. */
struct plait_conv {
    size_t N, H, W, C, O;
    int kernel, stride, pad;
};

static inline size_t plait_conv_side(const struct plait_conv *c, size_t side)
{
    return (side + 2 * (size_t)c->pad - (size_t)c->kernel) / (size_t)c->stride +
           1;
}

static inline size_t plait_conv_patch(const struct plait_conv *c)
{
    return (size_t)c->kernel * (size_t)c->kernel * c->C;
}

/* Rows of the output: pixels of all images. */
static inline size_t plait_conv_rows(const struct plait_conv *c)
{
    return c->N * plait_conv_side(c, c->H) * plait_conv_side(c, c->W);
}

/* Batch norm (Ioffe and Szegedy, arXiv 1502.03167) of groups * rows rows of C
 * channels. Each group is normalised by itself (ghost batches: Hoffer et al.,
 * arXiv 1705.08741).
 *   stats [2, groups, C]  mean, then variance (the biased one: / n)
 *   sums  [groups, 2, C]  of the gradient, and of gradient * normalised x */
struct plait_batchnorm {
    size_t groups, rows, C;
    float eps;
};

/* The loss of N rows of `classes` outputs. */
struct plait_class_loss {
    float scale;     /* factor of the gradients */
    float smoothing; /* label smoothing: this part of each target is spread
                      * evenly over all classes */
    int squared;     /* use half the squared distance to the target instead of
                      * cross-entropy. The target is the one-hot label; with a
                      * single output, the label's number */
};

struct plait_image_ops {
    /* out [N,OH,OW,O] = inp * w */
    int (*conv_forward)(struct plait_queue *q, const struct plait_conv *c,
                        float *out, const float *inp, const float *w);
    /* dinp [N,H,W,C] = the gradient of inp */
    int (*conv_backward_input)(struct plait_queue *q,
                               const struct plait_conv *c, float *dinp,
                               const float *dout, const float *w);
    /* dw = the gradient of w, or += if accumulate */
    int (*conv_backward_weight)(struct plait_queue *q,
                                const struct plait_conv *c, float *dw,
                                const float *dout, const float *inp,
                                int accumulate);

    int (*batchnorm_stats)(struct plait_queue *q,
                           const struct plait_batchnorm *b, float *stats,
                           const float *x);
    /* Merges statistics: stats [2,C] of all rows together, from `each` [n, 2,
     * C], every one of the same number of rows. stats may be one of them. */
    int (*batchnorm_join)(struct plait_queue *q, float *stats,
                          const float *each, size_t n, size_t C);
    /* out = (x - mean) / sqrt(var + eps) * gamma + beta (+ residual), and with
     * `relu` max(that, 0). residual NULL: none. out may be x or residual. */
    int (*batchnorm_forward)(struct plait_queue *q,
                             const struct plait_batchnorm *b, float *out,
                             const float *x, const float *stats,
                             const float *gamma, const float *beta,
                             const float *residual, int relu);
    /* The gradient counts only where out > 0 (behind a ReLU); out NULL:
     * everywhere. */
    int (*batchnorm_sums)(struct plait_queue *q,
                          const struct plait_batchnorm *b, float *sums,
                          const float *dout, const float *out, const float *x,
                          const float *stats);
    /* dx, and dresidual (NULL: not wanted). `count`: the number of rows that
     * each group's sums were made of. dx may be dout. */
    int (*batchnorm_backward)(struct plait_queue *q,
                              const struct plait_batchnorm *b, float *dx,
                              float *dresidual, const float *dout,
                              const float *out, const float *x,
                              const float *stats, const float *gamma,
                              const float *sums, size_t count);
    /* delta [2,C] += what the running statistics [2,C] change by when those of
     * `groups` groups are averaged in, one after the other. The last group has
     * weight `weight`, each earlier one `keep` times that of the next: delta +=
     * weight keep^(groups-1-g) (stat_g - running), the variances times
     * `unbias`. */
    int (*batchnorm_fold)(struct plait_queue *q, float *delta,
                          const float *running, const float *stats,
                          size_t groups, size_t C, float weight, float keep,
                          float unbias);

    /* x = max(x, 0) */
    int (*relu)(struct plait_queue *q, float *x, size_t n);
    /* dx = 0 where out is not above 0 */
    int (*relu_backward)(struct plait_queue *q, float *dx, const float *out,
                         size_t n);
    /* out [N,C] = the mean over each image's `rows` rows */
    int (*avgpool_forward)(struct plait_queue *q, float *out, const float *x,
                           size_t N, size_t rows, size_t C);
    int (*avgpool_backward)(struct plait_queue *q, float *dx, const float *dout,
                            size_t N, size_t rows, size_t C);
    /* The maximum of each window of c, whose O is C. Padding takes no part.
     * Where several are equal, dx goes to the first. */
    int (*maxpool_forward)(struct plait_queue *q, const struct plait_conv *c,
                           float *out, const float *x);
    int (*maxpool_backward)(struct plait_queue *q, const struct plait_conv *c,
                            float *dx, const float *dout, const float *x);
    /* sums[0] += the loss, sums[1] += the number of rows whose largest output
     * is at the label; logits are replaced by their gradient. Softmax
     * cross-entropy with label smoothing (Szegedy et al., arXiv 1512.00567), or
     * squared error. */
    int (*class_loss)(struct plait_queue *q, const struct plait_class_loss *l,
                      double *sums, float *logits, const int32_t *labels,
                      size_t N, size_t classes);
};

#ifdef __cplusplus
}
#endif
#endif

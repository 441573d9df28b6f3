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

/* The arrays of a convolution; each operation uses some. Those of a maximum
 * over windows are the same, without weights and with O as C. */
struct plait_conv_arrays {
    const float *inp;  /* in [N,H,W,C]; not conv_backward_input */
    const float *w;    /* in [O, kernel * kernel * C]: conv_forward,
                        * conv_backward_input */
    const float *dout; /* in [N,OH,OW,O]: all gradients */
    float *out;        /* out [N,OH,OW,O]: *_forward */
    float *dinp;       /* out [N,H,W,C]: conv_backward_input,
                        * maxpool_backward */
    float *dw;         /* out [O, kernel * kernel * C]; or +=:
                        * conv_backward_weight */
    int accumulate;    /* dw is added to */
};

/* Batch norm (Ioffe and Szegedy, arXiv 1502.03167) of groups * rows rows of C
 * channels. Each group is normalised by itself (ghost batches: Hoffer et al.,
 * arXiv 1705.08741). x, out and their gradients are [groups * rows, C]. */
struct plait_batchnorm {
    size_t groups, rows, C;
    float eps;
    const float *x;        /* in; all */
    float *stats;          /* [2, groups, C]: mean, then variance (the biased
                            * one: / n); batchnorm_stats out, the others in */
    const float *gamma;    /* in [C]: batchnorm_forward, batchnorm_backward */
    const float *beta;     /* in [C]: batchnorm_forward */
    const float *residual; /* in: batchnorm_forward; NULL: none */
    int relu;              /* batchnorm_forward */
    float *out;            /* batchnorm_forward out, may be x or residual;
                            * batchnorm_sums and batchnorm_backward in: the
                            * gradient counts only where out > 0 (behind a
                            * ReLU); NULL: everywhere */
    const float *dout;     /* in: batchnorm_sums, batchnorm_backward */
    float *sums;           /* [groups, 2, C]: of the gradient, and of gradient *
                            * normalised x; batchnorm_sums out,
                            * batchnorm_backward in */
    size_t count;          /* batchnorm_backward: how many rows each group's
                            * sums were made of */
    float *dx;             /* out: batchnorm_backward; may be dout */
    float *dresidual;      /* out: batchnorm_backward; NULL: not wanted */
};

/* Merges the statistics of n batches, each of the same number of rows. */
struct plait_batchnorm_join {
    size_t n, C;
    const float *each; /* in [n, 2, C] */
    float *stats; /* out [2, C]: of all rows together; may be one of each */
};

/* What running statistics change by when those of `groups` groups are averaged
 * in, one after the other. The last group has weight `weight`, each earlier one
 * `keep` times that of the next: delta += weight keep^(groups-1-g) (stat_g -
 * running), the variances times `unbias`. */
struct plait_batchnorm_fold {
    size_t groups, C;
    float weight, keep, unbias;
    const float *stats;   /* in [2, groups, C] */
    const float *running; /* in [2, C] */
    float *delta;         /* += [2, C] */
};

/* The mean over each image's `rows` rows of C channels. */
struct plait_avgpool {
    size_t N, rows, C;
};

/* The loss of N rows of `classes` outputs: softmax cross-entropy with label
 * smoothing (Szegedy et al., arXiv 1512.00567), or squared error. */
struct plait_class_loss {
    size_t N, classes;
    float scale;     /* factor of the gradients */
    float smoothing; /* label smoothing: this part of each target is spread
                      * evenly over all classes */
    int squared;     /* use half the squared distance to the target instead of
                      * cross-entropy. The target is the one-hot label; with a
                      * single output, the label's number */
    float *logits;   /* in [N, classes]; overwritten by their gradient */
    const int32_t *labels; /* in [N] */
    double *sums; /* +=: sums[0] the loss, sums[1] the number of rows whose
                   * largest output is at the label */
};

struct plait_image_ops {
    /* out = inp * w, and the gradients of inp and of w */
    int (*conv_forward)(struct plait_queue *q, const struct plait_conv *c,
                        const struct plait_conv_arrays *a);
    int (*conv_backward_input)(struct plait_queue *q,
                               const struct plait_conv *c,
                               const struct plait_conv_arrays *a);
    int (*conv_backward_weight)(struct plait_queue *q,
                                const struct plait_conv *c,
                                const struct plait_conv_arrays *a);

    int (*batchnorm_stats)(struct plait_queue *q,
                           const struct plait_batchnorm *b);
    int (*batchnorm_join)(struct plait_queue *q,
                          const struct plait_batchnorm_join *j);
    /* out = (x - mean) / sqrt(var + eps) * gamma + beta (+ residual), and with
     * `relu` max(that, 0). */
    int (*batchnorm_forward)(struct plait_queue *q,
                             const struct plait_batchnorm *b);
    int (*batchnorm_sums)(struct plait_queue *q,
                          const struct plait_batchnorm *b);
    int (*batchnorm_backward)(struct plait_queue *q,
                              const struct plait_batchnorm *b);
    int (*batchnorm_fold)(struct plait_queue *q,
                          const struct plait_batchnorm_fold *f);

    /* x = max(x, 0) */
    int (*relu)(struct plait_queue *q, float *x, size_t n);
    /* dx = 0 where out is not above 0 */
    int (*relu_backward)(struct plait_queue *q, float *dx, const float *out,
                         size_t n);
    /* out [N,C] = the mean of x [N,rows,C] */
    int (*avgpool_forward)(struct plait_queue *q, const struct plait_avgpool *p,
                           float *out, const float *x);
    int (*avgpool_backward)(struct plait_queue *q,
                            const struct plait_avgpool *p, float *dx,
                            const float *dout);
    /* The maximum of each window of c, whose O is C. Padding takes no part.
     * Where several are equal, dinp goes to the first. */
    int (*maxpool_forward)(struct plait_queue *q, const struct plait_conv *c,
                           const struct plait_conv_arrays *a);
    int (*maxpool_backward)(struct plait_queue *q, const struct plait_conv *c,
                            const struct plait_conv_arrays *a);
    /* The loss, how many rows are right, and the gradient. */
    int (*class_loss)(struct plait_queue *q, const struct plait_class_loss *l);
};

#ifdef __cplusplus
}
#endif
#endif

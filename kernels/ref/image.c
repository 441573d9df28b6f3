/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/image.h"

#include <math.h>

/* -- batch norm ------------------------------------------------------------ */

static int batchnorm_stats(struct plait_queue *q,
                           const struct plait_batchnorm *b, float *stats,
                           const float *x)
{
    (void)q;
    for (size_t i = 0; i < b->groups * b->C; i++) {
        const float *at = x + i / b->C * b->rows * b->C + i % b->C;
        double mean = 0, var = 0;

        for (size_t r = 0; r < b->rows; r++)
            mean += at[r * b->C];
        mean /= (double)b->rows;
        for (size_t r = 0; r < b->rows; r++)
            var += (at[r * b->C] - mean) * (at[r * b->C] - mean);
        stats[i] = (float)mean;
        stats[b->groups * b->C + i] = (float)(var / (double)b->rows);
    }
    return 0;
}

int ref_batchnorm_join(struct plait_queue *q, float *stats, const float *each,
                       size_t n, size_t C)
{
    (void)q;
    for (size_t c = 0; c < C; c++) {
        double mean = 0, var = 0;

        for (size_t i = 0; i < n; i++)
            mean += each[i * 2 * C + c];
        mean /= (double)n;
        for (size_t i = 0; i < n; i++) {
            double d = each[i * 2 * C + c] - mean;

            var += each[(i * 2 + 1) * C + c] + d * d;
        }
        stats[c] = (float)mean;
        stats[C + c] = (float)(var / (double)n);
    }
    return 0;
}

/* The index of an element's statistics, its channel, and its mean and rstd. */
struct place {
    size_t stat, C;
    double mean, rstd;
};

static struct place place_of(const struct plait_batchnorm *b,
                             const float *stats, size_t i)
{
    size_t at = i / (b->rows * b->C) * b->C + i % b->C;
    double var = stats[b->groups * b->C + at];

    return (struct place){at, i % b->C, stats[at],
                          1 / sqrt(var + (double)b->eps)};
}

static int batchnorm_forward(struct plait_queue *q,
                             const struct plait_batchnorm *b, float *out,
                             const float *x, const float *stats,
                             const float *gamma, const float *beta,
                             const float *residual, int relu)
{
    (void)q;
    for (size_t i = 0; i < b->groups * b->rows * b->C; i++) {
        struct place p = place_of(b, stats, i);
        double y = (x[i] - p.mean) * p.rstd * gamma[p.C] + beta[p.C];

        if (residual != NULL)
            y += residual[i];
        out[i] = relu && y < 0 ? 0 : (float)y;
    }
    return 0;
}

static double masked(const float *dout, const float *out, size_t i)
{
    return out != NULL && out[i] <= 0 ? 0 : dout[i];
}

static int batchnorm_sums(struct plait_queue *q,
                          const struct plait_batchnorm *b, float *sums,
                          const float *dout, const float *out, const float *x,
                          const float *stats)
{
    (void)q;
    for (size_t g = 0; g < b->groups; g++)
        for (size_t c = 0; c < b->C; c++) {
            double sum = 0, product = 0;

            for (size_t r = 0; r < b->rows; r++) {
                size_t i = (g * b->rows + r) * b->C + c;
                struct place p = place_of(b, stats, i);
                double d = masked(dout, out, i);

                sum += d;
                product += d * (x[i] - p.mean) * p.rstd;
            }
            sums[g * 2 * b->C + c] = (float)sum;
            sums[(g * 2 + 1) * b->C + c] = (float)product;
        }
    return 0;
}

static int batchnorm_backward(struct plait_queue *q,
                              const struct plait_batchnorm *b, float *dx,
                              float *dresidual, const float *dout,
                              const float *out, const float *x,
                              const float *stats, const float *gamma,
                              const float *sums, size_t count)
{
    (void)q;
    for (size_t i = 0; i < b->groups * b->rows * b->C; i++) {
        struct place p = place_of(b, stats, i);
        const float *s = sums + i / (b->rows * b->C) * 2 * b->C + p.C;
        double d = masked(dout, out, i), norm = (x[i] - p.mean) * p.rstd;

        if (dresidual != NULL)
            dresidual[i] = (float)d;
        dx[i] = (float)(gamma[p.C] * p.rstd *
                        (d - (s[0] + norm * s[b->C]) / (double)count));
    }
    return 0;
}

int ref_batchnorm_fold(struct plait_queue *q, float *delta,
                       const float *running, const float *stats, size_t groups,
                       size_t C, float weight, float keep, float unbias)
{
    (void)q;
    for (size_t k = 0; k < 2; k++)
        for (size_t c = 0; c < C; c++) {
            double sum = 0, w = weight;

            for (size_t g = groups; g-- > 0; w *= keep)
                sum += w * (stats[(k * groups + g) * C + c] *
                                (k ? (double)unbias : 1) -
                            running[k * C + c]);
            delta[k * C + c] = (float)(delta[k * C + c] + sum);
        }
    return 0;
}

/* -- activation, pooling ----------------------------------------------------
 */

static int relu(struct plait_queue *q, float *x, size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] < 0 ? 0 : x[i];
    return 0;
}

static int relu_backward(struct plait_queue *q, float *dx, const float *out,
                         size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++)
        dx[i] = out[i] <= 0 ? 0 : dx[i];
    return 0;
}

static int avgpool_forward(struct plait_queue *q, float *out, const float *x,
                           size_t N, size_t rows, size_t C)
{
    (void)q;
    for (size_t i = 0; i < N * C; i++) {
        double sum = 0;

        for (size_t r = 0; r < rows; r++)
            sum += x[(i / C * rows + r) * C + i % C];
        out[i] = (float)(sum / (double)rows);
    }
    return 0;
}

static int avgpool_backward(struct plait_queue *q, float *dx, const float *dout,
                            size_t N, size_t rows, size_t C)
{
    (void)q;
    for (size_t i = 0; i < N * rows * C; i++)
        dx[i] = dout[i / (rows * C) * C + i % C] / (float)rows;
    return 0;
}

/* -- loss -------------------------------------------------------------------
 */

static double squared_row(const struct plait_class_loss *l, float *x,
                          int32_t label, size_t classes)
{
    double loss = 0;

    for (size_t c = 0; c < classes; c++) {
        double want = classes == 1 ? label : (size_t)label == c;
        double d = x[c] - want;

        loss += d * d / 2;
        x[c] = (float)(d * l->scale);
    }
    return loss;
}

static double softmax_row(const struct plait_class_loss *l, float *x,
                          int32_t label, size_t classes)
{
    double max = -INFINITY, sum = 0, loss = 0, all = l->smoothing;

    all /= (double)classes;
    for (size_t c = 0; c < classes; c++)
        max = fmax(max, x[c]);
    for (size_t c = 0; c < classes; c++)
        sum += exp(x[c] - max);
    for (size_t c = 0; c < classes; c++) {
        double want = all + ((size_t)label == c ? 1 - (double)l->smoothing : 0);
        double p = x[c] - max - log(sum);

        loss -= want * p;
        x[c] = (float)((exp(p) - want) * l->scale);
    }
    return loss;
}

static int is_largest(const float *x, int32_t label, size_t classes)
{
    size_t best = 0;

    for (size_t c = 1; c < classes; c++)
        if (x[c] > x[best])
            best = c;
    return best == (size_t)label;
}

int ref_class_loss(struct plait_queue *q, const struct plait_class_loss *l,
                   double *sums, float *logits, const int32_t *labels, size_t N,
                   size_t classes)
{
    (void)q;
    for (size_t i = 0; i < N; i++) {
        float *x = logits + i * classes;

        sums[1] += is_largest(x, labels[i], classes);
        sums[0] += l->squared ? squared_row(l, x, labels[i], classes)
                              : softmax_row(l, x, labels[i], classes);
    }
    return 0;
}

const struct plait_image_ops ref_image_ops = {
    .conv_forward = ref_conv_forward,
    .conv_backward_input = ref_conv_backward_input,
    .conv_backward_weight = ref_conv_backward_weight,
    .batchnorm_stats = batchnorm_stats,
    .batchnorm_join = ref_batchnorm_join,
    .batchnorm_forward = batchnorm_forward,
    .batchnorm_sums = batchnorm_sums,
    .batchnorm_backward = batchnorm_backward,
    .batchnorm_fold = ref_batchnorm_fold,
    .relu = relu,
    .relu_backward = relu_backward,
    .avgpool_forward = avgpool_forward,
    .avgpool_backward = avgpool_backward,
    .maxpool_forward = ref_maxpool_forward,
    .maxpool_backward = ref_maxpool_backward,
    .class_loss = ref_class_loss,
};

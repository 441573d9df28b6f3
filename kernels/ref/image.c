/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/image.h"

#include <math.h>

/* -- batch norm ------------------------------------------------------------ */

static int batchnorm_stats(struct plait_queue *q,
                           const struct plait_batchnorm *b)
{
    (void)q;
    for (size_t i = 0; i < b->groups * b->C; i++) {
        const float *at = b->x + i / b->C * b->rows * b->C + i % b->C;
        double mean = 0, var = 0;

        for (size_t r = 0; r < b->rows; r++)
            mean += at[r * b->C];
        mean /= (double)b->rows;
        for (size_t r = 0; r < b->rows; r++)
            var += (at[r * b->C] - mean) * (at[r * b->C] - mean);
        b->stats[i] = (float)mean;
        b->stats[b->groups * b->C + i] = (float)(var / (double)b->rows);
    }
    return 0;
}

int ref_batchnorm_join(struct plait_queue *q,
                       const struct plait_batchnorm_join *j)
{
    size_t n = j->n, C = j->C;

    (void)q;
    for (size_t c = 0; c < C; c++) {
        double mean = 0, var = 0;

        for (size_t i = 0; i < n; i++)
            mean += j->each[i * 2 * C + c];
        mean /= (double)n;
        for (size_t i = 0; i < n; i++) {
            double d = j->each[i * 2 * C + c] - mean;

            var += j->each[(i * 2 + 1) * C + c] + d * d;
        }
        j->stats[c] = (float)mean;
        j->stats[C + c] = (float)(var / (double)n);
    }
    return 0;
}

/* The index of an element's statistics, its channel, and its mean and rstd. */
struct place {
    size_t stat, C;
    double mean, rstd;
};

static struct place place_of(const struct plait_batchnorm *b, size_t i)
{
    size_t at = i / (b->rows * b->C) * b->C + i % b->C;
    double var = b->stats[b->groups * b->C + at];

    return (struct place){at, i % b->C, b->stats[at],
                          1 / sqrt(var + (double)b->eps)};
}

static int batchnorm_forward(struct plait_queue *q,
                             const struct plait_batchnorm *b)
{
    (void)q;
    for (size_t i = 0; i < b->groups * b->rows * b->C; i++) {
        struct place p = place_of(b, i);
        double y = (b->x[i] - p.mean) * p.rstd * b->gamma[p.C] + b->beta[p.C];

        if (b->residual != NULL)
            y += b->residual[i];
        b->out[i] = b->relu && y < 0 ? 0 : (float)y;
    }
    return 0;
}

static double masked(const struct plait_batchnorm *b, size_t i)
{
    return b->out != NULL && b->out[i] <= 0 ? 0 : b->dout[i];
}

static int batchnorm_sums(struct plait_queue *q,
                          const struct plait_batchnorm *b)
{
    (void)q;
    for (size_t g = 0; g < b->groups; g++)
        for (size_t c = 0; c < b->C; c++) {
            double sum = 0, product = 0;

            for (size_t r = 0; r < b->rows; r++) {
                size_t i = (g * b->rows + r) * b->C + c;
                struct place p = place_of(b, i);
                double d = masked(b, i);

                sum += d;
                product += d * (b->x[i] - p.mean) * p.rstd;
            }
            b->sums[g * 2 * b->C + c] = (float)sum;
            b->sums[(g * 2 + 1) * b->C + c] = (float)product;
        }
    return 0;
}

static int batchnorm_backward(struct plait_queue *q,
                              const struct plait_batchnorm *b)
{
    (void)q;
    for (size_t i = 0; i < b->groups * b->rows * b->C; i++) {
        struct place p = place_of(b, i);
        const float *s = b->sums + i / (b->rows * b->C) * 2 * b->C + p.C;
        double d = masked(b, i), norm = (b->x[i] - p.mean) * p.rstd;

        if (b->dresidual != NULL)
            b->dresidual[i] = (float)d;
        b->dx[i] = (float)(b->gamma[p.C] * p.rstd *
                           (d - (s[0] + norm * s[b->C]) / (double)b->count));
    }
    return 0;
}

int ref_batchnorm_fold(struct plait_queue *q,
                       const struct plait_batchnorm_fold *f)
{
    size_t C = f->C;

    (void)q;
    for (size_t k = 0; k < 2; k++)
        for (size_t c = 0; c < C; c++) {
            double sum = 0, w = f->weight;

            for (size_t g = f->groups; g-- > 0; w *= f->keep)
                sum += w * (f->stats[(k * f->groups + g) * C + c] *
                                (k ? (double)f->unbias : 1) -
                            f->running[k * C + c]);
            f->delta[k * C + c] = (float)(f->delta[k * C + c] + sum);
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

static int avgpool_forward(struct plait_queue *q, const struct plait_avgpool *p,
                           float *out, const float *x)
{
    (void)q;
    for (size_t i = 0; i < p->N * p->C; i++) {
        double sum = 0;

        for (size_t r = 0; r < p->rows; r++)
            sum += x[(i / p->C * p->rows + r) * p->C + i % p->C];
        out[i] = (float)(sum / (double)p->rows);
    }
    return 0;
}

static int avgpool_backward(struct plait_queue *q,
                            const struct plait_avgpool *p, float *dx,
                            const float *dout)
{
    size_t image = p->rows * p->C;

    (void)q;
    for (size_t i = 0; i < p->N * image; i++)
        dx[i] = dout[i / image * p->C + i % p->C] / (float)p->rows;
    return 0;
}

/* -- loss -------------------------------------------------------------------
 */

static double squared_row(const struct plait_class_loss *l, float *x,
                          int32_t label)
{
    double loss = 0;

    for (size_t c = 0; c < l->classes; c++) {
        double want = l->classes == 1 ? label : (size_t)label == c;
        double d = x[c] - want;

        loss += d * d / 2;
        x[c] = (float)(d * l->scale);
    }
    return loss;
}

static double softmax_row(const struct plait_class_loss *l, float *x,
                          int32_t label)
{
    size_t classes = l->classes;
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

int ref_class_loss(struct plait_queue *q, const struct plait_class_loss *l)
{
    (void)q;
    for (size_t i = 0; i < l->N; i++) {
        float *x = l->logits + i * l->classes;
        int32_t label = l->labels[i];

        l->sums[1] += is_largest(x, label, l->classes);
        l->sums[0] +=
            l->squared ? squared_row(l, x, label) : softmax_row(l, x, label);
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

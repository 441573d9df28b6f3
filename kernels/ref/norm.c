/* SPDX-License-Identifier: Apache-2.0 */
/* LayerNorm and RMSNorm. A norm without a mean is RMSNorm: its formulas are
 * those of LayerNorm with a mean of 0 and without beta. */
#include <math.h>

#include "kernels/ref/ref.h"

/* What is normalised: inp, or the stored (rounded) sum inp + residual. */
static const void *norm_input(const struct plait_norm_forward *n)
{
    if (n->residual == NULL)
        return n->inp;
    ref_add(NULL, &(struct plait_add){.type = n->type,
                                      .out = n->sum,
                                      .a = n->inp,
                                      .b = n->residual,
                                      .n = n->N * n->C});
    return n->sum;
}

/* `x` is the whole array that is normalised. */
static void forward_row(const struct plait_norm_forward *n, const void *x,
                        size_t i)
{
    size_t C = n->C, at = i * C;
    double mu = 0, var = 0, r;

    for (size_t c = 0; n->mean != NULL && c < C; c++)
        mu += ref_get(n->type, x, at + c);
    mu /= (double)C;
    for (size_t c = 0; c < C; c++) {
        double d = ref_get(n->type, x, at + c) - mu;

        var += d * d;
    }
    r = 1 / sqrt(var / (double)C + n->eps);
    for (size_t c = 0; c < C; c++) {
        double y = (ref_get(n->type, x, at + c) - mu) * r *
                   (ref_get(n->type, n->gamma, c) + n->plus);

        if (n->mean != NULL)
            y += ref_get(n->type, n->beta, c);
        ref_put(n->type, n->out, at + c, y);
    }
    if (n->mean != NULL)
        n->mean[i] = (float)mu;
    n->rstd[i] = (float)r;
}

int ref_norm_forward(struct plait_queue *q, const struct plait_norm_forward *n)
{
    const void *x = norm_input(n);

    for (size_t i = 0; i < n->N; i++)
        forward_row(n, x, i);
    return ref_fp8_amax(q, n->amax, n->out, n->N * n->C);
}

static double mean_of(const struct plait_norm_backward *n, size_t i)
{
    return n->mean != NULL ? n->mean[i] : 0;
}

/* dx of one row of out = (x - mean) * rstd * gamma, given xhat = (x - mean)
 * * rstd: with g = dout * gamma, rstd * (g - m - xhat * avg(g xhat)), where m
 * is avg(g), or 0 where no mean was subtracted. */
static void backward_row(const struct plait_norm_backward *n, size_t i)
{
    double sum_g = 0, sum_gx = 0, mean = mean_of(n, i), rstd = n->rstd[i];
    size_t C = n->C, at = i * C;

    for (size_t c = 0; c < C; c++) {
        double g = ref_get(n->type, n->dout, at + c) *
                   (ref_get(n->type, n->gamma, c) + n->plus);

        sum_g += g;
        sum_gx += g * (ref_get(n->type, n->x, at + c) - mean) * rstd;
    }
    if (n->mean == NULL)
        sum_g = 0;
    for (size_t c = 0; c < C; c++) {
        double g = ref_get(n->type, n->dout, at + c) *
                   (ref_get(n->type, n->gamma, c) + n->plus);
        double xhat = (ref_get(n->type, n->x, at + c) - mean) * rstd;
        double d = rstd * (g - sum_g / (double)C - xhat * sum_gx / (double)C);

        if (n->accumulate)
            d += ref_get(n->type, n->dx, at + c);
        ref_put(n->type, n->dx, at + c, d);
    }
}

static void backward_column(const struct plait_norm_backward *n, size_t c)
{
    double dgamma = n->dgamma[c], dbeta = 0;

    if (n->mean != NULL)
        dbeta = n->dbeta[c];
    for (size_t i = 0; i < n->N; i++) {
        size_t at = i * n->C + c;
        double d = ref_get(n->type, n->dout, at);

        dgamma += d * (ref_get(n->type, n->x, at) - mean_of(n, i)) * n->rstd[i];
        dbeta += d;
    }
    n->dgamma[c] = (float)dgamma;
    if (n->mean != NULL)
        n->dbeta[c] = (float)dbeta;
}

int ref_norm_backward(struct plait_queue *q,
                      const struct plait_norm_backward *n)
{
    /* The sums come first, because dx may overwrite dout. */
    for (size_t c = 0; c < n->C; c++)
        backward_column(n, c);
    for (size_t i = 0; i < n->N; i++)
        backward_row(n, i);
    return ref_fp8_amax(q, n->amax, n->dx, n->N * n->C);
}

/* -- heads without weights ------------------------------------------------ */

/* The mean of x y over the columns of one head, which begin at `at`. */
static double mean_product(const struct plait_head_norm *n, const void *y,
                           size_t at)
{
    double sum = 0;

    for (int c = 0; c < n->head_dim; c++)
        sum += ref_get(n->type, n->x, at + (size_t)c) *
               ref_get(n->type, y, at + (size_t)c);
    return sum / n->head_dim;
}

int ref_head_norm(struct plait_queue *q, const struct plait_head_norm *n)
{
    size_t heads = (size_t)n->heads, D = (size_t)n->head_dim;

    (void)q;
    for (size_t i = 0; i < n->N * heads; i++) {
        size_t at = i / heads * n->stride + i % heads * D;
        double mean = mean_product(n, n->y ? n->y : n->x, at);
        double rstd = n->y ? n->rstd[i] : 1 / sqrt(mean + n->eps);

        for (size_t c = at; c < at + D; c++) {
            double x = ref_get(n->type, n->x, c);

            if (n->y)
                x -= mean * ref_get(n->type, n->y, c);
            ref_put(n->type, n->x, c, rstd * x);
        }
        if (!n->y)
            n->rstd[i] = (float)rstd;
    }
    return 0;
}

/* -- rows on several ranks ------------------------------------------------ */

int ref_norm_part_sums(struct plait_queue *q, const struct plait_norm_part *p)
{
    (void)q;
    for (size_t i = 0; i < p->N; i++) {
        double sum = 0;

        for (size_t c = 0; c < p->C; c++) {
            double x = ref_get(p->type, p->x, i * p->C + c), by = x;

            if (p->dout != NULL)
                by = ref_get(p->type, p->dout, i * p->C + c) *
                     ref_get(p->type, p->gamma, c);
            sum += x * by;
        }
        p->sums[i] = (float)sum;
    }
    return 0;
}

int ref_norm_part_forward(struct plait_queue *q,
                          const struct plait_norm_part *p)
{
    (void)q;
    for (size_t i = 0; i < p->N; i++) {
        double r = 1 / sqrt((double)p->sums[i] * p->mean + p->eps);

        for (size_t c = 0; c < p->C; c++)
            ref_put(p->type, p->out, i * p->C + c,
                    ref_get(p->type, p->x, i * p->C + c) * r *
                        ref_get(p->type, p->gamma, c));
        p->rstd[i] = (float)r;
    }
    return 0;
}

int ref_norm_part_backward(struct plait_queue *q,
                           const struct plait_norm_part *p)
{
    (void)q;
    for (size_t c = 0; c < p->C; c++) {
        double gamma = ref_get(p->type, p->gamma, c), dgamma = p->dgamma[c];

        for (size_t i = 0; i < p->N; i++) {
            double r = p->rstd[i], d = ref_get(p->type, p->dout, i * p->C + c);
            double h = ref_get(p->type, p->x, i * p->C + c) * r;

            dgamma += d * h;
            ref_put(p->type, p->out, i * p->C + c,
                    r * (d * gamma - h * r * p->sums[i] * p->mean));
        }
        p->dgamma[c] = (float)dgamma;
    }
    return 0;
}

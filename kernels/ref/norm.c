/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/ref/ref.h"

/* What is normalised: inp, or the stored (rounded) sum inp + residual. */
static const void *norm_input(enum plait_dtype type, void *sum, const void *inp,
                              const void *residual, size_t n)
{
    if (residual == NULL)
        return inp;
    ref_add(NULL, type, sum, inp, residual, n);
    return sum;
}

int ref_layernorm_forward(struct plait_queue *q, enum plait_dtype type,
                          void *out, float *mean, float *rstd, void *sum,
                          const void *inp, const void *residual,
                          const void *gamma, const void *beta, float eps,
                          size_t N, size_t C, uint32_t *amax)
{
    const void *x = norm_input(type, sum, inp, residual, N * C);

    for (size_t i = 0; i < N; i++) {
        double mu = 0, var = 0, r;

        for (size_t c = 0; c < C; c++)
            mu += ref_get(type, x, i * C + c);
        mu /= (double)C;
        for (size_t c = 0; c < C; c++) {
            double d = ref_get(type, x, i * C + c) - mu;

            var += d * d;
        }
        r = 1 / sqrt(var / (double)C + eps);
        for (size_t c = 0; c < C; c++)
            ref_put(type, out, i * C + c,
                    (ref_get(type, x, i * C + c) - mu) * r *
                            ref_get(type, gamma, c) +
                        ref_get(type, beta, c));
        mean[i] = (float)mu;
        rstd[i] = (float)r;
    }
    return ref_fp8_amax(q, amax, out, N * C);
}

/* dx of one row of out = (x - mean) * rstd * gamma, given xhat = (x - mean)
 * * rstd: with g = dout * gamma, rstd * (g - m - xhat * avg(g xhat)), where m
 * is avg(g), or 0 where no mean was subtracted. */
static void norm_backward_row(enum plait_dtype type, void *dx, const void *dout,
                              const void *x, const void *gamma, double mean,
                              double rstd, int centred, int accumulate,
                              size_t at, size_t C)
{
    double sum_g = 0, sum_gx = 0;

    for (size_t c = 0; c < C; c++) {
        double g = ref_get(type, dout, at + c) * ref_get(type, gamma, c);

        sum_g += g;
        sum_gx += g * (ref_get(type, x, at + c) - mean) * rstd;
    }
    if (!centred)
        sum_g = 0;
    for (size_t c = 0; c < C; c++) {
        double g = ref_get(type, dout, at + c) * ref_get(type, gamma, c);
        double xhat = (ref_get(type, x, at + c) - mean) * rstd;
        double d = rstd * (g - sum_g / (double)C - xhat * sum_gx / (double)C);

        if (accumulate)
            d += ref_get(type, dx, at + c);
        ref_put(type, dx, at + c, d);
    }
}

int ref_layernorm_backward(struct plait_queue *q, enum plait_dtype type,
                           void *dx, float *dgamma, float *dbeta,
                           const void *dout, const void *x, const void *gamma,
                           const float *mean, const float *rstd, int accumulate,
                           size_t N, size_t C, uint32_t *amax)
{
    for (size_t c = 0; c < C; c++) {
        double dg = dgamma[c], db = dbeta[c];

        for (size_t i = 0; i < N; i++) {
            double d = ref_get(type, dout, i * C + c);

            dg += d * (ref_get(type, x, i * C + c) - mean[i]) * rstd[i];
            db += d;
        }
        dgamma[c] = (float)dg;
        dbeta[c] = (float)db;
    }
    for (size_t i = 0; i < N; i++)
        norm_backward_row(type, dx, dout, x, gamma, mean[i], rstd[i], 1,
                          accumulate, i * C, C);
    return ref_fp8_amax(q, amax, dx, N * C);
}

int ref_rmsnorm_forward(struct plait_queue *q, enum plait_dtype type, void *out,
                        float *rstd, void *sum, const void *inp,
                        const void *residual, const void *gamma, float eps,
                        size_t N, size_t C, uint32_t *amax)
{
    const void *x = norm_input(type, sum, inp, residual, N * C);

    for (size_t i = 0; i < N; i++) {
        double squares = 0, r;

        for (size_t c = 0; c < C; c++) {
            double v = ref_get(type, x, i * C + c);

            squares += v * v;
        }
        r = 1 / sqrt(squares / (double)C + eps);
        for (size_t c = 0; c < C; c++)
            ref_put(type, out, i * C + c,
                    ref_get(type, x, i * C + c) * r * ref_get(type, gamma, c));
        rstd[i] = (float)r;
    }
    return ref_fp8_amax(q, amax, out, N * C);
}

int ref_rmsnorm_backward(struct plait_queue *q, enum plait_dtype type, void *dx,
                         float *dgamma, const void *dout, const void *x,
                         const void *gamma, const float *rstd, int accumulate,
                         size_t N, size_t C, uint32_t *amax)
{
    for (size_t c = 0; c < C; c++) {
        double dg = dgamma[c];

        for (size_t i = 0; i < N; i++)
            dg += ref_get(type, dout, i * C + c) * ref_get(type, x, i * C + c) *
                  rstd[i];
        dgamma[c] = (float)dg;
    }
    for (size_t i = 0; i < N; i++)
        norm_backward_row(type, dx, dout, x, gamma, 0, rstd[i], 0, accumulate,
                          i * C, C);
    return ref_fp8_amax(q, amax, dx, N * C);
}

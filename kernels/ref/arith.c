/* SPDX-License-Identifier: Apache-2.0 */
/* Casts, sums and activation functions, written as their formulas. */
#include <math.h>

#include "kernels/ref/ref.h"

int ref_cast(struct plait_queue *q, enum plait_dtype to, void *dst,
             enum plait_dtype from, const void *src, size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++)
        ref_put(to, dst, i, ref_get(from, src, i));
    return 0;
}

int ref_add(struct plait_queue *q, enum plait_dtype type, void *out,
            const void *a, const void *b, size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++)
        ref_put(type, out, i, ref_get(type, a, i) + ref_get(type, b, i));
    return 0;
}

int ref_add_scaled(struct plait_queue *q, enum plait_dtype type, void *out,
                   const void *a, const void *b, float s, size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++)
        ref_put(type, out, i, ref_get(type, a, i) + s * ref_get(type, b, i));
    return 0;
}

int ref_scale(struct plait_queue *q, enum plait_dtype type, void *x, float s,
              size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++)
        ref_put(type, x, i, ref_get(type, x, i) * s);
    return 0;
}

int ref_bias_backward(struct plait_queue *q, enum plait_dtype type,
                      float *dbias, const void *dout, size_t N, size_t O)
{
    (void)q;
    for (size_t o = 0; o < O; o++) {
        double sum = dbias[o];

        for (size_t i = 0; i < N; i++)
            sum += ref_get(type, dout, i * O + o);
        dbias[o] = (float)sum;
    }
    return 0;
}

int ref_sum_squares(struct plait_queue *q, double *result,
                    const struct plait_floats *lists, int n)
{
    double sum = 0;

    (void)q;
    for (const struct plait_floats *l = lists; l < lists + n; l++)
        for (size_t i = 0; i < l->n; i++)
            sum += (double)l->x[i] * l->x[i];
    *result += sum;
    return 0;
}

/* Hendrycks and Gimpel, "Gaussian error linear units", the tanh form. */
double ref_gelu(double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);

    return 0.5 * x * (1 + tanh(u));
}

double ref_gelu_slope(double x)
{
    double k = sqrt(2 / M_PI);
    double t = tanh(k * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) +
           0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

int ref_gelu_forward(struct plait_queue *q, enum plait_dtype type, void *out,
                     const void *inp, size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++)
        ref_put(type, out, i, ref_gelu(ref_get(type, inp, i)));
    return 0;
}

int ref_gelu_backward(struct plait_queue *q, enum plait_dtype type, void *dinp,
                      const void *dout, const void *inp, size_t n)
{
    (void)q;
    for (size_t i = 0; i < n; i++)
        ref_put(type, dinp, i,
                ref_get(type, dout, i) * ref_gelu_slope(ref_get(type, inp, i)));
    return 0;
}

int ref_swiglu_forward(struct plait_queue *q, enum plait_dtype type, void *out,
                       const void *inp, size_t N, size_t F, uint32_t *amax)
{
    for (size_t i = 0; i < N; i++) {
        for (size_t f = 0; f < F; f++) {
            double gate = ref_get(type, inp, i * 2 * F + f);
            double up = ref_get(type, inp, i * 2 * F + F + f);

            ref_put(type, out, i * F + f, gate / (1 + exp(-gate)) * up);
        }
    }
    return ref_fp8_amax(q, amax, out, N * F);
}

int ref_swiglu_backward(struct plait_queue *q, enum plait_dtype type,
                        void *dinp, const void *dout, const void *inp, size_t N,
                        size_t F, uint32_t *amax)
{
    for (size_t i = 0; i < N; i++) {
        for (size_t f = 0; f < F; f++) {
            size_t g = i * 2 * F + f, u = g + F;
            double gate = ref_get(type, inp, g), up = ref_get(type, inp, u);
            double d = ref_get(type, dout, i * F + f);
            double s = 1 / (1 + exp(-gate));

            ref_put(type, dinp, g, d * up * s * (1 + gate * (1 - s)));
            ref_put(type, dinp, u, d * gate * s);
        }
    }
    return ref_fp8_amax(q, amax, dinp, 2 * N * F);
}

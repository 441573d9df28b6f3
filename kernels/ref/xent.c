/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/ref/ref.h"

int ref_xent_stats(struct plait_queue *q, enum plait_dtype type, float *max,
                   float *sum, float *target, const void *logits,
                   const int32_t *targets, int32_t first, int32_t count,
                   size_t stride, size_t N)
{
    (void)q;
    for (size_t i = 0; i < N; i++) {
        int64_t t = (int64_t)targets[i] - first;
        double m = -INFINITY, s = 0;

        for (size_t c = 0; c < (size_t)count; c++) {
            double x = ref_get(type, logits, i * stride + c);

            if (x > m)
                m = x;
        }
        for (size_t c = 0; c < (size_t)count; c++)
            s += exp(ref_get(type, logits, i * stride + c) - m);
        max[i] = (float)m;
        sum[i] = (float)s;
        target[i] = 0;
        if (targets[i] >= 0 && t >= 0 && t < count)
            target[i] = (float)ref_get(type, logits, i * stride + (size_t)t);
    }
    return 0;
}

int ref_xent_rescale(struct plait_queue *q, float *sum, const float *max,
                     const float *allmax, size_t N)
{
    (void)q;
    for (size_t i = 0; i < N; i++)
        sum[i] = (float)(sum[i] * exp((double)max[i] - allmax[i]));
    return 0;
}

int ref_xent_backward(struct plait_queue *q, enum plait_dtype type,
                      double *loss, void *logits, const float *max,
                      const float *sum, const float *target,
                      const int32_t *targets, float scale, int32_t first,
                      int32_t count, size_t stride, size_t N)
{
    double total = 0;

    (void)q;
    for (size_t i = 0; i < N; i++) {
        int64_t t = (int64_t)targets[i] - first;
        int masked = targets[i] < 0;

        if (!masked)
            total += (double)max[i] + log(sum[i]) - target[i];
        for (size_t c = 0; c < stride; c++) {
            double p = 0;

            if (!masked && c < (size_t)count) {
                p = exp(ref_get(type, logits, i * stride + c) - max[i]);
                p = (p / sum[i] - ((int64_t)c == t)) * scale;
            }
            ref_put(type, logits, i * stride + c, p);
        }
    }
    *loss += total;
    return 0;
}

int ref_xent(struct plait_queue *q, enum plait_dtype type, double *loss,
             void *logits, const int32_t *targets, float scale, int32_t count,
             size_t stride, size_t N)
{
    size_t bytes = stride * plait_dtype_size(type);

    for (size_t i = 0; i < N; i++) {
        char *row = (char *)logits + i * bytes;
        float max, sum, target;

        ref_xent_stats(q, type, &max, &sum, &target, row, targets + i, 0, count,
                       stride, 1);
        ref_xent_backward(q, type, loss, row, &max, &sum, &target, targets + i,
                          scale, 0, count, stride, 1);
    }
    return 0;
}

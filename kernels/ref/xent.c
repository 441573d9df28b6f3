/* SPDX-License-Identifier: Apache-2.0 */
/* The loss and its gradient as formulas, also of logits that tp ranks share. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/xent.h"

int ref_xent_stats(struct plait_queue *q, const struct plait_xent *x)
{
    (void)q;
    for (size_t i = 0; i < x->N; i++) {
        int64_t t = (int64_t)x->targets[i] - x->first;
        double max = -INFINITY, sum = 0;
        size_t row = i * x->stride;

        for (size_t c = 0; c < (size_t)x->count; c++) {
            double logit = ref_get(x->type, x->logits, row + c);

            if (logit > max)
                max = logit;
        }
        for (size_t c = 0; c < (size_t)x->count; c++)
            sum += exp(ref_get(x->type, x->logits, row + c) - max);
        x->max[i] = (float)max;
        x->sum[i] = (float)sum;
        x->target[i] = 0;
        if (x->targets[i] >= 0 && t >= 0 && t < x->count)
            x->target[i] = (float)ref_get(x->type, x->logits, row + (size_t)t);
    }
    return 0;
}

int ref_xent_rescale(struct plait_queue *q, const struct plait_xent *x,
                     const float *allmax)
{
    (void)q;
    for (size_t i = 0; i < x->N; i++)
        x->sum[i] = (float)(x->sum[i] * exp((double)x->max[i] - allmax[i]));
    return 0;
}

int ref_xent_backward(struct plait_queue *q, const struct plait_xent *x)
{
    double total = 0;

    (void)q;
    for (size_t i = 0; i < x->N; i++) {
        int64_t t = (int64_t)x->targets[i] - x->first;
        int masked = x->targets[i] < 0;
        size_t row = i * x->stride;

        if (!masked)
            total += (double)x->max[i] + log(x->sum[i]) - x->target[i];
        for (size_t c = 0; c < x->stride; c++) {
            double p = 0;

            if (!masked && c < (size_t)x->count) {
                double logit = ref_get(x->type, x->logits, row + c);
                double capped = x->cap > 0 ? logit / x->cap : 0;

                p = exp(logit - x->max[i]);
                p = (p / x->sum[i] - ((int64_t)c == t)) * x->scale *
                    fmax(1 - capped * capped, 0);
            }
            ref_put(x->type, x->logits, row + c, p);
        }
    }
    *x->loss += total;
    return 0;
}

int ref_xent(struct plait_queue *q, const struct plait_xent *x)
{
    size_t bytes = x->stride * plait_dtype_size(x->type);

    for (size_t i = 0; i < x->N; i++) {
        float max, sum, target;
        struct plait_xent row = *x;

        row.N = 1;
        row.first = 0;
        row.logits = (char *)x->logits + i * bytes;
        row.targets = x->targets + i;
        row.max = &max;
        row.sum = &sum;
        row.target = &target;
        ref_xent_stats(q, &row);
        ref_xent_backward(q, &row);
    }
    return 0;
}

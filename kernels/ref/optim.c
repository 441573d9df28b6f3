/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/ref/ref.h"

static void store(const struct plait_adamw *p, enum plait_dtype type,
                  void *weight, size_t i, float x)
{
    uint64_t seed = p->seed + (p->now != NULL ? p->now->seed : 0);
    uint32_t random = plait_rounding_bits(seed, i);

    if (!p->stochastic || type == PLAIT_F32)
        ref_put(type, weight, i, x);
    else if (type == PLAIT_BF16_T)
        ((uint16_t *)weight)[i] = plait_bf16_of_f32_random(x, random);
    else
        ((uint16_t *)weight)[i] = plait_fp16_of_f32_random(x, random);
}

/* Loshchilov and Hutter, "Decoupled weight decay regularization". */
int ref_adamw(struct plait_queue *q, const struct plait_adamw *p,
              float *master, float *m, float *v, const float *grad,
              enum plait_dtype type, void *weight, size_t n)
{
    double scale = p->grad_scale != NULL ? *p->grad_scale : 1;
    double correct1 = 1 - pow(p->beta1, (double)p->step);
    double correct2 = 1 - pow(p->beta2, (double)p->step);
    double lr = p->lr;

    (void)q;
    if (p->now != NULL) {
        lr = p->now->lr;
        correct1 = 1 / (double)p->now->correct1;
        correct2 = 1 / (double)p->now->correct2;
    }
    if (!isfinite(scale))
        return 0;
    for (size_t i = 0; i < n; i++) {
        double g = scale * grad[i], w = master[i];
        double m1 = p->beta1 * (double)m[i] + (1 - (double)p->beta1) * g;
        double v1 = p->beta2 * (double)v[i] + (1 - (double)p->beta2) * g * g;

        w -= lr * (m1 / correct1 / (sqrt(v1 / correct2) + p->eps) +
                   p->weight_decay * w);
        m[i] = (float)m1;
        v[i] = (float)v1;
        master[i] = (float)w;
        if (weight != NULL)
            store(p, type, weight, i, (float)w);
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/ref/ref.h"

static void store(const struct plait_adamw *p, enum plait_dtype type,
                  const struct plait_adamw_run *r, size_t i, float x)
{
    uint64_t seed = p->seed + (p->now != NULL ? p->now->seed : 0);
    uint32_t random = plait_rounding_bits(seed + r->first, i);

    if (!p->stochastic || type == PLAIT_F32)
        ref_put(type, r->weight, i, x);
    else if (type == PLAIT_BF16_T)
        ((uint16_t *)r->weight)[i] = plait_bf16_of_f32_random(x, random);
    else
        ((uint16_t *)r->weight)[i] = plait_fp16_of_f32_random(x, random);
}

/* What p says of this step. */
struct rates {
    double lr, correct1, correct2, scale;
};

static struct rates rates_of(const struct plait_adamw *p)
{
    struct rates s = {p->lr, 1 - pow(p->beta1, (double)p->step),
                      1 - pow(p->beta2, (double)p->step),
                      p->grad_scale != NULL ? *p->grad_scale : 1};

    if (p->now != NULL) {
        s.lr = p->now->lr;
        s.correct1 = 1 / (double)p->now->correct1;
        s.correct2 = 1 / (double)p->now->correct2;
    }
    return s;
}

static void step_run(const struct plait_adamw *p, const struct rates *s,
                     enum plait_dtype type, const struct plait_adamw_run *r)
{
    for (size_t i = 0; i < r->n; i++) {
        double g = s->scale * r->grad[i], w = r->master[i];
        double m = p->beta1 * (double)r->m[i] + (1 - (double)p->beta1) * g;
        double v = p->beta2 * (double)r->v[i] + (1 - (double)p->beta2) * g * g;

        w -= s->lr * (m / s->correct1 / (sqrt(v / s->correct2) + p->eps) +
                      r->weight_decay * w);
        r->m[i] = (float)m;
        r->v[i] = (float)v;
        r->master[i] = (float)w;
        if (r->weight != NULL)
            store(p, type, r, i, (float)w);
    }
}

/* Loshchilov and Hutter, "Decoupled weight decay regularization". */
int ref_adamw(struct plait_queue *q, const struct plait_adamw *p,
              enum plait_dtype type, const struct plait_adamw_run *runs,
              int nruns)
{
    struct rates s = rates_of(p);

    (void)q;
    if (!isfinite(s.scale))
        return 0;
    for (int i = 0; i < nruns; i++)
        step_run(p, &s, type, &runs[i]);
    return 0;
}

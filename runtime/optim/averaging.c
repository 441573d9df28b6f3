/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/optim/averaging.h"

/* to += s * from */
static int add_scaled(const struct plait_vectors *v, float *to,
                      const float *from, double s)
{
    return v->ops->add_scaled(v->q, &(struct plait_add){.type = PLAIT_F32,
                                                        .out = to,
                                                        .a = to,
                                                        .b = from,
                                                        .s = (float)s,
                                                        .n = v->n});
}

/* x *= s */
static int scale(const struct plait_vectors *v, float *x, double s)
{
    return v->ops->scale(
        v->q, &(struct plait_scale){
                  .type = PLAIT_F32, .x = x, .s = (float)s, .n = v->n});
}

static int copy_vector(const struct plait_vectors *v, float *to,
                       const float *from)
{
    return v->ops->copy(v->q, to, from, v->n * sizeof(*to));
}

int plait_average_difference(const struct plait_vectors *v, float *w,
                             const float *common)
{
    return add_scaled(v, w, common, -1);
}

int plait_average_local(const struct plait_vectors *v, float *w, float *common,
                        int replicas)
{
    if (add_scaled(v, common, w, 1.0 / replicas) < 0)
        return -1;
    return copy_vector(v, w, common);
}

int plait_average_diloco(const struct plait_vectors *v, float *w, float *common,
                         float *momentum, const struct plait_outer_sgd *s)
{
    if (scale(v, momentum, s->mu) < 0 ||
        add_scaled(v, momentum, w, 1.0 / s->replicas) < 0 ||
        add_scaled(v, common, w, s->lr / s->replicas) < 0 ||
        add_scaled(v, common, momentum, s->lr * s->mu) < 0)
        return -1;
    return copy_vector(v, w, common);
}

int plait_average_mix(const struct plait_vectors *v, float *w,
                      const float *common, double alpha)
{
    if (scale(v, w, alpha) < 0)
        return -1;
    return add_scaled(v, w, common, 1 - alpha);
}

int plait_average_correction(const struct plait_vectors *v, float *c,
                             const float *w, const float *z, double alpha)
{
    if (v->ops->add_scaled(v->q, &(struct plait_add){.type = PLAIT_F32,
                                                     .out = c,
                                                     .a = w,
                                                     .b = z,
                                                     .s = -1,
                                                     .n = v->n}) < 0)
        return -1;
    return scale(v, c, alpha);
}

int plait_average_sma(const struct plait_vectors *v, float *z, float *change,
                      const float *sum, double mu)
{
    if (scale(v, change, mu) < 0 || add_scaled(v, change, sum, 1) < 0)
        return -1;
    return add_scaled(v, z, change, 1);
}

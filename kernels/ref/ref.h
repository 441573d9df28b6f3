/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_REF_REF_H
#define PLAIT_KERNELS_REF_REF_H

#include <assert.h>

#include "kernels/dtype.h"
#include "kernels/host.h"

/* The oracle: one plain loop per sum of the definition, in double, with a
 * single rounding where a value is stored. The contracts are those of
 * struct plait_ops. */

static inline double ref_get(enum plait_dtype type, const void *p, size_t i)
{
    switch (type) {
    case PLAIT_F32:
        return ((const float *)p)[i];
    case PLAIT_BF16_T:
        return plait_f32_of_bf16(((const uint16_t *)p)[i]);
    case PLAIT_FP16_T:
        return plait_f32_of_fp16(((const uint16_t *)p)[i]);
    default:
        assert(!"a floating-point type");
        return 0;
    }
}

static inline void ref_put(enum plait_dtype type, void *p, size_t i, double x)
{
    switch (type) {
    case PLAIT_F32:
        ((float *)p)[i] = (float)x;
        break;
    case PLAIT_BF16_T:
        ((uint16_t *)p)[i] = plait_bf16_of_f32((float)x);
        break;
    case PLAIT_FP16_T:
        ((uint16_t *)p)[i] = plait_fp16_of_f32((float)x);
        break;
    default:
        assert(!"a floating-point type");
    }
}

double ref_gelu(double x);
double ref_gelu_slope(double x);

int ref_cast(struct plait_queue *q, const struct plait_cast *c);
int ref_cast_2d(struct plait_queue *q, const struct plait_cast_2d *c);
int ref_e5m2_encode(struct plait_queue *q, const struct plait_e5m2 *c);
int ref_e5m2_decode(struct plait_queue *q, const struct plait_e5m2 *c);
int ref_copy_heads(struct plait_queue *q, const struct plait_copy_heads *c);
int ref_sum_heads(struct plait_queue *q, const struct plait_sum_heads *s);
int ref_add(struct plait_queue *q, const struct plait_add *a);
int ref_add_scaled(struct plait_queue *q, const struct plait_add *a);
int ref_scale(struct plait_queue *q, const struct plait_scale *s);
int ref_softcap(struct plait_queue *q, const struct plait_scale *s);
int ref_dropout(struct plait_queue *q, const struct plait_dropout *d);
int ref_bias_backward(struct plait_queue *q,
                      const struct plait_bias_backward *b);
int ref_sum_squares(struct plait_queue *q, double *result,
                    const struct plait_floats *lists, int n);

int ref_average(struct plait_queue *q, const struct plait_average *a);
int ref_average_squares(struct plait_queue *q, const struct plait_average *a);
int ref_divide_root(struct plait_queue *q, const struct plait_divide_root *d);
int ref_factor_sums(struct plait_queue *q, const struct plait_factors *f);
int ref_factor_divide(struct plait_queue *q, const struct plait_factors *f);

int ref_linear_forward(struct plait_queue *q, const struct plait_linear *l);
int ref_linear_backward_input(struct plait_queue *q,
                              const struct plait_linear_dinp *l);
int ref_linear_backward_weight(struct plait_queue *q,
                               const struct plait_linear_dw *l);

int ref_fp8_forward(struct plait_queue *q, const struct plait_linear *l);
int ref_fp8_backward_input(struct plait_queue *q,
                           const struct plait_linear_dinp *l);
int ref_fp8_backward_weight(struct plait_queue *q,
                            const struct plait_linear_dw *l);
int ref_fp8_amax(struct plait_queue *q, uint32_t *amax, const void *x,
                 size_t n);

int ref_gelu_forward(struct plait_queue *q, const struct plait_gelu_forward *g);
int ref_gelu_backward(struct plait_queue *q,
                      const struct plait_gelu_backward *g);
int ref_swiglu_forward(struct plait_queue *q,
                       const struct plait_swiglu_forward *s);
int ref_swiglu_backward(struct plait_queue *q,
                        const struct plait_swiglu_backward *s);

int ref_norm_forward(struct plait_queue *q, const struct plait_norm_forward *n);
int ref_norm_backward(struct plait_queue *q,
                      const struct plait_norm_backward *n);
int ref_norm_part_sums(struct plait_queue *q, const struct plait_norm_part *p);
int ref_norm_part_forward(struct plait_queue *q,
                          const struct plait_norm_part *p);
int ref_norm_part_backward(struct plait_queue *q,
                           const struct plait_norm_part *p);

int ref_embedding_forward(struct plait_queue *q,
                          const struct plait_embedding_forward *e);
int ref_embedding_backward(struct plait_queue *q,
                           const struct plait_embedding_backward *e);
int ref_rope(struct plait_queue *q, const struct plait_rope *r);
int ref_temper(struct plait_queue *q, const struct plait_temper *t);
int ref_head_norm(struct plait_queue *q, const struct plait_head_norm *n);

int ref_attention_forward(struct plait_queue *q,
                          const struct plait_attention_forward *f);
int ref_attention_backward(struct plait_queue *q,
                           const struct plait_attention_backward *g);
int ref_attention_merge(struct plait_queue *q,
                        const struct plait_attention_merge *m);
int ref_attention_sink(struct plait_queue *q,
                       const struct plait_attention_sink *s);
int ref_attention_sink_backward(struct plait_queue *q,
                                const struct plait_attention_sink_gradient *s);

int ref_xent_stats(struct plait_queue *q, const struct plait_xent *x);
int ref_xent_rescale(struct plait_queue *q, const struct plait_xent *x,
                     const float *allmax);
int ref_xent_backward(struct plait_queue *q, const struct plait_xent *x);
int ref_xent(struct plait_queue *q, const struct plait_xent *x);

int ref_route_forward(struct plait_queue *q, const struct plait_route *r,
                      const void *logits);
int ref_route_load(struct plait_queue *q, const struct plait_route *r,
                   float *load);
int ref_route_backward(struct plait_queue *q, const struct plait_route *r,
                       const struct plait_route_gradient *g);
int ref_route_limit(struct plait_queue *q, const struct plait_route *r,
                    const struct plait_route_limit *limit);
int ref_route_sort(struct plait_queue *q, const struct plait_route_sort *s);
int ref_rows_spread(struct plait_queue *q, const struct plait_rows *r);
int ref_rows_join(struct plait_queue *q, const struct plait_rows *r);
int ref_rows_dot(struct plait_queue *q, const struct plait_rows *r);

int ref_update(struct plait_queue *q, const struct plait_update *p,
               const struct plait_update_run *runs, int nruns);
int ref_update_sums(struct plait_queue *q, const struct plait_update *p,
                    const struct plait_update_run *runs, int nruns);
int ref_update8(struct plait_queue *q, const struct plait_update *p,
                const struct plait_update8_run *runs, int nruns);

#endif

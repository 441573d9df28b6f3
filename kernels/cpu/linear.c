/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers on a CPU: the forward and both gradients, as products of the
 * matrix library. */
#include <string.h>

#include "kernels/cpu/products.h"
#include "kernels/linear.h"

/* -- types the library does not multiply: through fp32 ----------------- */

struct wide {
    float *a, *b, *bias, *dst;
};

static size_t rounded(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* dst[n] = src[n], in fp32 */
static int to_fp32(struct plait_queue *q, float *dst, enum plait_dtype type,
                   const void *src, size_t n)
{
    return plait_ops_cpu()->cast(
        q, &(struct plait_cast){
               .to = PLAIT_F32, .from = type, .dst = dst, .src = src, .n = n});
}

/* dst[n] = src[n], in `type` */
static int from_fp32(struct plait_queue *q, enum plait_dtype type, void *dst,
                     const float *src, size_t n)
{
    return plait_ops_cpu()->cast(
        q, &(struct plait_cast){
               .to = type, .from = PLAIT_F32, .dst = dst, .src = src, .n = n});
}

/* Converts the operands of p to fp32. bias is converted only if not NULL; dst
 * is uninitialised room. */
static int widen(struct plait_queue *q, const struct cpu_product *p,
                 const void *a, const void *b, const void *bias,
                 struct wide *wide)
{
    size_t na = p->M * p->K, nb = p->K * p->N, nd = p->M * p->N;
    float *room =
        cpu_scratch(q, CPU_SCRATCH_WIDE,
                    (rounded(na) + rounded(nb) + rounded(nd) + rounded(p->N)) *
                        sizeof(float));

    if (room == NULL)
        return -1;
    wide->a = room;
    wide->b = wide->a + rounded(na);
    wide->dst = wide->b + rounded(nb);
    wide->bias = wide->dst + rounded(nd);
    to_fp32(q, wide->a, p->type, a, na);
    to_fp32(q, wide->b, p->type, b, nb);
    if (bias != NULL)
        to_fp32(q, wide->bias, p->type, bias, p->N);
    return 0;
}

/* dst (fp32) = the product of operands of another type. */
static int wide_product(struct plait_queue *q, const struct cpu_product *p,
                        const void *a, const void *b, const void *bias,
                        float **dst)
{
    struct cpu_product fp32 = *p;
    struct wide wide;

    if (widen(q, p, a, b, bias, &wide) < 0)
        return -1;
    if (*dst == NULL)
        *dst = wide.dst;
    fp32.type = fp32.dst_type = PLAIT_F32;
    return cpu_product_run(q, &fp32, wide.a, wide.b, wide.bias, *dst);
}

static int wide_forward(struct plait_queue *q, const struct cpu_product *p,
                        const void *inp, const void *w, const void *bias,
                        void *dst)
{
    float *x = NULL;

    if (wide_product(q, p, inp, w, bias, &x) < 0)
        return -1;
    return from_fp32(q, p->type, dst, x, p->M * p->N);
}

/* -- the three products of a linear layer ------------------------------ */

int cpu_linear_forward(struct plait_queue *q, const struct plait_linear *l)
{
    const struct plait_weight *w = l->w;
    struct cpu_product p = {.M = l->N,
                            .N = w->O,
                            .K = w->C,
                            .transpose_b = 1,
                            .type = w->type,
                            .dst_type = w->type,
                            .has_bias = l->bias != NULL};
    void *dst = l->act == PLAIT_ACT_GELU && l->pre != NULL ? l->pre : l->out;
    int rc;

    if (cpu_product_native(w->type))
        rc = cpu_product_run(q, &p, l->inp.x, w->data, l->bias, dst);
    else
        rc = wide_forward(q, &p, l->inp.x, w->data, l->bias, dst);
    if (rc < 0 || l->act == PLAIT_ACT_NONE)
        return rc;
    return plait_ops_cpu()->gelu_forward(
        q, &(struct plait_gelu_forward){
               .type = w->type, .out = l->out, .inp = dst, .n = l->N * w->O});
}

static int is_sloped(const struct plait_linear_dinp *l)
{
    return l->pre != NULL && l->act == PLAIT_ACT_GELU;
}

/* Slope and sum are computed in fp32, so that only the result is rounded. */
static int wide_backward_input(struct plait_queue *q,
                               const struct cpu_product *p,
                               const struct plait_linear_dinp *l)
{
    const struct plait_ops *ops = plait_ops_cpu();
    size_t n = p->M * p->N;
    float *x = NULL, *other = NULL;

    if (is_sloped(l) || l->accumulate) {
        other = cpu_scratch(q, CPU_SCRATCH_OP, n * sizeof(*other));
        if (other == NULL)
            return -1;
    }
    if (wide_product(q, p, l->dout.x, l->w->data, NULL, &x) < 0)
        return -1;
    if (is_sloped(l)) {
        to_fp32(q, other, p->type, l->pre, n);
        ops->gelu_backward(
            q,
            &(struct plait_gelu_backward){
                .type = PLAIT_F32, .dinp = x, .dout = x, .inp = other, .n = n});
    }
    if (l->accumulate) {
        to_fp32(q, other, p->type, l->dinp, n);
        ops->add(q,
                 &(struct plait_add){
                     .type = PLAIT_F32, .out = x, .a = x, .b = other, .n = n});
    }
    return from_fp32(q, p->type, l->dinp, x, n);
}

int cpu_linear_backward_input(struct plait_queue *q,
                              const struct plait_linear_dinp *l)
{
    const struct plait_weight *w = l->w;
    struct cpu_product p = {.M = l->N,
                            .N = w->C,
                            .K = w->O,
                            .type = w->type,
                            .dst_type = w->type,
                            .accumulate = l->accumulate};

    /* Slope and sum in separate passes would round twice. */
    if (!cpu_product_native(w->type) || (is_sloped(l) && l->accumulate)) {
        p.accumulate = 0;
        return wide_backward_input(q, &p, l);
    }
    if (cpu_product_run(q, &p, l->dout.x, w->data, NULL, l->dinp) < 0)
        return -1;
    if (!is_sloped(l))
        return 0;
    return plait_ops_cpu()->gelu_backward(
        q, &(struct plait_gelu_backward){.type = w->type,
                                         .dinp = l->dinp,
                                         .dout = l->dinp,
                                         .inp = l->pre,
                                         .n = l->N * w->C});
}

int cpu_linear_backward_weight(struct plait_queue *q,
                               const struct plait_linear_dw *l)
{
    struct cpu_product p = {.M = l->O,
                            .N = l->C,
                            .K = l->N,
                            .transpose_a = 1,
                            .type = l->type,
                            .dst_type = PLAIT_F32,
                            .accumulate = l->accumulate};
    float *dw = l->dw;
    int rc = 0;

    if (l->N == 0 && l->accumulate)
        return 0;
    if (l->N == 0)
        memset(dw, 0, l->O * l->C * sizeof(*dw));
    else if (cpu_product_native(l->type))
        rc = cpu_product_run(q, &p, l->dout.x, l->inp.x, NULL, dw);
    else
        rc = wide_product(q, &p, l->dout.x, l->inp.x, NULL, &dw);
    return rc < 0 ? rc : cpu_linear_bias_gradient(q, l);
}

int cpu_linear_bias_gradient(struct plait_queue *q,
                             const struct plait_linear_dw *l)
{
    if (l->dbias == NULL)
        return 0;
    if (!l->accumulate)
        memset(l->dbias, 0, l->O * sizeof(*l->dbias));
    return plait_ops_cpu()->bias_backward(
        q, &(struct plait_bias_backward){.type = l->type,
                                         .dbias = l->dbias,
                                         .dout = l->dout.x,
                                         .N = l->N,
                                         .O = l->O});
}

void cpu_fill_linear(struct plait_ops *ops)
{
    ops->linear_forward = cpu_linear_forward;
    ops->linear_backward_input = cpu_linear_backward_input;
    ops->linear_backward_weight = cpu_linear_backward_weight;
}

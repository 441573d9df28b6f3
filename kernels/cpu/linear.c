/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/cpu/products.h"

/* -- types the library does not multiply: through fp32 ----------------- */

struct wide {
    float *a, *b, *bias, *dst;
};

static size_t rounded(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* Converts the operands of p to fp32. bias is converted only if not NULL; dst
 * is uninitialised room. */
static int widen(struct plait_queue *q, const struct cpu_product *p,
                 const void *a, const void *b, const void *bias,
                 struct wide *wide)
{
    const struct plait_ops *ops = plait_ops_cpu();
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
    ops->cast(q, PLAIT_F32, wide->a, p->type, a, na);
    ops->cast(q, PLAIT_F32, wide->b, p->type, b, nb);
    if (bias != NULL)
        ops->cast(q, PLAIT_F32, wide->bias, p->type, bias, p->N);
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
    return plait_ops_cpu()->cast(q, p->type, dst, PLAIT_F32, x, p->M * p->N);
}

/* -- the three products of a linear layer ------------------------------ */

int cpu_linear_forward(struct plait_queue *q, void *out, void *pre,
                       const void *inp, struct plait_weight *w,
                       const void *bias, enum plait_activation act, size_t N)
{
    struct cpu_product p = {.M = N,
                            .N = w->O,
                            .K = w->C,
                            .transpose_b = 1,
                            .type = w->type,
                            .dst_type = w->type,
                            .has_bias = bias != NULL};
    void *dst = act == PLAIT_ACT_GELU && pre != NULL ? pre : out;
    int ret;

    if (cpu_product_native(w->type))
        ret = cpu_product_run(q, &p, inp, w->data, bias, dst);
    else
        ret = wide_forward(q, &p, inp, w->data, bias, dst);
    if (ret < 0 || act == PLAIT_ACT_NONE)
        return ret;
    return plait_ops_cpu()->gelu_forward(q, w->type, out, dst, N * w->O);
}

/* With pre the product is multiplied by GELU's slope. Slope and sum are
 * computed in fp32, so that only the result is rounded. */
static int wide_backward_input(struct plait_queue *q,
                               const struct cpu_product *p, void *dinp,
                               const void *dout, const void *w, const void *pre,
                               int accumulate)
{
    const struct plait_ops *ops = plait_ops_cpu();
    size_t n = p->M * p->N;
    float *x = NULL, *other = NULL;

    if (pre != NULL || accumulate) {
        other = cpu_scratch(q, CPU_SCRATCH_OP, n * sizeof(*other));
        if (other == NULL)
            return -1;
    }
    if (wide_product(q, p, dout, w, NULL, &x) < 0)
        return -1;
    if (pre != NULL) {
        ops->cast(q, PLAIT_F32, other, p->type, pre, n);
        ops->gelu_backward(q, PLAIT_F32, x, x, other, n);
    }
    if (accumulate) {
        ops->cast(q, PLAIT_F32, other, p->type, dinp, n);
        ops->add(q, PLAIT_F32, x, x, other, n);
    }
    return ops->cast(q, p->type, dinp, PLAIT_F32, x, n);
}

int cpu_linear_backward_input(struct plait_queue *q, void *dinp,
                              const void *dout, struct plait_weight *w,
                              enum plait_activation act, const void *pre,
                              int accumulate, size_t N)
{
    struct cpu_product p = {.M = N,
                            .N = w->C,
                            .K = w->O,
                            .type = w->type,
                            .dst_type = w->type,
                            .accumulate = accumulate};
    int sloped = pre != NULL && act == PLAIT_ACT_GELU;

    /* Slope and sum in separate passes would round twice. */
    if (!cpu_product_native(w->type) || (sloped && accumulate)) {
        p.accumulate = 0;
        return wide_backward_input(q, &p, dinp, dout, w->data,
                                   sloped ? pre : NULL, accumulate);
    }
    if (cpu_product_run(q, &p, dout, w->data, NULL, dinp) < 0)
        return -1;
    if (!sloped)
        return 0;
    return plait_ops_cpu()->gelu_backward(q, w->type, dinp, dinp, pre,
                                          N * w->C);
}

int cpu_linear_backward_weight(struct plait_queue *q, enum plait_dtype type,
                               float *dw, float *dbias, const void *dout,
                               const void *inp, int accumulate, size_t N,
                               size_t O, size_t C)
{
    struct cpu_product p = {.M = O,
                            .N = C,
                            .K = N,
                            .transpose_a = 1,
                            .type = type,
                            .dst_type = PLAIT_F32,
                            .accumulate = accumulate};
    int rc = 0;

    if (N == 0 && accumulate)
        return 0;
    if (N == 0)
        memset(dw, 0, O * C * sizeof(*dw));
    else if (cpu_product_native(type))
        rc = cpu_product_run(q, &p, dout, inp, NULL, dw);
    else
        rc = wide_product(q, &p, dout, inp, NULL, &dw);
    if (rc < 0 || dbias == NULL)
        return rc;
    if (!accumulate)
        memset(dbias, 0, O * sizeof(*dbias));
    return plait_ops_cpu()->bias_backward(q, type, dbias, dout, N, O);
}

void cpu_fill_linear(struct plait_ops *ops)
{
    ops->linear_forward = cpu_linear_forward;
    ops->linear_backward_input = cpu_linear_backward_input;
    ops->linear_backward_weight = cpu_linear_backward_weight;
}

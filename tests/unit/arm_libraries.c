/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kernels/cpu/conv.h"
#include "kernels/cpu/products.h"
#include "kernels/ref/ref.h"

/* For cpu-arm.sh: ref's operations in place of kernels/cpu/linear.c, conv.c and
 * products.c, which would need oneDNN and OpenBLAS for the emulated processor.
 * Only Plait's own kernels are tested there. */

struct cpu_products *cpu_products_create(void)
{
    return malloc(1);
}

void cpu_products_destroy(struct cpu_products *products)
{
    free(products);
}

void cpu_convs_destroy(struct cpu_convs *convs)
{
    free(convs);
}

int cpu_conv_forward(struct plait_queue *q, const struct plait_conv *c,
                     const struct plait_conv_arrays *a)
{
    return ref_conv_forward(q, c, a);
}

int cpu_conv_backward_input(struct plait_queue *q, const struct plait_conv *c,
                            const struct plait_conv_arrays *a)
{
    return ref_conv_backward_input(q, c, a);
}

int cpu_conv_backward_weight(struct plait_queue *q, const struct plait_conv *c,
                             const struct plait_conv_arrays *a)
{
    return ref_conv_backward_weight(q, c, a);
}

int cpu_linear_forward(struct plait_queue *q, const struct plait_linear *l)
{
    return ref_linear_forward(q, l);
}

int cpu_linear_backward_input(struct plait_queue *q,
                              const struct plait_linear_dinp *l)
{
    return ref_linear_backward_input(q, l);
}

int cpu_linear_backward_weight(struct plait_queue *q,
                               const struct plait_linear_dw *l)
{
    return ref_linear_backward_weight(q, l);
}

void cpu_fill_linear(struct plait_ops *ops)
{
    ops->linear_forward = cpu_linear_forward;
    ops->linear_backward_input = cpu_linear_backward_input;
    ops->linear_backward_weight = cpu_linear_backward_weight;
}

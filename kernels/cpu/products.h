/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_PRODUCTS_H
#define PLAIT_KERNELS_CPU_PRODUCTS_H

#include "kernels/cpu/cpu.h"

/* dst[M,N] = (+=) op(a)[M,K] . op(b)[K,N] + bias[N], row-major and dense,
 * where op transposes a matrix that is stored as [K,M] or [N,K]. */
struct cpu_product {
    size_t M, N, K;
    int transpose_a, transpose_b;
    enum plait_dtype type, dst_type; /* of a, b and bias; of dst */
    int has_bias, accumulate;
};

/* Whether the library multiplies this type here; if not, the operands must
 * be converted to fp32. */
int cpu_product_native(enum plait_dtype type);
int cpu_product_run(struct plait_queue *q, const struct cpu_product *p,
                    const void *a, const void *b, const void *bias, void *dst);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_ROUTE_CUH
#define PLAIT_KERNELS_CUDA_ROUTE_CUH

#include "kernels/route.h"

/* What softmax and sigmoids share: one thread per token, a few numbers each. */

/* Whether expert e is among the first n of a token. */
static __device__ inline bool chosen(const int32_t *expert, int n, int e)
{
    for (int j = 0; j < n; j++)
        if (expert[j] == e)
            return true;
    return false;
}

#endif

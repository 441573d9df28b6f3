/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_POSITIONS_CUH
#define PLAIT_KERNELS_CUDA_POSITIONS_CUH

#include "kernels/kernels.h"

/* The position of row i within its document. */
static __device__ inline int64_t position_of(const struct plait_positions &at,
                                             size_t i)
{
    return at.pos0 + (int64_t)(i % at.T) -
           (at.starts != NULL ? at.starts[i] : 0);
}

#endif

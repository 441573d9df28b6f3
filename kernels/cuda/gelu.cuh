/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_GELU_CUH
#define PLAIT_KERNELS_CUDA_GELU_CUH

#include "kernels/cuda/common.cuh"

/* GELU in the tanh form (Hendrycks and Gimpel 2016), computed as x sigmoid(2u)
 * with u = sqrt(2/pi) (x + 0.044715 x^3): the same function, but accurate in
 * its tail. */
#define GELU_2K 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_A 0.044715f

static __device__ inline float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static __device__ inline float gelu(float x)
{
    return x * sigmoid(GELU_2K * (x + GELU_A * x * x * x));
}

static __device__ inline float gelu_slope(float x)
{
    float s = sigmoid(GELU_2K * (x + GELU_A * x * x * x));

    return s + x * s * (1 - s) * GELU_2K * (1 + 3 * GELU_A * x * x);
}

#endif

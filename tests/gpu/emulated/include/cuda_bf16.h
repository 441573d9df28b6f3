/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMULATED_CUDA_BF16_H
#define EMULATED_CUDA_BF16_H

#include "kernels/dtype.h"

struct __nv_bfloat16 {
    unsigned short bits;
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return plait_f32_of_bf16(x.bits);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16{plait_bf16_of_f32(x)};
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high)
{
    return __nv_bfloat162{__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return __nv_bfloat16{bits};
}

#endif

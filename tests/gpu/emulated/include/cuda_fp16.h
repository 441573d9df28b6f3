/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMULATED_CUDA_FP16_H
#define EMULATED_CUDA_FP16_H

#include "kernels/dtype.h"

struct __half {
    unsigned short bits;
};

struct alignas(4) __half2 {
    __half x, y;
};

static inline float __half2float(__half x)
{
    return plait_f32_of_fp16(x.bits);
}

static inline __half __float2half_rn(float x)
{
    return __half{plait_fp16_of_f32(x)};
}

static inline __half2 __floats2half2_rn(float low, float high)
{
    return __half2{__float2half_rn(low), __float2half_rn(high)};
}

static inline __half __ushort_as_half(unsigned short bits)
{
    return __half{bits};
}

static inline __half __hneg(__half x)
{
    return __half{(unsigned short)(x.bits ^ 0x8000)};
}

#endif

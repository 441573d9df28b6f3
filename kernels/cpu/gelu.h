/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_GELU_H
#define PLAIT_KERNELS_CPU_GELU_H

#include "kernels/cpu/vec.h"

#ifdef __AVX512F__
#include "kernels/cpu/bf16.h"

/* The sigmoid of GELU's tanh form and of its slope (see vec.h), with an error
 * of 1e-4: by the processor's approximate reciprocal. */
INLINE __m512 sigmoid_near(__m512 x)
{
    const float k = 2 * 0.7978845608028654f * 1.44269504f;
    __m512 u = x * (x * x * (-0.044715f * k) - k);

    u = _mm512_min_ps(_mm512_set1_ps(100), u);
    return _mm512_rcp14_ps(1.0f + exp2_near(u));
}

INLINE __m512 gelu_near(__m512 x)
{
    return x * sigmoid_near(x);
}

INLINE __m512 gelu_slope_near(__m512 x)
{
    const float k = 2 * 0.7978845608028654f;
    __m512 s = sigmoid_near(x);

    return s + x * s * (1.0f - s) * (x * x * (3 * 0.044715f * k) + k);
}
#endif

/* GELU of x as a number of the type: the same bits wherever it is computed. */
INLINE vec gelu_of(enum plait_dtype type, vec x)
{
#ifdef __AVX512F__
    if (type == PLAIT_BF16_T)
        return (vec)gelu_near((__m512)vec_rounded(type, x));
#endif
    return vec_gelu(vec_rounded(type, x));
}

INLINE vec gelu_slope_of(enum plait_dtype type, vec x)
{
#ifdef __AVX512F__
    if (type == PLAIT_BF16_T)
        return (vec)gelu_slope_near((__m512)x);
#endif
    (void)type;
    return vec_gelu_slope(x);
}

#endif

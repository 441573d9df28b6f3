/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_DYNAMIC_MAP_H
#define PLAIT_KERNELS_DYNAMIC_MAP_H

#include <stddef.h>
#include <stdint.h>

/* 8-bit codes of numbers: the dynamic map of Dettmers et al., "8-bit optimizers
 * via block-wise quantization" (arXiv:2110.02861). A block of 256 numbers
 * shares a scale; a number divided by the scale is stored as the nearest of 256
 * values from -1 to 1 (signed), or from 0 to 1 (unsigned, where none is
 * negative). The values lie in seven decades, from 1e-7 .. 1e-6 up to 0.1 .. 1.
 * Each decade is cut into twice as many equal bins as the one below (signed: 1
 * to 64, unsigned: 2 to 128); a value is the middle of its bin. 0 and 1 are
 * values too.
 *
 * Two things differ from the authors' code. The scale has the sign of the
 * number of largest magnitude, which is therefore stored exactly, as 1. And an
 * unsigned code of a positive number is never 0: a second moment of 0 would
 * leave only eps to divide by.
 *
 * The error of a number in a decade of b bins that ends at u (times the scale)
 * is at most 0.45 u / b, or 1.35 u / b between the last value of the decade and
 * the first of the next. */
enum {
    PLAIT_MAP_BLOCK = 256,
    PLAIT_MAP_DECADES = 7,
    /* The code of 1 in the signed map. In other signed codes this bit is the
     * sign. */
    PLAIT_MAP_ONE = 0x80
};

#ifdef __CUDACC__
#define PLAIT_MAP_INLINE static __host__ __device__ inline
#else
#define PLAIT_MAP_INLINE static inline
#endif

/* Number of bins in the lowest decade. */
PLAIT_MAP_INLINE float plait_map_bins(int sign)
{
    return sign ? 1.0f : 2.0f;
}

/* The factor of a block's numbers before they are encoded: 1 / scale, or 0
 * where that would overflow. */
PLAIT_MAP_INLINE float plait_map_inverse(float scale)
{
    return scale > 1e-37f || scale < -1e-37f ? 1 / scale : 0;
}

/* The code of x / scale; inverse: plait_map_inverse(scale). */
PLAIT_MAP_INLINE uint8_t plait_map_encode(float x, float inverse, int sign)
{
    float a = x * inverse, unit = 1e-6f, bins = plait_map_bins(sign), most;
    int negative = a < 0, k;

    a = negative ? -a : a;
    /* The limit is half way from the last value of a decade to the first of the
     * next. */
    for (int i = 1; i < PLAIT_MAP_DECADES; i++) {
        if (!(a >= unit * (1 + 0.9f / bins)))
            break;
        unit *= 10;
        bins *= 2;
    }
    most = bins - 1;
    k = (int)((a / unit - 0.1f) * (bins / 0.9f));
    k = k < 0 ? 0 : k > (int)most ? (int)most : k;
    if (!negative && a >= 1 - 0.225f / bins && unit > 0.5f)
        return sign ? PLAIT_MAP_ONE : 255;
    if (!sign)
        return (uint8_t)(a > 0 ? (int)bins + k - 1 : 0);
    if (a < 0.275e-6f)
        return 0;
    return (uint8_t)((int)bins + k + (negative ? 128 : 0));
}

/* The value of a code, divided by the block's scale. */
PLAIT_MAP_INLINE float plait_map_decode(uint8_t code, int sign)
{
    float bins = plait_map_bins(sign), unit = 1e-6f, value;
    int q = sign ? code & 127 : code + 1; /* bins + k */

    if (code == (sign ? PLAIT_MAP_ONE : 255))
        return 1;
    if (code == 0)
        return 0;
    while ((float)q >= 2 * bins) {
        unit *= 10;
        bins *= 2;
    }
    value = (0.1f + 0.9f * ((float)q - bins + 0.5f) / bins) * unit;
    return sign && code & 128 ? -value : value;
}

/* The scale of a block whose numbers lie from low to high. */
PLAIT_MAP_INLINE float plait_map_scale(float low, float high)
{
    return high >= -low ? high : low;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_DTYPE_H
#define PLAIT_KERNELS_DTYPE_H

#include <stdint.h>
#include <string.h>

/* Conversions between fp32 and the 16-bit types, one value at a time. */

static inline uint32_t plait_bits_of_f32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float plait_f32_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float plait_f32_of_bf16(uint16_t h)
{
    return plait_f32_of_bits((uint32_t)h << 16);
}

/* Nearest, ties to even; a NaN stays a (quiet) NaN. */
static inline uint16_t plait_bf16_of_f32(float x)
{
    uint32_t u = plait_bits_of_f32(x);

    if (x != x)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Up with the probability of the bits that are lost; 16 bits of `random`. */
static inline uint16_t plait_bf16_of_f32_random(float x, uint32_t random)
{
    uint32_t u = plait_bits_of_f32(x);

    if (x != x || x - x != 0)
        return plait_bf16_of_f32(x);
    return (uint16_t)((u + (random & 0xffff)) >> 16);
}

static inline float plait_f32_of_fp16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;
    float tiny;

    if (exponent == 31)
        return plait_f32_of_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent != 0)
        return plait_f32_of_bits(sign | (exponent + 112) << 23 |
                                 mantissa << 13);
    tiny = (float)mantissa * 0x1p-24f;
    return sign ? -tiny : tiny;
}

/* Cuts |x|, already rounded to what fp16 can hold, into its 16 bits. */
static inline uint16_t plait_fp16_exact(float x, uint16_t sign)
{
    uint32_t u = plait_bits_of_f32(x);

    if (x >= 65536.0f)
        return sign | 0x7c00;
    if (x < 0x1p-14f)
        return sign | (uint16_t)(x * 0x1p24f);
    return sign | (uint16_t)((u >> 13) - (112 << 10));
}

/* Nearest, ties to even; overflow is infinity; a NaN stays a NaN. */
static inline uint16_t plait_fp16_of_f32(float x)
{
    uint32_t u = plait_bits_of_f32(x);
    uint16_t sign = u >> 16 & 0x8000;
    float magnitude = plait_f32_of_bits(u & 0x7fffffff);

    if (x != x)
        return sign | 0x7e00;
    /* Adding half a unit of 2^-1 leaves multiples of 2^-24: subnormals. */
    if (magnitude < 0x1p-14f)
        return plait_fp16_exact((magnitude + 0.5f) - 0.5f, sign);
    u = (u & 0x7fffffff) + 0xfff + (u >> 13 & 1);
    return plait_fp16_exact(plait_f32_of_bits(u & ~UINT32_C(0x1fff)), sign);
}

static inline uint16_t plait_fp16_of_f32_random(float x, uint32_t random)
{
    uint32_t u = plait_bits_of_f32(x);
    uint16_t sign = u >> 16 & 0x8000;
    float magnitude = plait_f32_of_bits(u & 0x7fffffff);

    if (x != x || x - x != 0)
        return plait_fp16_of_f32(x);
    if (magnitude < 0x1p-14f)
        return sign | (uint16_t)(magnitude * 0x1p24f +
                                 (float)(random & 0xffff) * 0x1p-16f);
    u = (u & 0x7fffffff) + (random & 0x1fff);
    return plait_fp16_exact(plait_f32_of_bits(u & ~UINT32_C(0x1fff)), sign);
}

/* The random bits of element `i` of a stochastically rounded store: the
 * finaliser of splitmix64 (Steele, Lea, Flood 2014) over seed + i. */
static inline uint32_t plait_rounding_bits(uint64_t seed, uint64_t i)
{
    uint64_t z = (seed + i) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) >> 32);
}

#endif

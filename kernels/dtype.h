/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_DTYPE_H
#define PLAIT_KERNELS_DTYPE_H

#include <stdint.h>
#include <string.h>

/* Conversions between fp32 and the narrower types, one value at a time. */

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

/* Stochastic rounding: away from zero with the probability that the dropped
 * bits stand for. Only the low 16 bits of `random` are used. */
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

/* The 16 bits of |x|, which was already rounded to a value of fp16; from 65536
 * on it is infinity. */
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
    /* Subnormals are multiples of 2^-24, the spacing of fp32 at 0.5: adding 0.5
     * rounds to it. */
    if (magnitude < 0x1p-14f)
        return plait_fp16_exact((magnitude + 0.5f) - 0.5f, sign);
    u = (u & 0x7fffffff) + 0xfff + (u >> 13 & 1);
    return plait_fp16_exact(plait_f32_of_bits(u & ~UINT32_C(0x1fff)), sign);
}

/* Random bits by number: the finaliser of splitmix64 (Steele, Lea, Flood 2014)
 * over seed + i. */
static inline uint32_t plait_rounding_bits(uint64_t seed, uint64_t i)
{
    uint64_t z = (seed + i) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) >> 32);
}

/* -- fp8 --------------------------------------------------------------- */

/* The two 8-bit formats of Micikevicius et al., "FP8 formats for deep learning"
 * (2022, arXiv:2209.05433); the value is the number of mantissa bits. e4m3 has
 * exponent bias 7, no infinity and one NaN; e5m2, bias 15, follows IEEE 754. */
enum plait_fp8 { PLAIT_E5M2 = 2, PLAIT_E4M3 = 3 };

/* Code of the largest number: 448 for e4m3, 57344 for e5m2, both 1.75 2^k. */
static inline uint32_t plait_fp8_top(enum plait_fp8 format)
{
    return format == PLAIT_E4M3 ? 0x7e : 0x7b;
}

static inline int plait_fp8_bias(enum plait_fp8 format)
{
    return format == PLAIT_E4M3 ? 7 : 15;
}

/* Nearest, ties to even. What is too large becomes the largest number, as in
 * the hardware's conversion; a NaN stays a NaN. */
static inline uint8_t plait_fp8_of_f32(float x, enum plait_fp8 format)
{
    int m = format, bias = plait_fp8_bias(format);
    uint32_t u = plait_bits_of_f32(x), top = plait_fp8_top(format);
    uint32_t sign = u >> 24 & 0x80, code;

    u &= 0x7fffffff;
    if (u > 0x7f800000)
        return (uint8_t)(sign | 0x7f);
    if (u < (uint32_t)(128 - bias) << 23) {
        /* Subnormal: adding 2^23 rounds to whole units, in the low bits. */
        float unit = plait_f32_of_bits((uint32_t)(126 + bias + m) << 23);

        code = plait_bits_of_f32(plait_f32_of_bits(u) * unit + 0x1p23f) & 0xff;
    } else {
        u += ((UINT32_C(1) << (22 - m)) - 1) + (u >> (23 - m) & 1);
        code = (u >> (23 - m)) - ((uint32_t)(127 - bias) << m);
    }
    return (uint8_t)(sign | (code < top ? code : top));
}

static inline float plait_f32_of_fp8(uint8_t code, enum plait_fp8 format)
{
    int m = format, bias = plait_fp8_bias(format);
    uint32_t sign = (uint32_t)(code & 0x80) << 24, u = code & 0x7f;
    float tiny;

    if (u > plait_fp8_top(format)) /* e5m2's 0x7c is infinity */
        return plait_f32_of_bits(
            sign | (u == 0x7c && m == 2 ? 0x7f800000 : 0x7fc00000));
    if (u >> m != 0)
        return plait_f32_of_bits(
            sign | ((u << (23 - m)) + ((uint32_t)(127 - bias) << 23)));
    tiny = (float)u * plait_f32_of_bits((uint32_t)(128 - bias - m) << 23);
    return sign ? -tiny : tiny;
}

/* The factor that a tensor is multiplied by before it is rounded to fp8: the
 * power of two that brings its largest magnitude, `amax` as the bits of an
 * fp32, just below the format's largest number. A power of two changes no
 * mantissa, so that a part of a tensor rounds the same whatever it shares the
 * scale with. A tensor that holds an infinity or a NaN gets the factor NaN, so
 * that all of it becomes NaN: none of it is to be trusted. */
static inline float plait_fp8_scale(uint32_t amax, enum plait_fp8 format)
{
    int e = (int)(amax >> 23) - 127;
    int k = (int)(plait_fp8_top(format) >> format) - plait_fp8_bias(format);

    if (amax >= 0x7f800000)
        return plait_f32_of_bits(0x7fc00000);
    if (amax == 0)
        return 1;
    k -= e + ((amax & 0x7fffff) > 0x600000);
    return plait_f32_of_bits((uint32_t)((k > 126 ? 126 : k) + 127) << 23);
}

#endif

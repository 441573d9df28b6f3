/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_COMM_HALF_H
#define PLAIT_COMM_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* bf16 and fp16 as MPI sees them, 16-bit words; rounding is to nearest even.
 * Written out because compilers that are still in use lack _Float16. */

static inline float half_bits_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint32_t half_float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float bf16_to_float(uint16_t h)
{
    return half_bits_float((uint32_t)h << 16);
}

static inline uint16_t bf16_from_float(float x)
{
    uint32_t bits = half_float_bits(x);

    if (x != x)
        return 0x7fc0;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static inline float fp16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t rest = h & 0x7fff;

    if (rest >= 0x7c00) /* infinity, NaN */
        return half_bits_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) /* bias 15 becomes 127 */
        return half_bits_float(sign | ((rest << 13) + (112u << 23)));
    return sign ? -ldexpf(rest, -24) : ldexpf(rest, -24);
}

static inline uint16_t fp16_from_float(float x)
{
    uint32_t bits = half_float_bits(x);
    uint16_t sign = bits >> 16 & 0x8000;
    uint32_t rest = bits & 0x7fffffff;

    if (rest > 0x7f800000)
        return sign | 0x7e00;
    if (rest >= 0x477ff000) /* rounds to 65536 or more */
        return sign | 0x7c00;
    if (rest < 0x38800000) /* subnormal: whole multiples of 2^-24 */
        return sign | (uint16_t)lrintf(ldexpf(fabsf(x), 24));
    rest = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    return sign | rest;
}

#endif

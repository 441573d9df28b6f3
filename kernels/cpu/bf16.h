/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_BF16_H
#define PLAIT_KERNELS_CPU_BF16_H

#include <immintrin.h>

#include "kernels/cpu/vec.h"

/* vdpbf16ps multiplies and adds pairs of bf16 values, so that operands are
 * packed in words: the values (k, k + 1) of one row or column. */
typedef uint32_t word __attribute__((may_alias, aligned(2)));

/* Transposes 16 rows of 16 words: first 4 x 4 within each 128-bit lane, then
 * the lanes. */
INLINE void transpose_words(__m512i r[16])
{
    __m512i t[16];

    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
        t[8 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
        t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88);
        r[4 + i] = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88);
        r[8 + i] = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd);
        r[12 + i] = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
    }
}

INLINE __m512i half_words(const uint16_t *x, size_t n)
{
    __m256i h = _mm256_maskz_loadu_epi16(vec_first(n), x);

    return _mm512_cvtepu16_epi32(h);
}

/* 2^x with an error of 3e-6, much less than bf16's: 2^k 2^r with |r| <= 1/2 and
 * the Taylor series to (r ln 2)^5 / 5!. Very negative x, also -inf, give 0. */
INLINE __m512 exp2_near(__m512 x)
{
    __m512 k, r, y;

    x = _mm512_max_ps(_mm512_set1_ps(-200), x); /* NaN stays */
    k = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT);
    r = x - k;
    y = r * 1.33335581e-3f + 9.61812911e-3f;
    y = y * r + 5.55041087e-2f;
    y = y * r + 2.40226507e-1f;
    y = y * r + 6.93147181e-1f;
    y = y * r + 1.0f;
    return _mm512_scalef_ps(y, k);
}

#endif

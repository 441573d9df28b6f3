/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_VEC_H
#define PLAIT_KERNELS_CPU_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__F16C__) || defined(__SSE__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels/dtype.h"
#include "kernels/kernels.h"

/* fp32 vectors of the width of the instruction set that this file is compiled
 * for, with loads and stores that convert from and to the three types. `type`
 * is a constant in all callers, so that no switch is left at run time. */

#if defined(__AVX512F__)
#define VLEN 16
#elif defined(__AVX2__)
#define VLEN 8
#elif defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS == 256
#define VLEN 8
#else
#define VLEN 4
#endif

/* 1: use NEON intrinsics, for vectors of their width */
#if defined(__aarch64__) && VLEN == 4
#define NEON 1
#else
#define NEON 0
#endif

#define INLINE static inline __attribute__((always_inline))

INLINE size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

typedef float vec __attribute__((vector_size(4 * VLEN)));
typedef uint32_t uvec __attribute__((vector_size(4 * VLEN)));
typedef int32_t ivec __attribute__((vector_size(4 * VLEN)));
typedef uint16_t hvec __attribute__((vector_size(2 * VLEN)));

INLINE vec vec_set(float x)
{
    return x - (vec){0};
}

INLINE vec vec_select(ivec mask, vec yes, vec no)
{
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

/* x * y + z; rounded once if the processor has a fused multiply-add. */
INLINE vec vec_fma(vec x, vec y, vec z)
{
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(__FMA__) && defined(__AVX2__)
    return (vec)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#elif NEON
    return (vec)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
#else
    return x * y + z;
#endif
}

/* Stores past the caches if the processor can; p is aligned to a vector. Call
 * vec_streamed() before other threads read it. */
INLINE void vec_stream(float *p, vec x)
{
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)x);
#elif defined(__AVX2__)
    _mm256_stream_ps(p, (__m256)x);
#elif defined(__SSE__)
    _mm_stream_ps(p, (__m128)x);
#else
    memcpy(p, &x, sizeof(x));
#endif
}

INLINE void vec_streamed(void)
{
#if defined(__SSE__)
    _mm_sfence();
#endif
}

/* A NaN in x is kept; a NaN in y gives x. */
INLINE vec vec_max(vec x, vec y)
{
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)y, (__m512)x);
#else
    return vec_select(x < y, y, x);
#endif
}

/* No lane may be NaN. */
INLINE float vec_largest(vec x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#elif NEON
    return vmaxvq_f32((float32x4_t)x);
#else
    float largest = x[0];

    for (int i = 1; i < VLEN; i++)
        largest = largest < x[i] ? x[i] : largest;
    return largest;
#endif
}

INLINE float vec_sum(vec x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float lanes[VLEN];

    memcpy(lanes, &x, sizeof(x));
    for (int w = VLEN / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            lanes[i] += lanes[i + w];
    return lanes[0];
#endif
}

/* Sums pairs of lanes that are w apart: in each 2 w lanes the result has first
 * the w sums of x, then the w sums of y. */
#if defined(__clang__) || !defined(__GNUC__)
INLINE vec vec_fold(vec x, vec y, int w)
{
    vec z = {0};

    for (int i = 0; i < VLEN; i++) {
        int from = i / (2 * w) * 2 * w + i % w;

        z[i] = i / w % 2 ? y[from] + y[from + w] : x[from] + x[from + w];
    }
    return z;
}
#else
#define FOLD(...)                                   \
    (__builtin_shuffle(x, y, (ivec){__VA_ARGS__}) + \
     __builtin_shuffle(x, y, (ivec){__VA_ARGS__} + w))
INLINE vec vec_fold(vec x, vec y, int w)
{
#if VLEN == 16
    return w == 8 ? FOLD(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
           : w == 4
               ? FOLD(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
           : w == 2
               ? FOLD(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
               : FOLD(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14,
                      30);
#elif VLEN == 8
    return w == 4   ? FOLD(0, 1, 2, 3, 8, 9, 10, 11)
           : w == 2 ? FOLD(0, 1, 8, 9, 4, 5, 12, 13)
                    : FOLD(0, 8, 2, 10, 4, 12, 6, 14);
#else
    return w == 2 ? FOLD(0, 1, 4, 5) : FOLD(0, 4, 2, 6);
#endif
}
#undef FOLD
#endif

/* Lane i = the sum of the lanes of x[i]. Destroys x. */
INLINE vec vec_sums(vec x[VLEN])
{
#pragma GCC unroll 4
    for (int w = VLEN / 2; w > 0; w /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < w; i++)
            x[i] = vec_fold(x[i], x[i + w], w);
    return x[0];
}

INLINE float vec_sqrt1(float x)
{
    return __builtin_sqrtf(x);
}

INLINE vec vec_sqrt(vec x)
{
#if NEON
    x = (vec)vsqrtq_f32((float32x4_t)x);
#else
    for (int i = 0; i < VLEN; i++)
        x[i] = __builtin_sqrtf(x[i]);
#endif
    return x;
}

INLINE vec vec_of_bf16(hvec h)
{
#if defined(__AVX512F__) /* compilers would split it into halves */
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif defined(__AVX2__)
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#else
    return (vec)(__builtin_convertvector(h, uvec) << 16);
#endif
}

/* The low halves of the lanes, which are all that is not 0. */
INLINE hvec vec_narrow(uvec u)
{
#if defined(__AVX512F__) /* compilers would take more instructions */
    return (hvec)_mm512_cvtepi32_epi16((__m512i)u);
#elif defined(__AVX2__)
    __m256i two = _mm256_packus_epi32((__m256i)u, (__m256i)u);

    return (hvec)_mm256_castsi256_si128(_mm256_permute4x64_epi64(two, 0x08));
#else
    return __builtin_convertvector(u, hvec);
#endif
}

/* To nearest, ties to even. fp32 subnormals may become 0, as in the processor's
 * own conversion. */
INLINE hvec vec_to_bf16(vec x)
{
#if defined(__AVX512BF16__)
    return (hvec)_mm512_cvtneps_pbh((__m512)x);
#else
    uvec u = (uvec)x, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    uvec nan = (uvec)(x != x);

    u = (nan & (u >> 16 | 0x40)) | (~nan & rounded);
    return vec_narrow(u);
#endif
}

INLINE vec vec_of_fp16(hvec h)
{
#if defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps((__m256i)h);
#elif defined(__F16C__)
    return (vec)_mm256_cvtph_ps((__m128i)h);
#elif NEON
    return (vec)vcvt_f32_f16((float16x4_t)h);
#elif defined(__aarch64__)
    float16x8_t all = (float16x8_t)h;
    float32x4_t half[2] = {vcvt_f32_f16(vget_low_f16(all)),
                           vcvt_high_f32_f16(all)};
    vec x;

    memcpy(&x, half, sizeof(x));
    return x;
#else
    vec x = {0};

    for (int i = 0; i < VLEN; i++)
        x[i] = plait_f32_of_fp16(h[i]);
    return x;
#endif
}

INLINE hvec vec_to_fp16(vec x)
{
#if defined(__AVX512F__)
    return (hvec)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    return (hvec)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#elif NEON
    return (hvec)vcvt_f16_f32((float32x4_t)x);
#elif defined(__aarch64__)
    float32x4_t half[2];

    memcpy(half, &x, sizeof(half));
    return (hvec)vcvt_high_f16_f32(vcvt_f16_f32(half[0]), half[1]);
#else
    hvec h = {0};

    for (int i = 0; i < VLEN; i++)
        h[i] = plait_fp16_of_f32(x[i]);
    return h;
#endif
}

#if defined(__AVX512F__)
/* Lanes 0 .. n - 1; all lanes if n is larger. */
INLINE __mmask16 vec_first(size_t n)
{
    return n >= VLEN ? 0xffff : (__mmask16)((1u << n) - 1);
}
#endif

/* The first n < VLEN elements of a vector in memory. Uses masks if available:
 * with memcpy() even whole vectors would go through the stack. */

INLINE void vec_load_part(vec *x, const float *p, size_t n)
{
#if defined(__AVX512F__)
    *x = (vec)_mm512_maskz_loadu_ps(vec_first(n), p);
#else
    memcpy(x, p, n * sizeof(*p));
#endif
}

INLINE void hvec_load_part(hvec *h, const uint16_t *p, size_t n)
{
#if defined(__AVX512F__)
    *h = (hvec)_mm256_maskz_loadu_epi16(vec_first(n), p);
#else
    memcpy(h, p, n * sizeof(*p));
#endif
}

INLINE void vec_store_part(float *p, const vec *x, size_t n)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, vec_first(n), (__m512)*x);
#else
    memcpy(p, x, n * sizeof(*p));
#endif
}

INLINE void hvec_store_part(uint16_t *p, const hvec *h, size_t n)
{
#if defined(__AVX512F__)
    _mm256_mask_storeu_epi16(p, vec_first(n), (__m256i)*h);
#else
    memcpy(p, h, n * sizeof(*p));
#endif
}

/* n elements from p[i] on, the other lanes 0. n = VLEN is copied with a
 * constant size: one instruction. */
INLINE vec vec_load(enum plait_dtype type, const void *p, size_t i, size_t n)
{
    vec x = {0};
    hvec h = {0};

    if (type == PLAIT_F32) {
        if (n == VLEN)
            memcpy(&x, (const float *)p + i, sizeof(x));
        else
            vec_load_part(&x, (const float *)p + i, n);
        return x;
    }
    if (n == VLEN)
        memcpy(&h, (const uint16_t *)p + i, sizeof(h));
    else
        hvec_load_part(&h, (const uint16_t *)p + i, n);
    return type == PLAIT_BF16_T ? vec_of_bf16(h) : vec_of_fp16(h);
}

INLINE void hvec_store(uint16_t *p, size_t n, hvec h)
{
    if (n == VLEN)
        memcpy(p, &h, sizeof(h));
    else
        hvec_store_part(p, &h, n);
}

INLINE void vec_store(enum plait_dtype type, void *p, size_t i, size_t n, vec x)
{

    if (type == PLAIT_F32) {
        if (n == VLEN)
            memcpy((float *)p + i, &x, sizeof(x));
        else
            vec_store_part((float *)p + i, &x, n);
        return;
    }
    hvec_store((uint16_t *)p + i, n,
               type == PLAIT_BF16_T ? vec_to_bf16(x) : vec_to_fp16(x));
}

/* x as it reads back after a store. */
INLINE vec vec_rounded(enum plait_dtype type, vec x)
{
    if (type == PLAIT_BF16_T)
        return vec_of_bf16(vec_to_bf16(x));
    if (type == PLAIT_FP16_T)
        return vec_of_fp16(vec_to_fp16(x));
    return x;
}

/* e^r for |r| <= ln 2 / 2: the Taylor series to r^7 / 7!. */
INLINE vec vec_exp_near_0(vec r)
{
    vec y = r * (1 / 5040.0f) + 1 / 720.0f;

    y = y * r + 1 / 120.0f;
    y = y * r + 1 / 24.0f;
    y = y * r + 1 / 6.0f;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    return y * r + 1.0f;
}

/* e^x to about 1 ulp: 2^k e^r. 0 below -87.3 (where fp32 has no normal result);
 * above 88.3 e^88.3. */
INLINE vec vec_exp(vec x)
{
    const float log2_e = 0x1.715476p0f;
    const float ln2 = 0x1.62e4p-1f, ln2_rest = 0x1.7f7d1cp-20f;
#if defined(__AVX512F__)
    __mmask16 some =
        _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ);
    vec k;

    x = (vec)_mm512_min_ps(_mm512_set1_ps(88.3f), (__m512)x); /* NaN stays */
    k = (vec)_mm512_roundscale_ps((__m512)(x * log2_e),
                                  _MM_FROUND_TO_NEAREST_INT);
    x = x - k * ln2 - k * ln2_rest;
    return (vec)_mm512_maskz_scalef_ps(some, (__m512)vec_exp_near_0(x),
                                       (__m512)k);
#else
    const vec shift = vec_set(0x1.8p23f);
    ivec zero = x < vec_set(-87.3f);
    vec k, y;

    x = vec_select(x > vec_set(88.3f), vec_set(88.3f), x);
    x = vec_select(zero, vec_set(-87.3f), x);
    k = x * log2_e + shift; /* rounds to a whole number, in the low bits */
    y = k - shift;
    x = x - y * ln2 - y * ln2_rest;
    y = vec_exp_near_0(x) * (vec)(((ivec)k + 127) << 23);
    return vec_select(zero, (vec){0}, y);
#endif
}

INLINE vec vec_sigmoid(vec x)
{
    return 1.0f / (1.0f + vec_exp(-x));
}

/* To about 2 ulp: the Taylor series to x^11 where 1 - 2 / (e^2x + 1) would
 * lose digits. */
INLINE vec vec_tanh(vec x)
{
    ivec negative = x < vec_set(0);
    vec size = vec_select(negative, -x, x), z = x * x;
    vec near_0 = z * (-1382 / 155925.0f) + 62 / 2835.0f;
    vec far = 1.0f - 2.0f / (vec_exp(size + size) + 1.0f);

    near_0 = near_0 * z - 17 / 315.0f;
    near_0 = near_0 * z + 2 / 15.0f;
    near_0 = near_0 * z - 1 / 3.0f;
    near_0 = x + x * z * near_0;
    return vec_select(size < vec_set(0.4f), near_0,
                      vec_select(negative, -far, far));
}

/* The tanh form: 0.5 x (1 + tanh u) = x sigmoid(2u). */
INLINE vec vec_gelu(vec x)
{
    const float k = 2 * 0.7978845608028654f; /* 2 sqrt(2/pi) */

    return x * vec_sigmoid(k * x * (1.0f + 0.044715f * x * x));
}

INLINE vec vec_gelu_slope(vec x)
{
    const float k = 2 * 0.7978845608028654f;
    vec s = vec_sigmoid(k * x * (1.0f + 0.044715f * x * x));

    return s + x * s * (1.0f - s) * k * (1.0f + 3 * 0.044715f * x * x);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/update.h"
#include "kernels/dynamic_map.h"

/* AdamW with states of 8 bits: a block's states are decoded, stepped and
 * encoded again while they are in the nearest cache. */

enum { BLOCK = PLAIT_MAP_BLOCK };

/* What the codes stand for. */
struct maps {
    float value[2][256]; /* with a sign, without */
};

static void fill_maps(struct maps *maps)
{
    for (int i = 0; i < 256; i++) {
        maps->value[0][i] = plait_map_decode((uint8_t)i, 1);
        maps->value[1][i] = plait_map_decode((uint8_t)i, 0);
    }
}

/* What VLEN codes stand for. */
#if defined(__AVX512F__)
/* By arithmetic, which takes a fraction of a gather's time. The code and 1/2,
 * of those without a sign and 3/2, is 2^j (1 + x): j is the decade, x the
 * place in it. */
INLINE vec decode_vec(const uint8_t *code, int sign, const float *value)
{
    const __m512 unit =
        sign ? _mm512_setr_ps(1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1, 0, 0,
                              0, 0, 0, 0, 0, 0, 0)
             : _mm512_setr_ps(0, 1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1, 0,
                              0, 0, 0, 0, 0, 0, 0);
    __m512i c = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)code));
    __m512i low = sign ? _mm512_and_si512(c, _mm512_set1_epi32(127)) : c;
    __m512 q = _mm512_add_ps(_mm512_cvtepi32_ps(low),
                             _mm512_set1_ps(sign ? 0.5f : 1.5f));
    __m512i bits = _mm512_castps_si512(q);
    __m512i j = _mm512_sub_epi32(_mm512_srli_epi32(bits, 23),
                                 _mm512_set1_epi32(127)); /* -1: code 0 */
    __m512 x = _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffff)),
                        _mm512_set1_epi32(0x3f800000)));
    __m512 y;

    (void)value;
    x = _mm512_sub_ps(x, _mm512_set1_ps(1));
    y = _mm512_mul_ps(
        _mm512_fmadd_ps(x, _mm512_set1_ps(0.9f), _mm512_set1_ps(0.1f)),
        _mm512_permutexvar_ps(j, unit));
    if (sign)
        y = _mm512_castsi512_ps(_mm512_or_si512(
            _mm512_castps_si512(y),
            _mm512_slli_epi32(_mm512_and_si512(c, _mm512_set1_epi32(128)),
                              24)));
    return (vec)_mm512_mask_mov_ps(
        y,
        _mm512_cmpeq_epi32_mask(c,
                                _mm512_set1_epi32(sign ? PLAIT_MAP_ONE : 255)),
        _mm512_set1_ps(1));
}
#else
INLINE vec decode_vec(const uint8_t *code, int sign, const float *value)
{
    (void)sign;
#if defined(__AVX2__)
    return (vec)_mm256_i32gather_ps(
        value, _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)code)), 4);
#else
    vec x;

    for (int k = 0; k < VLEN; k++)
        x[k] = value[code[k]];
    return x;
#endif
}
#endif

/* Codes of which only the first n are there. */
INLINE void decode(float *x, const uint8_t *code, size_t n, int sign,
                   const float *value, float scale)
{
    uint8_t whole[BLOCK] = {0};

    if (n < BLOCK)
        code = memcpy(whole, code, n);
    for (size_t i = 0; i < BLOCK; i += VLEN)
        vec_store(PLAIT_F32, x, i, VLEN,
                  decode_vec(code + i, sign, value) * scale);
}

static float scale_of(const float *x)
{
    vec high = {0}, low = {0}; /* low: of -x */

    for (size_t i = 0; i < BLOCK; i += VLEN) {
        vec v = vec_load(PLAIT_F32, x, i, VLEN);

        high = vec_max(v, high);
        low = vec_max(-v, low);
    }
    return plait_map_scale(-vec_largest(low), vec_largest(high));
}

typedef uint8_t bvec __attribute__((vector_size(VLEN)));

/* The decade of each b: what brings it to 0.1 .. 1, and its bins. */
#if defined(__AVX512F__)
/* From one power of two to the next there is one bound of decades at most:
 * the exponent, from 2^-20 to 2^-5, gives the decade that begins it. */
INLINE void find_decades(vec b, int sign, vec *unit, vec *bins)
{
    const __m512i begin =
        sign
            ? _mm512_setr_epi32(0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5)
            : _mm512_setr_epi32(0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5);
    const float w = plait_map_bins(sign);
    const __m512 bound =
        _mm512_setr_ps(1e-6f * (1 + 0.9f / w), 1e-5f * (1 + 0.45f / w),
                       1e-4f * (1 + 0.225f / w), 1e-3f * (1 + 0.1125f / w),
                       1e-2f * (1 + 0.05625f / w), 1e-1f * (1 + 0.028125f / w),
                       2, 2, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512 units = _mm512_setr_ps(1e6f, 1e5f, 1e4f, 1e3f, 1e2f, 1e1f, 1,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1);
    __m512i e = _mm512_sub_epi32(_mm512_srli_epi32((__m512i)b, 23),
                                 _mm512_set1_epi32(127 - 20));
    __m512i j;

    e = _mm512_min_epi32(_mm512_max_epi32(e, _mm512_setzero_si512()),
                         _mm512_set1_epi32(15));
    j = _mm512_permutexvar_epi32(e, begin);
    j = _mm512_mask_add_epi32(
        j,
        _mm512_cmp_ps_mask((__m512)b, _mm512_permutexvar_ps(j, bound),
                           _CMP_GE_OQ),
        j, _mm512_set1_epi32(1));
    *unit = (vec)_mm512_permutexvar_ps(j, units);
    *bins = (vec)_mm512_castsi512_ps(_mm512_add_epi32(
        _mm512_castps_si512(_mm512_set1_ps(w)), _mm512_slli_epi32(j, 23)));
}
#else
INLINE void find_decades(vec b, int sign, vec *unit, vec *bins)
{
    float below = 1e-6f, width = plait_map_bins(sign);

    *unit = vec_set(1e6f);
    *bins = vec_set(width);
#pragma GCC unroll 8
    for (int i = 1; i < PLAIT_MAP_DECADES; i++) {
        ivec up = b >= below * (1 + 0.9f / width);

        width *= 2;
        below *= 10;
        *unit = vec_select(up, *unit * 0.1f, *unit);
        *bins = vec_select(up, vec_set(width), *bins);
    }
}
#endif

/* plait_map_encode() without branches. */
INLINE void encode_vec(uint8_t *code, vec a, int sign)
{
    vec b = vec_select(a < 0, -a, a), t, unit, bins;
    float least = sign ? 0.275e-6f : 0;
    ivec q, one;
    bvec out;

    find_decades(b, sign, &unit, &bins);
    t = (b * unit - 0.1f) * (bins * (1 / 0.9f));
    t = vec_select(t > 0, t, vec_set(0));
    t = vec_select(t < bins - 1, t, bins - 1);
    q = __builtin_convertvector(t, ivec) + __builtin_convertvector(bins, ivec);
    q = (q - !sign) & (b > least);
    q += (a < 0) & (q > 0) & 128;
    one = a >= 1 - 0.225f / (sign ? 64 : 128);
    q = (one & (sign ? PLAIT_MAP_ONE : 255)) | (~one & q);
    out = __builtin_convertvector(q, bvec);
    memcpy(code, &out, sizeof(out));
}

/* x [BLOCK], of which n count. */
INLINE void encode(uint8_t *code, const float *x, size_t n, float inverse,
                   int sign)
{
    uint8_t whole[BLOCK];

    for (size_t i = 0; i < BLOCK; i += VLEN)
        encode_vec(whole + i, vec_load(PLAIT_F32, x, i, VLEN) * inverse, sign);
    memcpy(code, whole, n);
}

static void encode_signed(uint8_t *code, const float *x, size_t n,
                          float inverse)
{
    encode(code, x, n, inverse, 1);
}

static void encode_positive(uint8_t *code, const float *x, size_t n,
                            float inverse)
{
    encode(code, x, n, inverse, 0);
}

INLINE void step_numbers(enum plait_dtype type, const struct cpu_step *s,
                         const struct plait_update8_run *r, size_t i, size_t n,
                         float *m, float *v)
{
    const struct plait_update *p = s->p;
    vec g = vec_load(PLAIT_F32, r->grad, i, n) * s->scale;
    vec w = vec_load(PLAIT_F32, r->master, i, n);
    vec m1 = p->beta1 * vec_load(PLAIT_F32, m, 0, n) + (1 - p->beta1) * g;
    vec v1 = p->beta2 * vec_load(PLAIT_F32, v, 0, n) + (1 - p->beta2) * g * g;

    w -= s->lr * (m1 * s->correct1 / (vec_sqrt(v1) * s->correct2 + p->eps) +
                  r->weight_decay * w);
    vec_store(PLAIT_F32, m, 0, n, m1);
    vec_store(PLAIT_F32, v, 0, n, v1);
    vec_store(PLAIT_F32, r->master, i, n, w);
    if (r->weight != NULL && r->weight != r->master)
        store_weight(type, s, r->weight, r->first, i, n, w);
}

INLINE void step_typed(enum plait_dtype type, const struct cpu_step *s,
                       const struct plait_update8_run *r, size_t i, size_t n,
                       float *m, float *v)
{
    size_t k = 0;

    for (; k + VLEN <= n; k += VLEN)
        step_numbers(type, s, r, i + k, VLEN, m + k, v + k);
    if (k < n)
        step_numbers(type, s, r, i + k, n - k, m + k, v + k);
}

static void step_block(enum plait_dtype type, const struct cpu_step *s,
                       const struct maps *maps,
                       const struct plait_update8_run *r, size_t block)
{
    size_t i = block * BLOCK, n = r->n - i < BLOCK ? r->n - i : BLOCK;
    float m[BLOCK] = {0}, v[BLOCK] = {0};

    decode(m, r->code[0] + i, n, 1, maps->value[0], r->scale[0][block]);
    decode(v, r->code[1] + i, n, 0, maps->value[1], r->scale[1][block]);
    if (type == PLAIT_F32)
        step_typed(PLAIT_F32, s, r, i, n, m, v);
    else if (type == PLAIT_BF16_T)
        step_typed(PLAIT_BF16_T, s, r, i, n, m, v);
    else
        step_typed(PLAIT_FP16_T, s, r, i, n, m, v);
    r->scale[0][block] = scale_of(m);
    r->scale[1][block] = scale_of(v);
    encode_signed(r->code[0] + i, m, n, plait_map_inverse(r->scale[0][block]));
    encode_positive(r->code[1] + i, v, n,
                    plait_map_inverse(r->scale[1][block]));
}

static size_t blocks_of(const struct plait_update8_run *r)
{
    return (r->n + BLOCK - 1) / BLOCK;
}

/* Blocks b .. end-1 of all runs, one run behind the other. */
static void step_blocks(enum plait_dtype type, const struct cpu_step *s,
                        const struct maps *maps,
                        const struct plait_update8_run *r, size_t b, size_t end)
{
    for (size_t first = 0; first < end; first += blocks_of(r), r++)
        for (; b < end && b < first + blocks_of(r); b++)
            step_block(type, s, maps, r, b - first);
#if defined(__AVX512BF16__)
    _mm_sfence();
#endif
}

static int update8(struct plait_queue *q, const struct plait_update *p,
                   enum plait_dtype type, const struct plait_update8_run *runs,
                   int nruns)
{
    struct cpu_step s = step_of(p);
    struct maps maps;
    size_t blocks = 0;

    if (!isfinite(s.scale))
        return 0;
    fill_maps(&maps);
    for (int i = 0; i < nruns; i++)
        blocks += blocks_of(&runs[i]);
#pragma omp parallel num_threads(cpu_threads(q, blocks *BLOCK))
    {
        size_t threads = (size_t)omp_get_num_threads();
        size_t t = (size_t)omp_get_thread_num();

        step_blocks(type, &s, &maps, runs, blocks * t / threads,
                    blocks * (t + 1) / threads);
    }
    return 0;
}

void CPU_NAME(cpu_fill_update8)(struct plait_ops *ops)
{
    ops->update8 = update8;
}

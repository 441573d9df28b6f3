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

/* VLEN values of a table of 256. */
INLINE vec look_up(const float *value, const uint8_t *code)
{
#if defined(__AVX512F__)
    __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)code));

    return (vec)_mm512_i32gather_ps(index, value, 4);
#elif defined(__AVX2__)
    __m256i index = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)code));

    return (vec)_mm256_i32gather_ps(value, index, 4);
#else
    vec x;

    for (int k = 0; k < VLEN; k++)
        x[k] = value[code[k]];
    return x;
#endif
}

/* Codes of which only the first n are there. */
static void decode(float *x, const uint8_t *code, size_t n, const float *value,
                   float scale)
{
    uint8_t whole[BLOCK] = {0};

    if (n < BLOCK)
        code = memcpy(whole, code, n);
    for (size_t i = 0; i < BLOCK; i += VLEN)
        vec_store(PLAIT_F32, x, i, VLEN, look_up(value, code + i) * scale);
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

/* plait_map_encode() without branches: decade by decade the bound, what brings
 * a number to 0.1 .. 1, and the decade's bins. */
INLINE void encode_vec(uint8_t *code, vec a, int sign)
{
    vec b = vec_select(a < 0, -a, a), t, unit = vec_set(1e6f);
    float below = 1e-6f, width = plait_map_bins(sign), least;
    vec bins = vec_set(width);
    ivec q, one;
    bvec out;

#pragma GCC unroll 8
    for (int i = 1; i < PLAIT_MAP_DECADES; i++) {
        ivec up = b >= below * (1 + 0.9f / width);

        width *= 2;
        below *= 10;
        unit = vec_select(up, unit * 0.1f, unit);
        bins = vec_select(up, vec_set(width), bins);
    }
    least = sign ? 0.275e-6f : 0;
    t = (b * unit - 0.1f) * (bins * (1 / 0.9f));
    t = vec_select(t > 0, t, vec_set(0));
    t = vec_select(t < bins - 1, t, bins - 1);
    q = __builtin_convertvector(t, ivec) + __builtin_convertvector(bins, ivec);
    q = (q - !sign) & (b > least);
    q += (a < 0) & (q > 0) & 128;
    one = a >= 1 - 0.225f / width;
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

    decode(m, r->code[0] + i, n, maps->value[0], r->scale[0][block]);
    decode(v, r->code[1] + i, n, maps->value[1], r->scale[1][block]);
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

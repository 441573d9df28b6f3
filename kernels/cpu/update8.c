/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/update.h"
#include "kernels/dynamic_map.h"

/* AdamW with 8-bit states: a block's states are decoded, updated and encoded
 * again while they are in L1. */

enum {
    BLOCK = PLAIT_MAP_BLOCK,
    ENTRIES = VLEN > 8 ? VLEN : 8 /* at least the eight entries; with 16 lanes
                                   * they are repeated */
};

/* A table looked up by the lowest bits of a vector of indices, with
 * permutations, which are much faster than gathers. */
typedef float table[ENTRIES] __attribute__((aligned(4 * ENTRIES)));

/* Tables of one map, signed or unsigned. Decoding: q = code + 1/2 (signed) or
 * code + 3/2 (unsigned) is bins (1 + x). The exponent of q tells the decade, x
 * is the position in it, and the value is (9 q / bins - 8) unit / 10. Encoding:
 * a number b of a decade has the code b slope + from, but at most `most`; from
 * `bound` on it belongs to the next decade. The value 1 is a decade of its
 * own. */
struct map {
    table ninth, unit;              /* by the exponent of q */
    table bound, slope, from, most; /* by the decade */
    float value[256];               /* for processors without permutations */
};

INLINE vec pick(const float *t, ivec j)
{
#if defined(__AVX512F__)
    return (vec)_mm512_permutexvar_ps((__m512i)j, _mm512_load_ps(t));
#elif defined(__AVX2__)
    return (vec)_mm256_permutevar8x32_ps(_mm256_load_ps(t), (__m256i)j);
#else
    vec x;

    for (int k = 0; k < VLEN; k++)
        x[k] = t[j[k] & 7];
    return x;
#endif
}

INLINE ivec least_of(ivec x, ivec y)
{
#if defined(__AVX512F__)
    return (ivec)_mm512_min_epi32((__m512i)x, (__m512i)y);
#else
    ivec less = x < y;

    return (less & x) | (~less & y);
#endif
}

static void fill_map(struct map *map, int sign)
{
    float unit = 1e-6f, bins = plait_map_bins(sign);
    int first = sign ? 127 : 128; /* the lowest decade's exponent of q */

    for (int i = 0; i < ENTRIES; i++) {
        int j = i % 8, k = (first + i) % 8 + i / 8 * 8;

        if (j == 0) {
            unit = 1e-6f;
            bins = plait_map_bins(sign);
        }
        map->ninth[k] = j < PLAIT_MAP_DECADES ? 9 / bins : 0;
        map->unit[k] = j < PLAIT_MAP_DECADES ? 0.1f * unit : 0; /* code 0 */
        map->bound[i] = unit * (1 + 0.9f / bins);
        map->slope[i] = bins / (0.9f * unit);
        map->from[i] = bins * (8 / 9.0f) - (float)!sign;
        map->most[i] = 2 * bins - 1 - (float)!sign;
        if (j == PLAIT_MAP_DECADES - 1)
            map->bound[i] = 1 - 0.225f / bins;
        if (j == PLAIT_MAP_DECADES) {
            map->bound[i] = INFINITY;
            map->slope[i] = 0;
            map->from[i] = map->most[i] = sign ? PLAIT_MAP_ONE : 255;
        }
        if (j == 0 && sign) { /* one value other than 0 */
            map->slope[i] = 1 / 0.275e-6f;
            map->from[i] = 0;
        }
        unit *= 10;
        bins *= 2;
    }
    for (int i = 0; i < 256; i++)
        map->value[i] = plait_map_decode((uint8_t)i, sign);
}

/* The values of VLEN codes. unit: the map's, times the block's scale. */
#if defined(__AVX2__)
/* Widens VLEN bytes; compilers would do that one by one. */
INLINE ivec widen(const uint8_t *code)
{
#if defined(__AVX512F__)
    return (ivec)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)code));
#else
    return (ivec)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)code));
#endif
}

INLINE vec decode_vec(const uint8_t *code, int sign, const struct map *map,
                      const float *unit, float scale)
{
    ivec c = widen(code), at;
    vec q = __builtin_convertvector(sign ? c & 127 : c, vec), x;

    q += sign ? 0.5f : 1.5f;
    at = (ivec)q >> 23;
    x = (q * pick(map->ninth, at) - 8) * pick(unit, at);
    if (sign)
        x = (vec)((ivec)x ^ (c & 128) << 24);
#if defined(__AVX512F__)
    return (vec)_mm512_mask_mov_ps(
        (__m512)x,
        _mm512_cmpeq_epi32_mask((__m512i)c,
                                _mm512_set1_epi32(sign ? PLAIT_MAP_ONE : 255)),
        _mm512_set1_ps(scale));
#else
    return vec_select(c == (sign ? PLAIT_MAP_ONE : 255), vec_set(scale), x);
#endif
}
#else
INLINE vec decode_vec(const uint8_t *code, int sign, const struct map *map,
                      const float *unit, float scale)
{
    vec x;

    (void)sign;
    (void)unit;
    for (int k = 0; k < VLEN; k++)
        x[k] = map->value[code[k]];
    return x * scale;
}
#endif

/* The lowest bytes of VLEN numbers from 0 to 255. */
INLINE void narrow(uint8_t *code, ivec c)
{
#if defined(__AVX512F__)
    _mm_storeu_si128((void *)code, _mm512_cvtepi32_epi8((__m512i)c));
#elif defined(__AVX2__)
    __m256i x = _mm256_packus_epi32((__m256i)c, (__m256i)c); /* of each half */
    __m128i y = _mm_unpacklo_epi64(_mm256_castsi256_si128(x),
                                   _mm256_extracti128_si256(x, 1));

    _mm_storel_epi64((void *)code, _mm_packus_epi16(y, y));
#else
    for (int k = 0; k < VLEN; k++)
        code[k] = (uint8_t)c[k];
#endif
}

/* plait_map_encode() of VLEN numbers divided by their scale, without
 * branches. */
INLINE ivec encode_vec(vec a, int sign, const struct map *map)
{
    /* Smaller numbers have the same code as this one, in the lowest decade. */
    vec b = vec_max(sign ? (vec)((ivec)a & INT32_MAX) : a, vec_set(0x1p-22f));
    /* The bits of b as an integer approximate log2(b) within 0.09. This tells
     * the decade from the middle of one to the middle of the next, and the one
     * bound in between is then compared. */
    vec j = __builtin_convertvector((ivec)b, vec) * (0.30103f * 0x1p-23f) +
            (6.5f - 127 * 0.30103f);
    ivec at = __builtin_convertvector(j, ivec), q, s;

#if defined(__AVX512F__)
    at = (ivec)_mm512_mask_add_epi32(
        (__m512i)at,
        _mm512_cmp_ps_mask((__m512)b, (__m512)pick(map->bound, at), _CMP_GE_OQ),
        (__m512i)at, _mm512_set1_epi32(1));
#elif defined(__AVX2__)
    at -= b >= pick(map->bound, at);
#else
    at = (ivec){0};
    for (int i = 0; i < PLAIT_MAP_DECADES; i++)
        at -= b >= map->bound[i];
#endif
    j = b * pick(map->slope, at) + pick(map->from, at);
    q = __builtin_convertvector(j, ivec);
    q = least_of(q, __builtin_convertvector(pick(map->most, at), ivec));
    if (!sign) /* only 0, all of whose bits are 0, has code 0 */
        return least_of(q, (ivec)a);
    s = (ivec)a >> 31;
    q = least_of(q, 128 + s); /* -1 has no code */
    return q + least_of(s & 128, q << 7);
}

/* Encodes x [BLOCK], of which only the first n are stored. */
INLINE void encode(uint8_t *code, const float *x, size_t n, float inverse,
                   int sign, const struct map *map)
{
    uint8_t whole[BLOCK], *to = n < BLOCK ? whole : code;

    for (size_t i = 0; i < BLOCK; i += VLEN) {
        vec a = vec_load(PLAIT_F32, x, i, VLEN) * inverse;

        narrow(to + i, encode_vec(a, sign, map));
    }
    if (n < BLOCK)
        memcpy(code, whole, n);
}

/* The states of a block: the old ones as codes, the new ones as numbers. */
struct states {
    size_t first;           /* the block's first element in its run */
    const struct map *maps; /* [2]: those of the codes */
    const uint8_t *code[2];
    float scale[2];
    table unit[2]; /* of the maps, times the scales */
    float m[BLOCK], v[BLOCK];
    vec high, low, most; /* the largest m, -m and v, for the new scales */
};

INLINE void step_numbers(enum plait_dtype type, const struct cpu_step *s,
                         const struct plait_update8_run *r, size_t i, size_t n,
                         struct states *b)
{
    const struct plait_update *p = s->p;
    const struct map *maps = b->maps;
    size_t at = b->first + i;
    vec g = vec_load(PLAIT_F32, r->grad, at, n) * s->scale;
    vec w = vec_load(PLAIT_F32, r->master, at, n);
    vec m = decode_vec(b->code[0] + i, 1, &maps[0], b->unit[0], b->scale[0]);
    vec v = decode_vec(b->code[1] + i, 0, &maps[1], b->unit[1], b->scale[1]);

    m = p->beta1 * m + (1 - p->beta1) * g;
    v = p->beta2 * v + (1 - p->beta2) * g * g;
    w -= s->lr * (m * s->correct1 / (vec_sqrt(v) * s->correct2 + p->eps) +
                  r->weight_decay * w);
    b->high = vec_max(m, b->high);
    b->low = vec_max(-m, b->low);
    b->most = vec_max(v, b->most);
    vec_store(PLAIT_F32, b->m, i, VLEN, m);
    vec_store(PLAIT_F32, b->v, i, VLEN, v);
    vec_store(PLAIT_F32, r->master, at, n, w);
    if (r->weight != NULL && r->weight != r->master)
        store_weight(type, r->weight, at, n, w);
}

/* All n elements of a block. */
INLINE void step_typed(enum plait_dtype type, const struct cpu_step *s,
                       const struct plait_update8_run *r, size_t n,
                       struct states *b)
{
    size_t i = 0;

    b->high = b->low = b->most = vec_set(0);
    for (; i + VLEN <= n; i += VLEN)
        step_numbers(type, s, r, i, VLEN, b);
    if (i < n)
        step_numbers(type, s, r, i, n - i, b);
    for (i += i < n ? VLEN : 0; i < BLOCK; i += VLEN) {
        vec_store(PLAIT_F32, b->m, i, VLEN, vec_set(0));
        vec_store(PLAIT_F32, b->v, i, VLEN, vec_set(0));
    }
}

/* Prepares decoding of a block, of which only the first n codes exist; whole
 * [2][BLOCK] takes a copy of a shorter block. */
INLINE void read_block(struct states *b, const struct map maps[2],
                       uint8_t whole[2][BLOCK],
                       const struct plait_update8_run *r, size_t block,
                       size_t n)
{
    b->first = block * BLOCK;
    b->maps = maps;
    for (int k = 0; k < 2; k++) {
        b->scale[k] = r->scale[k][block];
        b->code[k] = r->code[k] + block * BLOCK;
        if (n < BLOCK)
            b->code[k] = memcpy(whole[k], b->code[k], n);
        for (int i = 0; i < ENTRIES; i++)
            b->unit[k][i] = maps[k].unit[i] * b->scale[k];
    }
}

static void step_block(const struct cpu_step *s, const struct map maps[2],
                       const struct plait_update8_run *r, size_t block)
{
    size_t first = block * BLOCK, n = min(r->n - first, BLOCK);
    enum plait_dtype type = s->p->type;
    uint8_t whole[2][BLOCK];
    struct states b;

    if (n < BLOCK)
        memset(whole, 0, sizeof(whole));
    read_block(&b, maps, whole, r, block, n);
    if (type == PLAIT_F32)
        step_typed(PLAIT_F32, s, r, n, &b);
    else if (type == PLAIT_BF16_T)
        step_typed(PLAIT_BF16_T, s, r, n, &b);
    else
        step_typed(PLAIT_FP16_T, s, r, n, &b);
    b.scale[0] = plait_map_scale(-vec_largest(b.low), vec_largest(b.high));
    b.scale[1] = vec_largest(b.most);
    encode(r->code[0] + first, b.m, n, plait_map_inverse(b.scale[0]), 1,
           &maps[0]);
    encode(r->code[1] + first, b.v, n, plait_map_inverse(b.scale[1]), 0,
           &maps[1]);
    r->scale[0][block] = b.scale[0];
    r->scale[1][block] = b.scale[1];
}

static size_t blocks_of(const struct plait_update8_run *r)
{
    return (r->n + BLOCK - 1) / BLOCK;
}

/* Blocks b .. end-1, counted through all runs. */
static void step_blocks(const struct cpu_step *s, const struct map maps[2],
                        const struct plait_update8_run *r, size_t b, size_t end)
{
    for (size_t first = 0; first < end; first += blocks_of(r), r++)
        for (; b < end && b < first + blocks_of(r); b++)
            step_block(s, maps, r, b - first);
#if defined(__AVX512BF16__)
    _mm_sfence();
#endif
}

static int update8(struct plait_queue *q, const struct plait_update *p,
                   const struct plait_update8_run *runs, int nruns)
{
    struct cpu_step s = step_of(p);
    struct map maps[2];
    size_t blocks = 0;

    if (!isfinite(s.scale))
        return 0;
    fill_map(&maps[0], 1);
    fill_map(&maps[1], 0);
    for (int i = 0; i < nruns; i++)
        blocks += blocks_of(&runs[i]);
#pragma omp parallel num_threads(cpu_threads(q, blocks *BLOCK))
    {
        size_t threads = (size_t)omp_get_num_threads();
        size_t t = (size_t)omp_get_thread_num();

        step_blocks(&s, maps, runs, blocks * t / threads,
                    blocks * (t + 1) / threads);
    }
    return 0;
}

void CPU_NAME(cpu_fill_update8)(struct plait_ops *ops)
{
    ops->update8 = update8;
}

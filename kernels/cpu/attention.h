/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_ATTENTION_H
#define PLAIT_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* What attention in tiles of queries by keys has in common, whatever the
 * type it multiplies in. */
#define TILE 64

INLINE size_t padded(size_t n)
{
    return (n + VLEN - 1) / VLEN * VLEN;
}

#define AHEAD 16 /* rows */

/* A head's rows lie a whole token apart, each on a page of its own, where
 * the processor does not look ahead. At row i of `rows`, ask for a row soon
 * after it, and for that of the next head: it lies right behind. */
INLINE void prefetch(enum plait_dtype type, const void *x, size_t at,
                     size_t stride, size_t i, size_t rows, size_t D)
{
    size_t size = type == PLAIT_F32 ? sizeof(float) : sizeof(uint16_t);
    const char *p = (const char *)x + (at + i * stride) * size;

    for (size_t d = 0; d < D * size; d += 64) {
        __builtin_prefetch(p + D * size + d);
        if (i + AHEAD < rows)
            __builtin_prefetch(p + AHEAD * stride * size + d);
    }
}

/* Heads that are neighbours go to one thread, for the sake of the above;
 * each thread still has some such runs to choose from. */
INLINE size_t run_of_items(const struct plait_queue *q, size_t items)
{
    size_t n = items / (8 * (size_t)q->dev->threads);

    return n > 1 ? n : 1;
}

/* Rows of x, `stride` apart, = (+= if add) src [rows, ld] */
INLINE void store_tile(enum plait_dtype type, void *x, size_t at, size_t stride,
                       const float *src, size_t ld, size_t rows, size_t D,
                       int add)
{
    for (size_t i = 0; i < rows; i++) {
        prefetch(type, x, at, stride, i, rows, D);
        for (size_t d = 0; d < D; d += VLEN) {
            size_t n = min(VLEN, D - d), to = at + i * stride + d;
            vec y = vec_load(PLAIT_F32, src, i * ld + d, VLEN);

            if (add)
                y += vec_load(type, x, to, n);
            vec_store(type, x, to, n, y);
        }
    }
}

INLINE void store_any(enum plait_dtype type, void *x, size_t at, size_t stride,
                      const float *src, size_t ld, size_t rows, size_t D,
                      int add)
{
    if (type == PLAIT_F32)
        store_tile(PLAIT_F32, x, at, stride, src, ld, rows, D, add);
    else if (type == PLAIT_BF16_T)
        store_tile(PLAIT_BF16_T, x, at, stride, src, ld, rows, D, add);
    else
        store_tile(PLAIT_FP16_T, x, at, stride, src, ld, rows, D, add);
}

/* The keys that the queries of a tile see of a tile of keys: query i the
 * first `seen + i` of them, but at most `cols` and at least none. */
struct window {
    int64_t seen;
    size_t cols;
};

INLINE struct window window_at(const struct plait_attention *a, size_t i0,
                               size_t k0)
{
    struct window w = {
        .seen = a->q_pos + (int64_t)i0 - a->k_pos - (int64_t)k0 + 1,
        .cols = min(TILE, (size_t)a->k_len - k0),
    };

    return w;
}

INLINE size_t visible(const struct window *w, size_t i)
{
    int64_t n = w->seen + (int64_t)i;

    if (n <= 0)
        return 0;
    return (uint64_t)n < w->cols ? (size_t)n : w->cols;
}

/* The first query that sees key j, or `rows` if none does. */
INLINE size_t first_query(const struct window *w, size_t j, size_t rows)
{
    int64_t i = (int64_t)j - w->seen + 1;

    if (i <= 0)
        return 0;
    return (uint64_t)i < rows ? (size_t)i : rows;
}

/* The operands of one op. */
struct attention {
    enum plait_dtype type;
    const struct plait_attention *a;
    const void *Q, *K, *V;
    void *out;
    float *lse;
    const void *dout;
    void *dQ, *dK, *dV;
};

INLINE size_t q_at(const struct plait_attention *a, size_t b, size_t h,
                   size_t i)
{
    return (b * (size_t)a->q_len + i) * a->q_stride + h * (size_t)a->head_dim;
}

INLINE size_t k_at(const struct plait_attention *a, size_t b, size_t h,
                   size_t j)
{
    return (b * (size_t)a->k_len + j) * a->kv_stride + h * (size_t)a->head_dim;
}

INLINE size_t out_at(const struct plait_attention *a, size_t b, size_t h,
                     size_t i)
{
    return ((b * (size_t)a->q_len + i) * (size_t)a->q_heads + h) *
           (size_t)a->head_dim;
}

#endif

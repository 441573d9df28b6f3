/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

struct shard {
    int32_t first, count;
    size_t stride;
};

INLINE float one(enum plait_dtype type, const void *p, size_t i)
{
    return vec_load(type, p, i, 1)[0];
}

/* The largest of n logits; several at once, so that no comparison waits for
 * the one before. */
INLINE float largest_of(enum plait_dtype type, const void *logits, size_t at,
                        size_t n)
{
    vec m[4];
    float largest;
    size_t c = 0;

    for (size_t j = 0; j < 4; j++)
        m[j] = vec_set(-INFINITY);
    for (; c + 4 * VLEN <= n; c += 4 * VLEN)
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++)
            m[j] = vec_max(m[j], vec_load(type, logits, at + c + j * VLEN,
                                          VLEN));
    m[0] = vec_max(vec_max(m[0], m[1]), vec_max(m[2], m[3]));
    largest = vec_largest(m[0]);
    for (; c < n; c++) {
        float x = one(type, logits, at + c);

        largest = largest < x ? x : largest;
    }
    return largest;
}

/* A row lies in L2 for the second pass. A NaN shows in the sum. */
INLINE void stats_row(enum plait_dtype type, float *max, float *sum,
                      const void *logits, size_t at, size_t n)
{
    float largest = largest_of(type, logits, at, n), tail = 0;
    vec s = {0};
    size_t c;

    for (c = 0; c + VLEN <= n; c += VLEN)
        s += vec_exp(vec_load(type, logits, at + c, VLEN) - largest);
    if (c < n) {
        vec e = vec_exp(vec_load(type, logits, at + c, n - c) - largest);

        for (size_t k = 0; k < n - c; k++)
            tail += e[k];
    }
    *max = largest;
    *sum = vec_sum(s) + tail;
}

static int xent_stats(struct plait_queue *q, enum plait_dtype type, float *max,
                      float *sum, float *target, const void *logits,
                      const int32_t *targets, int32_t first, int32_t count,
                      size_t stride, size_t N)
{
    size_t n = (size_t)count;

#pragma omp parallel for num_threads(cpu_threads(q, N * n)) schedule(static)
    for (size_t i = 0; i < N; i++) {
        int64_t t = (int64_t)targets[i] - first;
        size_t at = i * stride;

        if (type == PLAIT_F32)
            stats_row(PLAIT_F32, &max[i], &sum[i], logits, at, n);
        else if (type == PLAIT_BF16_T)
            stats_row(PLAIT_BF16_T, &max[i], &sum[i], logits, at, n);
        else
            stats_row(PLAIT_FP16_T, &max[i], &sum[i], logits, at, n);
        target[i] = 0;
        if (targets[i] < 0 || t < 0 || t >= count)
            continue;
        at += (size_t)t;
        if (type == PLAIT_F32)
            target[i] = one(PLAIT_F32, logits, at);
        else if (type == PLAIT_BF16_T)
            target[i] = one(PLAIT_BF16_T, logits, at);
        else
            target[i] = one(PLAIT_FP16_T, logits, at);
    }
    return 0;
}

static int xent_rescale(struct plait_queue *q, float *sum, const float *max,
                        const float *allmax, size_t N)
{
    (void)q;
    for (size_t i = 0; i < N; i++)
        sum[i] *= expf(max[i] - allmax[i]);
    return 0;
}

INLINE void store_one(enum plait_dtype type, void *p, size_t i, float x)
{
    vec_store(type, p, i, 1, vec_set(x));
}

/* The target's own entry is computed apart: p - 1 rounds once. */
INLINE void backward_row(enum plait_dtype type, void *logits, size_t at,
                         float max, float sum, float scale, int64_t target,
                         const struct shard *s)
{
    size_t n = (size_t)s->count, size = plait_dtype_size(type);
    int own = target >= 0 && target < s->count;
    float factor = scale / sum, kept = 0;

    if (own)
        kept = one(type, logits, at + (size_t)target);
    for (size_t c = 0; c < n; c += VLEN) {
        size_t k = n - c < VLEN ? n - c : VLEN;
        vec x = vec_load(type, logits, at + c, k);

        vec_store(type, logits, at + c, k, vec_exp(x - max) * factor);
    }
    if (own)
        store_one(type, logits, at + (size_t)target,
                  (vec_exp(vec_set(kept - max))[0] / sum - 1) * scale);
    memset((char *)logits + (at + n) * size, 0, (s->stride - n) * size);
}

static int xent_backward(struct plait_queue *q, enum plait_dtype type,
                         double *loss, void *logits, const float *max,
                         const float *sum, const float *target,
                         const int32_t *targets, float scale, int32_t first,
                         int32_t count, size_t stride, size_t N)
{
    struct shard s = {first, count, stride};
    size_t size = plait_dtype_size(type);
    double total = 0;

#pragma omp parallel for num_threads(cpu_threads(q, N * stride)) \
    schedule(static)
    for (size_t i = 0; i < N; i++) {
        int64_t t = (int64_t)targets[i] - first;
        size_t at = i * stride;

        if (targets[i] < 0)
            memset((char *)logits + at * size, 0, stride * size);
        else if (type == PLAIT_F32)
            backward_row(PLAIT_F32, logits, at, max[i], sum[i], scale, t, &s);
        else if (type == PLAIT_BF16_T)
            backward_row(PLAIT_BF16_T, logits, at, max[i], sum[i], scale, t,
                         &s);
        else
            backward_row(PLAIT_FP16_T, logits, at, max[i], sum[i], scale, t,
                         &s);
    }
    for (size_t i = 0; i < N; i++)
        if (targets[i] >= 0)
            total += (double)max[i] + log(sum[i]) - target[i];
    *loss += total;
    return 0;
}

void CPU_NAME(cpu_fill_xent)(struct plait_ops *ops)
{
    ops->xent_stats = xent_stats;
    ops->xent_rescale = xent_rescale;
    ops->xent_backward = xent_backward;
}

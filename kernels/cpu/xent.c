/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

struct shard {
    int32_t first, count;
    size_t stride;
};

INLINE float load_one(enum plait_dtype type, const void *p, size_t i)
{
    return vec_load(type, p, i, 1)[0];
}

/* The largest of n logits, with several maxima at once so that comparisons do
 * not wait for each other. */
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
            m[j] =
                vec_max(m[j], vec_load(type, logits, at + c + j * VLEN, VLEN));
    m[0] = vec_max(vec_max(m[0], m[1]), vec_max(m[2], m[3]));
    largest = vec_largest(m[0]);
    for (; c < n; c++) {
        float x = load_one(type, logits, at + c);

        largest = largest < x ? x : largest;
    }
    return largest;
}

/* In the second pass the row is read from L2. A NaN shows in the sum. e [n] =
 * exp(x - max); NULL: not wanted. */
INLINE void stats_row(enum plait_dtype type, float *max, float *sum, float *e,
                      const void *logits, size_t at, size_t n)
{
    float largest = largest_of(type, logits, at, n), tail = 0;
    vec s = {0};
    size_t c;

    for (c = 0; c + VLEN <= n; c += VLEN) {
        vec y = vec_exp(vec_load(type, logits, at + c, VLEN) - largest);

        if (e != NULL)
            vec_store(PLAIT_F32, e, c, VLEN, y);
        s += y;
    }
    if (c < n) {
        vec y = vec_exp(vec_load(type, logits, at + c, n - c) - largest);

        if (e != NULL)
            vec_store(PLAIT_F32, e, c, n - c, y);
        for (size_t k = 0; k < n - c; k++)
            tail += y[k];
    }
    *max = largest;
    *sum = vec_sum(s) + tail;
}

/* Statistics of the row at `at`; `token`: its target in the whole
 * vocabulary. */
static void token_stats(enum plait_dtype type, float *max, float *sum,
                        float *target, float *e, const void *logits, size_t at,
                        int32_t token, const struct shard *s)
{
    size_t n = (size_t)s->count;
    int64_t t = (int64_t)token - s->first;

    if (type == PLAIT_F32)
        stats_row(PLAIT_F32, max, sum, e, logits, at, n);
    else if (type == PLAIT_BF16_T)
        stats_row(PLAIT_BF16_T, max, sum, e, logits, at, n);
    else
        stats_row(PLAIT_FP16_T, max, sum, e, logits, at, n);
    *target = 0;
    if (token < 0 || t < 0 || t >= s->count)
        return;
    at += (size_t)t;
    if (type == PLAIT_F32)
        *target = load_one(PLAIT_F32, logits, at);
    else if (type == PLAIT_BF16_T)
        *target = load_one(PLAIT_BF16_T, logits, at);
    else
        *target = load_one(PLAIT_FP16_T, logits, at);
}

static int xent_stats(struct plait_queue *q, enum plait_dtype type, float *max,
                      float *sum, float *target, const void *logits,
                      const int32_t *targets, int32_t first, int32_t count,
                      size_t stride, size_t N)
{
    struct shard s = {first, count, stride};
    int threads = cpu_threads(q, N * (size_t)count);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < N; i++)
        token_stats(type, &max[i], &sum[i], &target[i], NULL, logits,
                    i * stride, targets[i], &s);
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

/* The target's own entry is computed separately, so that p - 1 is rounded only
 * once. e: the exponentials that the sum was made of, or NULL. */
INLINE void backward_row(enum plait_dtype type, void *logits, size_t at,
                         float max, float sum, const float *e, float scale,
                         int64_t target, const struct shard *s)
{
    size_t n = (size_t)s->count, size = plait_dtype_size(type);
    int own = target >= 0 && target < s->count;
    float factor = scale / sum, kept = 0;

    if (own)
        kept = load_one(type, logits, at + (size_t)target);
    for (size_t c = 0; c < n; c += VLEN) {
        size_t k = n - c < VLEN ? n - c : VLEN;
        vec y;

        if (e != NULL)
            y = vec_load(PLAIT_F32, e, c, k);
        else
            y = vec_exp(vec_load(type, logits, at + c, k) - max);
        vec_store(type, logits, at + c, k, y * factor);
    }
    if (own)
        store_one(type, logits, at + (size_t)target,
                  (vec_exp(vec_set(kept - max))[0] / sum - 1) * scale);
    memset((char *)logits + (at + n) * size, 0, (s->stride - n) * size);
}

static void backward(enum plait_dtype type, void *logits, size_t at, float max,
                     float sum, const float *e, float scale, int32_t token,
                     const struct shard *s)
{
    size_t size = plait_dtype_size(type);
    int64_t t = (int64_t)token - s->first;

    if (token < 0)
        memset((char *)logits + at * size, 0, s->stride * size);
    else if (type == PLAIT_F32)
        backward_row(PLAIT_F32, logits, at, max, sum, e, scale, t, s);
    else if (type == PLAIT_BF16_T)
        backward_row(PLAIT_BF16_T, logits, at, max, sum, e, scale, t, s);
    else
        backward_row(PLAIT_FP16_T, logits, at, max, sum, e, scale, t, s);
}

static double loss_of(const float *max, const float *sum, const float *target,
                      const int32_t *targets, size_t N)
{
    double total = 0;

    for (size_t i = 0; i < N; i++)
        if (targets[i] >= 0)
            total += (double)max[i] + log(sum[i]) - target[i];
    return total;
}

static int xent_backward(struct plait_queue *q, enum plait_dtype type,
                         double *loss, void *logits, const float *max,
                         const float *sum, const float *target,
                         const int32_t *targets, float scale, int32_t first,
                         int32_t count, size_t stride, size_t N)
{
    struct shard s = {first, count, stride};
    int threads = cpu_threads(q, N * stride);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < N; i++)
        backward(type, logits, i * stride, max[i], sum[i], NULL, scale,
                 targets[i], &s);
    *loss += loss_of(max, sum, target, targets, N);
    return 0;
}

/* Row by row, so that a row's exponentials are computed once and are still in
 * the cache for its gradient. */
static int xent(struct plait_queue *q, enum plait_dtype type, double *loss,
                void *logits, const int32_t *targets, float scale,
                int32_t count, size_t stride, size_t N)
{
    struct shard s = {0, count, stride};
    size_t width = ((size_t)count + 63) / 64 * 64;
    size_t threads = (size_t)cpu_threads(q, N * stride);
    float *rows = cpu_scratch(q, CPU_SCRATCH_OP,
                              (threads * width + 3 * N) * sizeof(*rows));
    float *max, *sum, *target;

    if (rows == NULL)
        return -1;
    max = rows + threads * width;
    sum = max + N;
    target = sum + N;
#pragma omp parallel for num_threads((int)threads) schedule(static)
    for (size_t i = 0; i < N; i++) {
        float *e = rows + (size_t)omp_get_thread_num() * width;

        token_stats(type, &max[i], &sum[i], &target[i], e, logits, i * stride,
                    targets[i], &s);
        backward(type, logits, i * stride, max[i], sum[i], e, scale, targets[i],
                 &s);
    }
    *loss += loss_of(max, sum, target, targets, N);
    return 0;
}

void CPU_NAME(cpu_fill_xent)(struct plait_ops *ops)
{
    ops->xent_stats = xent_stats;
    ops->xent_rescale = xent_rescale;
    ops->xent_backward = xent_backward;
    ops->xent = xent;
}

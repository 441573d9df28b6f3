/* SPDX-License-Identifier: Apache-2.0 */
/* The loss and its gradient on the CPU, a row of logits at a time, so that a
 * row is read from the cache the second time. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"
#include "kernels/xent.h"

struct softmax {
    float max, sum;
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
INLINE struct softmax softmax_of(enum plait_dtype type, float *e,
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
    return (struct softmax){largest, vec_sum(s) + tail};
}

/* Statistics of row i; e: as in softmax_of(). */
INLINE void stats_row(enum plait_dtype type, const struct plait_xent *x,
                      size_t i, float *e)
{
    size_t at = i * x->stride;
    int64_t t = (int64_t)x->targets[i] - x->first;
    struct softmax s = softmax_of(type, e, x->logits, at, (size_t)x->count);

    x->max[i] = s.max;
    x->sum[i] = s.sum;
    x->target[i] = 0;
    if (x->targets[i] >= 0 && t >= 0 && t < x->count)
        x->target[i] = load_one(type, x->logits, at + (size_t)t);
}

static void token_stats(const struct plait_xent *x, size_t i, float *e)
{
    if (x->type == PLAIT_F32)
        stats_row(PLAIT_F32, x, i, e);
    else if (x->type == PLAIT_BF16_T)
        stats_row(PLAIT_BF16_T, x, i, e);
    else
        stats_row(PLAIT_FP16_T, x, i, e);
}

static int xent_stats(struct plait_queue *q, const struct plait_xent *x)
{
    int threads = cpu_threads(q, x->N * (size_t)x->count);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < x->N; i++)
        token_stats(x, i, NULL);
    return 0;
}

static int xent_rescale(struct plait_queue *q, const struct plait_xent *x,
                        const float *allmax)
{
    (void)q;
    for (size_t i = 0; i < x->N; i++)
        x->sum[i] *= expf(x->max[i] - allmax[i]);
    return 0;
}

INLINE void store_one(enum plait_dtype type, void *p, size_t i, float x)
{
    vec_store(type, p, i, 1, vec_set(x));
}

/* What a cap leaves of the gradient of capped logits, which may have been
 * rounded up beyond it; inverse: 1 / the cap, or 0 without one. */
INLINE vec slope_of(vec logit, float inverse)
{
    vec t = logit * inverse;

    return inverse > 0 ? vec_max(1.0f - t * t, vec_set(0)) : vec_set(1);
}

/* The gradient of row i, which is not masked. The target's own entry is
 * computed separately, so that p - 1 is rounded only once. e: the exponentials
 * that the sum was made of, or NULL. */
INLINE void backward_row(enum plait_dtype type, const struct plait_xent *x,
                         size_t i, const float *e)
{
    void *logits = x->logits;
    size_t n = (size_t)x->count, at = i * x->stride;
    float max = x->max[i], sum = x->sum[i], scale = x->scale;
    float factor = scale / sum, kept = 0;
    float inverse = x->cap > 0 ? 1 / x->cap : 0;
    int64_t target = (int64_t)x->targets[i] - x->first;
    int own = target >= 0 && target < x->count;

    if (own)
        kept = load_one(type, logits, at + (size_t)target);
    for (size_t c = 0; c < n; c += VLEN) {
        size_t k = n - c < VLEN ? n - c : VLEN;
        vec y;

        if (e != NULL)
            y = vec_load(PLAIT_F32, e, c, k);
        else
            y = vec_exp(vec_load(type, logits, at + c, k) - max);
        if (inverse > 0)
            y *= slope_of(vec_load(type, logits, at + c, k), inverse);
        vec_store(type, logits, at + c, k, y * factor);
    }
    if (own)
        store_one(type, logits, at + (size_t)target,
                  (vec_exp(vec_set(kept - max))[0] / sum - 1) * scale *
                      slope_of(vec_set(kept), inverse)[0]);
    memset((char *)logits + (at + n) * plait_dtype_size(type), 0,
           (x->stride - n) * plait_dtype_size(type));
}

static void backward(const struct plait_xent *x, size_t i, const float *e)
{
    size_t bytes = x->stride * plait_dtype_size(x->type);

    if (x->targets[i] < 0)
        memset((char *)x->logits + i * bytes, 0, bytes);
    else if (x->type == PLAIT_F32)
        backward_row(PLAIT_F32, x, i, e);
    else if (x->type == PLAIT_BF16_T)
        backward_row(PLAIT_BF16_T, x, i, e);
    else
        backward_row(PLAIT_FP16_T, x, i, e);
}

static double loss_of(const struct plait_xent *x)
{
    double total = 0;

    for (size_t i = 0; i < x->N; i++)
        if (x->targets[i] >= 0)
            total += (double)x->max[i] + log(x->sum[i]) - x->target[i];
    return total;
}

static int xent_backward(struct plait_queue *q, const struct plait_xent *x)
{
    int threads = cpu_threads(q, x->N * x->stride);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < x->N; i++)
        backward(x, i, NULL);
    *x->loss += loss_of(x);
    return 0;
}

/* Row by row, so that a row's exponentials are computed once and are still in
 * the cache for its gradient. */
static int xent(struct plait_queue *q, const struct plait_xent *x)
{
    struct plait_xent all = *x;
    size_t width = ((size_t)x->count + 63) / 64 * 64;
    size_t threads = (size_t)cpu_threads(q, x->N * x->stride);
    float *rows = cpu_scratch(q, CPU_SCRATCH_OP,
                              (threads * width + 3 * x->N) * sizeof(*rows));

    if (rows == NULL)
        return -1;
    all.first = 0;
    all.max = rows + threads * width;
    all.sum = all.max + x->N;
    all.target = all.sum + x->N;
#pragma omp parallel for num_threads((int)threads) schedule(static)
    for (size_t i = 0; i < x->N; i++) {
        float *e = rows + (size_t)omp_get_thread_num() * width;

        token_stats(&all, i, e);
        backward(&all, i, e);
    }
    *x->loss += loss_of(&all);
    return 0;
}

void CPU_NAME(cpu_fill_xent)(struct plait_ops *ops)
{
    ops->xent_stats = xent_stats;
    ops->xent_rescale = xent_rescale;
    ops->xent_backward = xent_backward;
    ops->xent = xent;
}

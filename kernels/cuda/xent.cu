/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax cross-entropy over a vocabulary shard. One block has one row. */
#include <type_traits>

#include "kernels/cuda/common.cuh"
#include "kernels/xent.h"

static const unsigned threads = 512;

/* The larger one, or a NaN if there is one, so that it is not lost. */
static __device__ inline float larger(float a, float b)
{
    return a != a || a > b ? a : b;
}

/* The largest value so far and the sum of exp(x - max) (Milakov and
 * Gimelshein 2018): one pass over the logits. */
struct softmax {
    float max, sum;
};

static __device__ inline softmax softmax_add(softmax a, softmax b)
{
    float max = larger(a.max, b.max);
    softmax r = {max, 0};

    /* exp(-inf - -inf) would be NaN: an empty side has sum 0. */
    if (a.sum != 0)
        r.sum += a.sum * expf(a.max - max);
    if (b.sum != 0)
        r.sum += b.sum * expf(b.max - max);
    return r;
}

static __device__ inline softmax block_softmax(softmax s, softmax *shared)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 16; i > 0; i /= 2) {
            softmax other;

            other.max = __shfl_xor_sync(0xffffffff, s.max, i);
            other.sum = __shfl_xor_sync(0xffffffff, s.sum, i);
            s = softmax_add(s, other);
        }
        if (pass == 1)
            break;
        if (lane == 0)
            shared[warp] = s;
        __syncthreads();
        s = lane < (int)blockDim.x / 32 ? shared[lane]
                                        : softmax{-CUDART_INF_F, 0};
    }
    __syncthreads();
    return s;
}

/* The softmax of this thread's share of a row, several packs at a time: loads
 * do not wait for each other, and the sum is scaled once for all of them. */
template <typename T, int V, int packs>
static __device__ inline softmax thread_softmax(const T *row, int count)
{
    softmax s = {-CUDART_INF_F, 0};
    int whole = count / V * V, step = (int)blockDim.x * V;

    for (int c = (int)threadIdx.x * V; c < whole; c += packs * step) {
        alignas(16) T v[packs][V];
        float max = s.max, base;

#pragma unroll
        for (int p = 0; p < packs; p++)
            if (c + p * step < whole)
                copy_values<T, V>(v[p], row + c + p * step);
#pragma unroll
        for (int p = 0; p < packs; p++)
            for (int j = 0; j < V && c + p * step < whole; j++)
                max = fmaxf(max, to_float(v[p][j]));
        base = max == -CUDART_INF_F ? 0 : max;
        if (s.sum != 0)
            s.sum *= __expf(s.max - base);
#pragma unroll
        for (int p = 0; p < packs; p++)
            for (int j = 0; j < V && c + p * step < whole; j++)
                s.sum += __expf(to_float(v[p][j]) - base);
        s.max = max;
    }
    if (s.sum != s.sum) /* fmaxf() passes over a NaN */
        s.max = s.sum;
    for (int c = whole + threadIdx.x; c < count; c += blockDim.x)
        s = softmax_add(s, softmax{to_float(row[c]), 1});
    return s;
}

template <typename T, int V>
static __global__ void stats_kernel(struct plait_xent x)
{
    __shared__ softmax shared[32];
    size_t i = blockIdx.x;
    const T *row = (const T *)x.logits + i * x.stride;
    softmax s = block_softmax(thread_softmax<T, V, 4>(row, x.count), shared);

    if (threadIdx.x == 0) {
        int64_t at = (int64_t)x.targets[i] - x.first;

        x.max[i] = s.max;
        x.sum[i] = s.sum;
        x.target[i] = x.targets[i] >= 0 && at >= 0 && at < x.count
                          ? to_float(row[at])
                          : 0.0f;
    }
}

static int xent_stats(struct plait_queue *q, const struct plait_xent *x)
{
    return cuda_launch(q, "xent_stats", x->type, x->N, [&](auto zero) {
        typedef decltype(zero) T;

        for_width<T>(rows_aligned16<T>(x->logits, x->stride), [&](auto width) {
            stats_kernel<T, width.value>
                <<<(unsigned)x->N, threads, 0, q->stream>>>(*x);
        });
    });
}

static __global__ void rescale_kernel(float *sum, const float *max,
                                      const float *allmax, size_t N)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    /* A shard of padding only has max -inf and sum 0. */
    if (i < N && sum[i] != 0)
        sum[i] *= expf(max[i] - allmax[i]);
}

static int xent_rescale(struct plait_queue *q, const struct plait_xent *x,
                        const float *allmax)
{
    if (cuda_enter(q) != 0)
        return -1;
    if (x->N == 0)
        return 0;
    rescale_kernel<<<(unsigned)ceil_div(x->N, 256), 256, 0, q->stream>>>(
        x->sum, x->max, allmax, x->N);
    return cuda_leave(q, "xent_rescale");
}

/* Turns a row of logits into its gradient; hit: the column of the target, or a
 * number that no column has. The stride is a multiple of V. Goes backwards:
 * what was read last is most likely still in the cache. */
template <typename T, int V>
static __device__ inline void write_gradient(T *row, softmax s,
                                             const struct plait_xent &x,
                                             bool masked, int hit)
{
    int count = x.count;
    float scale = x.scale, inverse = masked ? 0 : 1 / s.sum;
    float factor = inverse * scale, uncap = x.cap > 0 ? 1 / x.cap : 0;
    auto slope = [&](float logit) {
        float t = logit * uncap;

        /* A capped logit may have been rounded up beyond the cap. */
        return uncap > 0 ? fmaxf(1 - t * t, 0) : 1.0f;
    };
    auto gradient = [&](float logit, int c) {
        if (masked || c >= count)
            return 0.0f;
        return slope(logit) *
               (c == hit ? (__expf(logit - s.max) * inverse - 1) * scale
                         : __expf(logit - s.max) * factor);
    };

    for (int c = (int)x.stride - V - (int)threadIdx.x * V; c >= 0;
         c -= (int)blockDim.x * V) {
        bool plain = !masked && c + V <= count && (unsigned)(hit - c) >= V;
        alignas(16) T v[V];

        copy_values<T, V>(v, row + c);
        for (int j = 0; j < V; j++) {
            float logit = to_float(v[j]);

            v[j] = from_float<T>(plain ? __expf(logit - s.max) * factor *
                                             slope(logit)
                                       : gradient(logit, c + j));
        }
        copy_values<T, V>(row + c, v);
    }
}

static __device__ inline double loss_of(softmax s, float target)
{
    return (double)s.max + log((double)s.sum) - target;
}

/* losses [N]: the loss of each row */
template <typename T, int V>
static __global__ void gradient_kernel(double *losses, struct plait_xent x)
{
    size_t i = blockIdx.x;
    bool masked = x.targets[i] < 0;
    softmax s = {x.max[i], x.sum[i]};

    write_gradient<T, V>((T *)x.logits + i * x.stride, s, x, masked,
                         masked ? -1 : x.targets[i] - x.first);
    if (threadIdx.x == 0)
        losses[i] = masked ? 0 : loss_of(s, x.target[i]);
}

/* *loss += the sum of the losses [N] that launch(T, V, losses) computes. V
 * values are moved at a time: 16 bytes if rows are aligned so, otherwise
 * one. */
template <typename F>
static int sum_losses(struct plait_queue *q, const char *op,
                      const struct plait_xent *x, F launch)
{
    double *losses;

    if (cuda_enter(q) != 0)
        return -1;
    if (x->N == 0)
        return 0;
    losses = (double *)cuda_scratch(q, x->N * sizeof(*losses));
    if (losses == NULL)
        return -1;
    for_type(x->type, [&](auto zero) {
        typedef decltype(zero) T;
        constexpr int V = pack<T>::n;

        /* The stride is then a multiple of V, too. */
        if (rows_aligned16<T>(x->logits, x->stride))
            launch(zero, std::integral_constant<int, V>(), losses);
        else
            launch(zero, std::integral_constant<int, 1>(), losses);
    });
    cuda_sum_doubles(q, x->loss, losses, x->N);
    return cuda_leave(q, op);
}

static int xent_backward(struct plait_queue *q, const struct plait_xent *x)
{
    return sum_losses(
        q, "xent_backward", x, [&](auto zero, auto width, double *losses) {
            gradient_kernel<decltype(zero), width()>
                <<<(unsigned)x->N, threads, 0, q->stream>>>(losses, *x);
        });
}

/* Two blocks per multiprocessor: the rows in progress should fit the L2 cache,
 * since they are read twice. */
static const unsigned whole_threads = 1024;

template <typename T, int V>
static __global__ void __launch_bounds__(whole_threads, 2)
    whole_kernel(double *losses, struct plait_xent x)
{
    __shared__ softmax shared[32];
    size_t i = blockIdx.x;
    int hit = x.targets[i];
    T *row = (T *)x.logits + i * x.stride;
    float target = hit >= 0 && hit < x.count ? to_float(row[hit]) : 0.0f;
    softmax s = block_softmax(thread_softmax<T, V, 2>(row, x.count), shared);

    write_gradient<T, V>(row, s, x, hit < 0, hit);
    if (threadIdx.x == 0)
        losses[i] = hit < 0 ? 0 : loss_of(s, target);
}

static int xent(struct plait_queue *q, const struct plait_xent *x)
{
    return sum_losses(q, "xent", x, [&](auto zero, auto width, double *losses) {
        whole_kernel<decltype(zero), width()>
            <<<(unsigned)x->N, whole_threads, 0, q->stream>>>(losses, *x);
    });
}

void cuda_xent_ops(struct plait_ops *ops)
{
    ops->xent_stats = xent_stats;
    ops->xent_rescale = xent_rescale;
    ops->xent_backward = xent_backward;
    ops->xent = xent;
}

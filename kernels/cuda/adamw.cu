/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/cuda/common.cuh"

struct adamw_step {
    float lr, beta1, beta2, eps, decay;
    float correct1, correct2; /* 1 / (1 - beta^t) */
    const float *grad_scale;
    uint64_t seed;
    const struct plait_adamw_now *now;
};

/* The random bits of element i: the same as in kernels/dtype.h, so that all
 * implementations round alike (splitmix64; Steele, Lea, Flood 2014). */
static __device__ inline uint32_t rounding_bits(uint64_t seed, uint64_t i)
{
    uint64_t z = (seed + i) * 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

/* Rounds up with the probability of the bits that are lost. */
template <typename T>
static __device__ inline T round_randomly(float x, uint32_t random);

template <> __device__ inline float round_randomly<float>(float x, uint32_t)
{
    return x;
}

template <>
__device__ inline bf16 round_randomly<bf16>(float x, uint32_t random)
{
    uint32_t u = __float_as_uint(x);

    if (!isfinite(x))
        return from_float<bf16>(x);
    return __ushort_as_bfloat16(
        (unsigned short)((u + (random & 0xffff)) >> 16));
}

template <>
__device__ inline fp16 round_randomly<fp16>(float x, uint32_t random)
{
    uint32_t u = __float_as_uint(x) & 0x7fffffff;
    float magnitude = __uint_as_float(u);
    fp16 h;

    if (!isfinite(x))
        return from_float<fp16>(x);
    /* Subnormal numbers are multiples of 2^-24. */
    if (magnitude < 6.103515625e-05f)
        h = __ushort_as_half(
            (unsigned short)(magnitude * 16777216.0f +
                             (float)(random & 0xffff) * 1.52587890625e-05f));
    else
        h = __float2half_rn(
            __uint_as_float((u + (random & 0x1fff)) & ~0x1fffu));
    return x < 0 ? __hneg(h) : h;
}

template <typename T, bool random>
static __global__ void adamw_kernel(struct adamw_step p, float *master,
                                    float *m, float *v, const float *grad,
                                    T *weight, bool packs, size_t n)
{
    float scale = p.grad_scale != NULL ? *p.grad_scale : 1;
    float lr = p.now != NULL ? p.now->lr : p.lr;
    float correct1 = p.now != NULL ? p.now->correct1 : p.correct1;
    float correct2 = p.now != NULL ? p.now->correct2 : p.correct2;
    uint64_t seed = p.seed + (p.now != NULL ? p.now->seed : 0);
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t step = (size_t)gridDim.x * blockDim.x;
    auto update = [&](size_t i, float &w, float &m1, float &v1, float g) {
        g *= scale;
        m1 = p.beta1 * m1 + (1 - p.beta1) * g;
        v1 = p.beta2 * v1 + (1 - p.beta2) * g * g;
        w -= lr *
             (m1 * correct1 / (sqrtf(v1 * correct2) + p.eps) + p.decay * w);
        return random ? round_randomly<T>(w, rounding_bits(seed, i))
                      : from_float<T>(w);
    };
    size_t packed = packs ? n / 4 * 4 : 0;

    if (!isfinite(scale))
        return;
    for (size_t i = first; i < packed / 4; i += step) {
        pack<float> w = load_pack(master + i * 4);
        pack<float> m4 = load_pack(m + i * 4), v4 = load_pack(v + i * 4);
        pack<float> g = load_pack(grad + i * 4);
        struct alignas(4 * sizeof(T)) {
            T v[4];
        } low;

        for (int j = 0; j < 4; j++)
            low.v[j] = update(i * 4 + j, w.v[j], m4.v[j], v4.v[j], g.v[j]);
        store_pack(master + i * 4, w);
        store_pack(m + i * 4, m4);
        store_pack(v + i * 4, v4);
        if (weight != NULL)
            *(decltype(low) *)(weight + i * 4) = low;
    }
    for (size_t i = packed + first; i < n; i += step) {
        T low = update(i, master[i], m[i], v[i], grad[i]);

        if (weight != NULL)
            weight[i] = low;
    }
}

static int adamw(struct plait_queue *q, const struct plait_adamw *p,
                 float *master, float *m, float *v, const float *grad,
                 enum plait_dtype type, void *weight, size_t n)
{
    const unsigned threads = 256;
    struct adamw_step s;

    if (cuda_enter(q) != 0)
        return -1;
    if (n == 0)
        return 0;
    s.lr = p->lr;
    s.beta1 = p->beta1;
    s.beta2 = p->beta2;
    s.eps = p->eps;
    s.decay = p->weight_decay;
    s.correct1 = (float)(1 / (1 - pow(p->beta1, (double)p->step)));
    s.correct2 = (float)(1 / (1 - pow(p->beta2, (double)p->step)));
    s.grad_scale = p->grad_scale;
    s.seed = p->seed;
    s.now = p->now;
    if (weight == master)
        weight = NULL;
    for_type(weight == NULL ? PLAIT_F32 : type, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = aligned16(master) && aligned16(m) && aligned16(v) &&
                     aligned16(grad) && aligned16(weight);
        unsigned blocks = grid_for(q, ceil_div(n, 4), threads);

        if (p->stochastic)
            adamw_kernel<T, true><<<blocks, threads, 0, q->stream>>>(
                s, master, m, v, grad, (T *)weight, packs, n);
        else
            adamw_kernel<T, false><<<blocks, threads, 0, q->stream>>>(
                s, master, m, v, grad, (T *)weight, packs, n);
    });
    return cuda_leave(q, "adamw");
}

void cuda_adamw_ops(struct plait_ops *ops)
{
    ops->adamw = adamw;
}

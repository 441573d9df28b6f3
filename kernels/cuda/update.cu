/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/cuda/common.cuh"

/* What a block steps, and how many runs one launch takes: a kernel's
 * parameters have 4 KiB. */
static const int adamw_threads = 256;
static const unsigned adamw_chunk = 8192;
static const int adamw_runs = 60;

struct adamw_step {
    struct {
        float *master, *m, *v;
        const float *grad;
        void *weight;
        size_t n;
        uint64_t first;
        float decay;
        unsigned block; /* the first of its blocks */
    } run[adamw_runs];
    int nruns;
    float lr, beta1, beta2, eps;
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

/* The run whose blocks have number `block` among them. */
static __device__ inline int run_of(const struct adamw_step &p, unsigned block)
{
    int low = 0, high = p.nruns - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;

        if (p.run[middle].block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static __device__ inline bool multiple(const void *p, size_t unit)
{
    return (uintptr_t)p % unit == 0;
}

/* Each block one chunk of one run. */
template <typename T, bool random>
static __global__ void adamw_kernel(struct adamw_step p)
{
    float scale = p.grad_scale != NULL ? *p.grad_scale : 1;
    float lr = p.now != NULL ? p.now->lr : p.lr;
    float correct1 = p.now != NULL ? p.now->correct1 : p.correct1;
    float correct2 = p.now != NULL ? p.now->correct2 : p.correct2;
    uint64_t seed = p.seed + (p.now != NULL ? p.now->seed : 0);
    int k = run_of(p, blockIdx.x);
    size_t at = (size_t)(blockIdx.x - p.run[k].block) * adamw_chunk;
    unsigned n = (unsigned)min(p.run[k].n - at, (size_t)adamw_chunk);
    float *master = p.run[k].master + at;
    float *m = p.run[k].m + at, *v = p.run[k].v + at;
    const float *grad = p.run[k].grad + at;
    T *weight = (T *)p.run[k].weight;
    float decay = p.run[k].decay;
    bool packs = multiple(master, 16) && multiple(m, 16) && multiple(v, 16) &&
                 multiple(grad, 16) && multiple(weight, 4 * sizeof(T));
    unsigned packed = packs ? n / 4 : 0;
    auto update = [&](unsigned i, float &w, float &m1, float &v1, float g) {
        g *= scale;
        m1 = p.beta1 * m1 + (1 - p.beta1) * g;
        v1 = p.beta2 * v1 + (1 - p.beta2) * g * g;
        w -= lr * (m1 * correct1 / (sqrtf(v1 * correct2) + p.eps) + decay * w);
        return random ? round_randomly<T>(w, rounding_bits(seed, i))
                      : from_float<T>(w);
    };

    if (!isfinite(scale))
        return;
    seed += p.run[k].first + at;
    if (weight != NULL)
        weight += at;
    for (unsigned i = threadIdx.x; i < packed; i += blockDim.x) {
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
    for (unsigned i = packed * 4 + threadIdx.x; i < n; i += blockDim.x) {
        T low = update(i, master[i], m[i], v[i], grad[i]);

        if (weight != NULL)
            weight[i] = low;
    }
}

static void describe(struct adamw_step *s, const struct plait_adamw *p)
{
    s->lr = p->lr;
    s->beta1 = p->beta1;
    s->beta2 = p->beta2;
    s->eps = p->eps;
    s->correct1 = (float)(1 / (1 - pow(p->beta1, (double)p->step)));
    s->correct2 = (float)(1 / (1 - pow(p->beta2, (double)p->step)));
    s->grad_scale = p->grad_scale;
    s->seed = p->seed;
    s->now = p->now;
}

/* The runs of one launch, from runs[0] on; how many it took. */
static int take_runs(struct adamw_step *s, const struct plait_adamw_run *runs,
                     int nruns, unsigned *blocks)
{
    int i;

    s->nruns = 0;
    *blocks = 0;
    for (i = 0; i < nruns && s->nruns < adamw_runs; i++) {
        const struct plait_adamw_run *r = &runs[i];
        auto &to = s->run[s->nruns];

        if (r->n == 0)
            continue;
        to.master = r->master;
        to.m = r->m;
        to.v = r->v;
        to.grad = r->grad;
        to.weight = r->weight == r->master ? NULL : r->weight;
        to.n = r->n;
        to.first = r->first;
        to.decay = r->weight_decay;
        to.block = *blocks;
        *blocks += (unsigned)ceil_div(r->n, adamw_chunk);
        s->nruns++;
    }
    return i;
}

static int adamw(struct plait_queue *q, const struct plait_adamw *p,
                 enum plait_dtype type, const struct plait_adamw_run *runs,
                 int nruns)
{
    struct adamw_step s;

    if (cuda_enter(q) != 0)
        return -1;
    describe(&s, p);
    for (int taken = 0; taken < nruns;) {
        unsigned blocks;

        taken += take_runs(&s, runs + taken, nruns - taken, &blocks);
        if (blocks == 0)
            continue;
        for_type(type, [&](auto zero) {
            typedef decltype(zero) T;

            if (p->stochastic)
                adamw_kernel<T, true>
                    <<<blocks, adamw_threads, 0, q->stream>>>(s);
            else
                adamw_kernel<T, false>
                    <<<blocks, adamw_threads, 0, q->stream>>>(s);
        });
    }
    return cuda_leave(q, "adamw");
}

void cuda_adamw_ops(struct plait_ops *ops)
{
    ops->adamw = adamw;
}

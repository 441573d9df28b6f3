/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_UPDATE_CUH
#define PLAIT_KERNELS_CUDA_UPDATE_CUH

#include <math.h>

#include "kernels/cuda/common.cuh"

/* Shared by all updates: the numbers of a step, the rules, and the rounding of
 * a weight. */

struct update_numbers {
    float mix, lr, beta1, beta2, eps, momentum;
    bool nesterov;
    float correct1, correct2; /* 1 / (1 - beta1^t), 1 / (1 - beta2^t) */
    const float *grad_scale;
    uint64_t seed;
    const struct plait_update_now *now;
};

/* The numbers of a step and of one run. */
struct rates {
    float mix, lr, beta1, beta2, eps, momentum;
    bool nesterov, has_state;
    float correct1, correct2, scale, decay, f;
};

/* Rounds away from zero with the probability that the dropped bits stand for,
 * of bf16; other types to nearest. */
template <typename T>
static __device__ inline T round_randomly(float x, uint32_t)
{
    return from_float<T>(x);
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

/* The run that block number `block` of the launch belongs to. */
template <typename S>
static __device__ inline int run_of(const S &p, unsigned block)
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

static __device__ inline struct rates rates_of(const struct update_numbers &p,
                                               float decay, const float *factor,
                                               bool has_state)
{
    struct rates s;

    s.lr = p.now != NULL ? p.now->lr : p.lr;
    s.mix = p.now != NULL ? p.now->mix : p.mix;
    s.correct1 = p.now != NULL ? p.now->correct1 : p.correct1;
    s.correct2 = p.now != NULL ? p.now->correct2 : p.correct2;
    s.beta1 = p.beta1;
    s.beta2 = p.beta2;
    s.eps = p.eps;
    s.momentum = p.momentum;
    s.nesterov = p.nesterov;
    s.has_state = has_state;
    s.scale = p.grad_scale != NULL ? *p.grad_scale : 1;
    s.decay = decay;
    s.f = factor != NULL ? *factor : 1;
    return s;
}

static __device__ inline uint64_t seed_of(const struct update_numbers &p)
{
    return p.seed + (p.now != NULL ? p.now->seed : 0);
}

static __device__ inline void step_moments(const struct rates &s, float &m,
                                           float &v, float g)
{
    g *= s.scale;
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
}

static __device__ inline float adam_direction(const struct rates &s, float w,
                                              float m, float v)
{
    return m * s.correct1 / (sqrtf(v * s.correct2) + s.eps) + s.decay * w;
}

/* What SGD and LARS subtract from w; d enters the momentum. */
static __device__ inline float step_momentum(const struct rates &s, float &m,
                                             float d)
{
    if (!s.has_state)
        return d;
    m = s.momentum * m + d;
    return s.nesterov ? d + s.momentum * m : m;
}

/* What the weight gets of a master: y of the rules that have one. */
template <int rule>
static __device__ inline float shown(const struct rates &s, float w, float m)
{
    if (rule == PLAIT_UPDATE_SCHEDULEFREE || rule == PLAIT_UPDATE_LEAD)
        return w + (1 - s.beta1) * m;
    return w;
}

static __device__ inline void step_average(const struct rates &s, float &x,
                                           float &lead, float &v, float g)
{
    float y = shown<PLAIT_UPDATE_LEAD>(s, x, lead), d;

    v = s.beta2 * v + (1 - s.beta2) * g * g;
    d = lead - s.lr * (g / (sqrtf(v * s.correct2) + s.eps) + s.decay * y);
    x += s.mix * d;
    lead = d - s.mix * d;
}

static __device__ inline float sign(float x)
{
    return x > 0 ? 1.0f : x < 0 ? -1.0f : x;
}

/* Updates one element; m and v are the states. */
template <int rule>
static __device__ inline void step_element(const struct rates &s, float &w,
                                           float &m, float &v, float g)
{
    float mixed;

    if (rule == PLAIT_UPDATE_ADAMW) {
        step_moments(s, m, v, g);
        w -= s.lr * adam_direction(s, w, m, v);
        return;
    }
    if (rule == PLAIT_UPDATE_LAMB) {
        w -= s.lr * s.f * adam_direction(s, w, m, v);
        return;
    }
    g *= s.scale;
    switch (rule) {
    case PLAIT_UPDATE_SCHEDULEFREE:
        step_average(s, w, m, v, g);
        break;
    case PLAIT_UPDATE_SGD:
        w -= s.lr * step_momentum(s, m, s.f * (g + s.decay * w));
        break;
    case PLAIT_UPDATE_LARS:
        w -= step_momentum(s, m, s.lr * (s.f * (g + s.decay * w)));
        break;
    case PLAIT_UPDATE_NOVOGRAD:
        m = s.beta1 * m + (s.f * g + s.decay * w);
        w -= s.lr * m;
        break;
    case PLAIT_UPDATE_LION:
        mixed = s.beta1 * m + (1 - s.beta1) * g;
        m = s.beta2 * m + (1 - s.beta2) * g;
        w -= s.lr * (sign(mixed) + s.decay * w);
        break;
    case PLAIT_UPDATE_DIRECTION:
        w -= s.lr * (s.f * g + s.decay * w);
        break;
    }
}

static inline void set_numbers(struct update_numbers *s,
                               const struct plait_update *p)
{
    s->lr = p->lr;
    s->mix = p->mix;
    s->beta1 = p->beta1;
    s->beta2 = p->beta2;
    s->eps = p->eps;
    s->momentum = p->momentum;
    s->nesterov = p->nesterov;
    s->correct1 = (float)(1 / (1 - pow(p->beta1, (double)p->step)));
    s->correct2 = (float)(1 / (1 - pow(p->beta2, (double)p->step)));
    s->grad_scale = p->grad_scale;
    s->seed = p->seed;
    s->now = p->now;
}

#endif

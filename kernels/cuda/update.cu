/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/cuda/update.cuh"
#include "kernels/rounding.h"

/* The number of elements that a block updates, and how many runs one launch
 * takes: a kernel's parameters are limited to 4 KiB. */
static const int update_threads = 256;
static const unsigned update_chunk = 8192;
static const int update_runs = 32;

struct update_step {
    struct {
        float *master;
        void *state[2];
        struct plait_origin origin;
        const float *grad;
        void *weight;
        size_t n;
        const float *factor;
        double *sums;
        float decay;
        unsigned block; /* number of its first block */
    } run[update_runs];
    int nruns;
    bool narrow; /* states are bf16 */
    bool random_weights, random_states;
    bool bare; /* some weights have no master */
    struct update_numbers numbers;
};

static __device__ inline bool multiple(const void *p, size_t unit)
{
    return (uintptr_t)p % unit == 0;
}

/* Which arrays a rule uses. */
template <int rule> struct uses {
    static const bool grad =
        rule != PLAIT_UPDATE_LAMB && rule != PLAIT_UPDATE_LEAD;
    static const bool second = rule == PLAIT_UPDATE_ADAMW ||
                               rule == PLAIT_UPDATE_LAMB ||
                               rule == PLAIT_UPDATE_SCHEDULEFREE;
    static const bool stores = rule != PLAIT_UPDATE_LAMB;
};

/* What a run has of some elements. */
template <int n> struct numbers {
    float w[n], m[n], v[n], g[n];
};

template <typename X, int n> struct alignas(n * sizeof(X)) some {
    X v[n];
};

template <typename X, int n>
static __device__ inline void load_some(float *x, const void *p, size_t i)
{
    some<X, n> of = *(const some<X, n> *)((const X *)p + i);

    for (int j = 0; j < n; j++)
        x[j] = to_float(of.v[j]);
}

template <typename X, int n>
static __device__ inline void store_some(void *p, size_t i, const float *x)
{
    some<X, n> of;

    for (int j = 0; j < n; j++)
        of.v[j] = from_float<X>(x[j]);
    *(some<X, n> *)((X *)p + i) = of;
}

/* A state, if there is one. */
template <int n>
static __device__ inline void load_state(float *x, const void *p, bool narrow,
                                         size_t i)
{
    if (p == NULL)
        for (int j = 0; j < n; j++)
            x[j] = 0;
    else if (narrow)
        load_some<bf16, n>(x, p, i);
    else
        load_some<float, n>(x, p, i);
}

template <int n>
static __device__ inline void store_state(void *p, bool narrow, size_t i,
                                          const float *x)
{
    if (p == NULL)
        return;
    if (narrow)
        store_some<bf16, n>(p, i, x);
    else
        store_some<float, n>(p, i, x);
}

/* at / columns; a GPU divides 64 bits by many instructions. */
static __device__ inline size_t row_of(size_t at, size_t columns)
{
    return (at | columns) >> 32 ? at / columns
                                : (uint32_t)at / (uint32_t)columns;
}

/* The words of elements i .. i + n - 1 of a run. Most of them lie in one
 * row. */
template <int n>
static __device__ inline void
rounding_words(struct plait_rounding_words *words, uint64_t seed,
               const struct plait_origin &o, size_t i)
{
    size_t at = o.first + i, r = row_of(at, o.columns);
    size_t column = at - r * o.columns;
    struct plait_rounding_row row = plait_rounding_row(seed, &o, r);

    for (int j = 0; j < n; j++, column++) {
        if (column == o.columns) {
            column = 0;
            row = plait_rounding_row(seed, &o, ++r);
        }
        words[j] = plait_rounding_words(&row, &o, column);
    }
}

/* x as bf16 keeps it. */
static __device__ inline float kept(float x, bool random, uint32_t word)
{
    return to_float(random ? round_randomly<bf16>(x, word)
                           : from_float<bf16>(x));
}

/* A run, for its elements from i on. plain: states are fp32, weights have
 * masters, and nothing is rounded stochastically. */
template <int rule, typename T, bool plain, int n>
static __device__ inline void step_some(const struct update_step &p, int k,
                                        const struct rates &s, size_t i)
{
    const auto &r = p.run[k];
    const bool narrow = !plain && p.narrow;
    struct plait_rounding_words words[n] = {};
    some<T, n> low;
    numbers<n> x = {};

    if (plain || r.master != NULL)
        load_some<float, n>(x.w, r.master, i);
    else
        load_some<T, n>(x.w, r.weight, i);
    if (uses<rule>::grad)
        load_some<float, n>(x.g, r.grad, i);
    load_state<n>(x.m, r.state[0], narrow, i);
    load_state<n>(x.v, uses<rule>::second ? r.state[1] : NULL, narrow, i);
    if (!plain && (p.random_states || p.random_weights))
        rounding_words<n>(words, seed_of(p.numbers), r.origin, i);
    for (int j = 0; j < n; j++) {
        step_element<rule>(s, x.w[j], x.m[j], x.v[j], x.g[j]);
        if (narrow && uses<rule>::stores) {
            x.m[j] = kept(x.m[j], p.random_states, words[j].states);
            x.v[j] = kept(x.v[j], p.random_states, words[j].states >> 16);
        }
        float w = shown<rule>(s, x.w[j], x.m[j]);
        low.v[j] = !plain && p.random_weights
                       ? round_randomly<T>(w, words[j].weight)
                       : from_float<T>(w);
    }
    if (plain || r.master != NULL)
        store_some<float, n>(r.master, i, x.w);
    if (uses<rule>::stores) {
        store_state<n>(r.state[0], narrow, i, x.m);
        store_state<n>(uses<rule>::second ? r.state[1] : NULL, narrow, i, x.v);
    }
    if (r.weight != NULL)
        *(some<T, n> *)((T *)r.weight + i) = low;
}

/* Each block updates one chunk of one run. */
template <int rule, typename T, bool plain>
static __global__ void update_kernel(struct update_step p)
{
    int k = run_of(p, blockIdx.x);
    const auto &r = p.run[k];
    struct rates s = rates_of(p.numbers, r.decay, r.factor, r.state[0] != NULL);
    size_t at = (size_t)(blockIdx.x - r.block) * update_chunk;
    unsigned n = (unsigned)min(r.n - at, (size_t)update_chunk);
    size_t state = !plain && p.narrow ? sizeof(bf16) : sizeof(float);

    if (!isfinite(s.scale))
        return;

    /* Chunks begin at multiples of all alignments. */
    bool packs = multiple(r.master, 16) && multiple(r.state[0], 4 * state) &&
                 (!uses<rule>::second || multiple(r.state[1], 4 * state)) &&
                 multiple(r.grad, 16) && multiple(r.weight, 4 * sizeof(T));
    unsigned packed = packs ? n / 4 : 0;

    for (unsigned i = threadIdx.x; i < packed; i += blockDim.x)
        step_some<rule, T, plain, 4>(p, k, s, at + i * 4);
    for (unsigned i = packed * 4 + threadIdx.x; i < n; i += blockDim.x)
        step_some<rule, T, plain, 1>(p, k, s, at + i);
}

static void begin_step(struct update_step *s, const struct plait_update *p)
{
    set_numbers(&s->numbers, p);
    s->narrow = p->states == PLAIT_BF16_T;
    s->random_weights = p->random_weights && p->type == PLAIT_BF16_T;
    s->random_states = p->random_states && s->narrow;
    s->bare = false;
}

/* Fills in the runs of one launch, from runs[0] on; returns how many it
 * took. */
static int take_runs(struct update_step *s, const struct plait_update_run *runs,
                     int nruns, unsigned *blocks)
{
    int i;

    s->nruns = 0;
    *blocks = 0;
    for (i = 0; i < nruns && s->nruns < update_runs; i++) {
        const struct plait_update_run *r = &runs[i];
        auto &to = s->run[s->nruns];

        if (r->n == 0)
            continue;
        to.master = r->master;
        s->bare |= r->master == NULL;
        to.state[0] = r->state[0];
        to.state[1] = r->state[1];
        to.origin = r->origin;
        to.grad = r->grad;
        to.weight = r->weight == r->master ? NULL : r->weight;
        to.n = r->n;
        to.factor = r->factor;
        to.sums = r->sums;
        to.decay = r->weight_decay;
        to.block = *blocks;
        *blocks += (unsigned)ceil_div(r->n, update_chunk);
        s->nruns++;
    }
    return i;
}

template <int rule>
static void launch(struct plait_queue *q, const struct plait_update *p,
                   const struct update_step &s, unsigned blocks)
{
    for_type(p->type, [&](auto zero) {
        typedef decltype(zero) T;

        if (s.narrow || s.random_weights || s.bare)
            update_kernel<rule, T, false>
                <<<blocks, update_threads, 0, q->stream>>>(s);
        else
            update_kernel<rule, T, true>
                <<<blocks, update_threads, 0, q->stream>>>(s);
    });
}

static void launch_rule(struct plait_queue *q, const struct plait_update *p,
                        const struct update_step &s, unsigned blocks)
{
    switch (p->rule) {
    case PLAIT_UPDATE_SGD:
        launch<PLAIT_UPDATE_SGD>(q, p, s, blocks);
        break;
    case PLAIT_UPDATE_LARS:
        launch<PLAIT_UPDATE_LARS>(q, p, s, blocks);
        break;
    case PLAIT_UPDATE_NOVOGRAD:
        launch<PLAIT_UPDATE_NOVOGRAD>(q, p, s, blocks);
        break;
    case PLAIT_UPDATE_ADAMW:
        launch<PLAIT_UPDATE_ADAMW>(q, p, s, blocks);
        break;
    case PLAIT_UPDATE_LAMB:
        launch<PLAIT_UPDATE_LAMB>(q, p, s, blocks);
        break;
    case PLAIT_UPDATE_LION:
        launch<PLAIT_UPDATE_LION>(q, p, s, blocks);
        break;
    case PLAIT_UPDATE_SCHEDULEFREE:
        launch<PLAIT_UPDATE_SCHEDULEFREE>(q, p, s, blocks);
        break;
    case PLAIT_UPDATE_LEAD:
        launch<PLAIT_UPDATE_LEAD>(q, p, s, blocks);
        break;
    case PLAIT_UPDATE_DIRECTION:
        launch<PLAIT_UPDATE_DIRECTION>(q, p, s, blocks);
        break;
    }
}

static int update(struct plait_queue *q, const struct plait_update *p,
                  const struct plait_update_run *runs, int nruns)
{
    struct update_step s;

    if (cuda_enter(q) != 0)
        return -1;
    begin_step(&s, p);
    for (int taken = 0; taken < nruns;) {
        unsigned blocks;

        taken += take_runs(&s, runs + taken, nruns - taken, &blocks);
        if (blocks > 0)
            launch_rule(q, p, s, blocks);
    }
    return cuda_leave(q, "update");
}

/* -- sums ---------------------------------------------------------------- */

/* The weight of an element; only bf16 has no master. */
template <typename R>
static __device__ inline float weight_of(const R &r, size_t i)
{
    return r.master != NULL ? r.master[i]
                            : to_float(((const bf16 *)r.weight)[i]);
}

/* Steps the moments of an element, and returns LAMB's direction. */
static __device__ inline float lamb_direction(const struct update_step &p,
                                              int k, const struct rates &s,
                                              float w, size_t i)
{
    const auto &r = p.run[k];
    struct plait_rounding_words words = {};
    float m, v, u;

    load_state<1>(&m, r.state[0], p.narrow, i);
    load_state<1>(&v, r.state[1], p.narrow, i);
    step_moments(s, m, v, r.grad[i]);
    u = adam_direction(s, w, m, v);
    if (p.random_states)
        rounding_words<1>(&words, seed_of(p.numbers), r.origin, i);
    if (p.narrow) {
        m = kept(m, p.random_states, words.states);
        v = kept(v, p.random_states, words.states >> 16);
    }
    store_state<1>(r.state[0], p.narrow, i, &m);
    store_state<1>(r.state[1], p.narrow, i, &v);
    return u;
}

/* part[blocks][2]: the sums of |w|^2 and |x|^2; each block has one chunk of one
 * run. */
template <bool lamb>
static __global__ void sums_kernel(double *part, struct update_step p)
{
    __shared__ double shared[32];
    int k = run_of(p, blockIdx.x);
    const auto &r = p.run[k];
    struct rates s = rates_of(p.numbers, r.decay, r.factor, r.state[0] != NULL);
    size_t at = (size_t)(blockIdx.x - r.block) * update_chunk;
    unsigned n = (unsigned)min(r.n - at, (size_t)update_chunk);
    double ww = 0, xx = 0;

    if (!isfinite(s.scale))
        n = 0;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        float w = weight_of(r, at + i);
        float x = lamb ? lamb_direction(p, k, s, w, at + i) : r.grad[at + i];

        ww += (double)w * w;
        xx += (double)x * x;
    }
    ww = block_sum(ww, shared);
    xx = block_sum(xx, shared);
    if (threadIdx.x == 0) {
        part[2 * blockIdx.x] = ww;
        part[2 * blockIdx.x + 1] = xx;
    }
}

/* Each block adds up the parts of one run. */
static __global__ void add_parts_kernel(const double *part,
                                        struct update_step p)
{
    __shared__ double shared[32];
    size_t blocks = (p.run[blockIdx.x].n + update_chunk - 1) / update_chunk;
    double ww = 0, xx = 0;

    part += 2 * (size_t)p.run[blockIdx.x].block;
    for (size_t i = threadIdx.x; i < blocks; i += blockDim.x) {
        ww += part[2 * i];
        xx += part[2 * i + 1];
    }
    ww = block_sum(ww, shared);
    xx = block_sum(xx, shared);
    if (threadIdx.x == 0) {
        p.run[blockIdx.x].sums[0] += ww;
        p.run[blockIdx.x].sums[1] += xx;
    }
}

/* Blocks of all runs; no launch has more. */
static size_t most_blocks(const struct plait_update_run *runs, int nruns)
{
    size_t most = 0;

    for (int i = 0; i < nruns; i++)
        most += ceil_div(runs[i].n, update_chunk);
    return most;
}

static int update_sums(struct plait_queue *q, const struct plait_update *p,
                       const struct plait_update_run *runs, int nruns)
{
    size_t bytes = 2 * most_blocks(runs, nruns) * sizeof(double);
    struct update_step s;
    double *part;

    if (cuda_enter(q) != 0)
        return -1;
    part = (double *)cuda_scratch(q, bytes);
    if (part == NULL)
        return -1;
    begin_step(&s, p);
    for (int taken = 0; taken < nruns;) {
        unsigned blocks;

        taken += take_runs(&s, runs + taken, nruns - taken, &blocks);
        if (blocks == 0)
            continue;
        if (p->rule == PLAIT_UPDATE_LAMB)
            sums_kernel<true>
                <<<blocks, update_threads, 0, q->stream>>>(part, s);
        else
            sums_kernel<false>
                <<<blocks, update_threads, 0, q->stream>>>(part, s);
        add_parts_kernel<<<s.nruns, update_threads, 0, q->stream>>>(part, s);
    }
    return cuda_leave(q, "update_sums");
}

void cuda_update_ops(struct plait_ops *ops)
{
    ops->update = update;
    ops->update_sums = update_sums;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/cuda/update.cuh"

/* The number of elements that a block updates, and how many runs one launch
 * takes: a kernel's parameters are limited to 4 KiB. */
static const int update_threads = 256;
static const unsigned update_chunk = 8192;
static const int update_runs = 48;

struct update_step {
    struct {
        float *master;
        float *state[2];
        const float *grad;
        void *weight;
        size_t n;
        uint64_t first;
        const float *factor;
        double *sums;
        float decay;
        unsigned block; /* number of its first block */
    } run[update_runs];
    int nruns;
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

/* Four elements of a state, if there is one. */
static __device__ inline pack<float> load_state(const float *p, unsigned i)
{
    pack<float> zero = {};

    return p != NULL ? load_pack(p + i) : zero;
}

/* Each block updates one chunk of one run. */
template <int rule, typename T, bool random>
static __global__ void update_kernel(struct update_step p)
{
    int k = run_of(p, blockIdx.x);
    struct rates s = rates_of(p.numbers, p.run[k].decay, p.run[k].factor,
                              p.run[k].state[0] != NULL);
    uint64_t seed = seed_of(p.numbers);
    size_t at = (size_t)(blockIdx.x - p.run[k].block) * update_chunk;
    unsigned n = (unsigned)min(p.run[k].n - at, (size_t)update_chunk);
    float *master = p.run[k].master + at;
    float *m = p.run[k].state[0], *v = p.run[k].state[1];
    const float *grad = p.run[k].grad + at;
    T *weight = p.run[k].weight != NULL ? (T *)p.run[k].weight + at : NULL;
    auto low = [&](unsigned i, float w) {
        return random ? round_randomly<T>(w, rounding_bits(seed, i))
                      : from_float<T>(w);
    };

    if (!isfinite(s.scale))
        return;
    seed += p.run[k].first + at;
    m = m != NULL ? m + at : NULL;
    v = uses<rule>::second ? v + at : NULL;

    bool packs = multiple(master, 16) && multiple(m, 16) && multiple(v, 16) &&
                 multiple(grad, 16) && multiple(weight, 4 * sizeof(T));
    unsigned packed = packs ? n / 4 : 0;

    for (unsigned i = threadIdx.x; i < packed; i += blockDim.x) {
        pack<float> w = load_pack(master + i * 4), g = {};
        pack<float> m4 = load_state(m, i * 4), v4 = load_state(v, i * 4);
        struct alignas(4 * sizeof(T)) {
            T v[4];
        } narrow;

        if (uses<rule>::grad)
            g = load_pack(grad + i * 4);
        for (int j = 0; j < 4; j++) {
            step_element<rule>(s, w.v[j], m4.v[j], v4.v[j], g.v[j]);
            narrow.v[j] = low(i * 4 + j, shown<rule>(s, w.v[j], m4.v[j]));
        }
        store_pack(master + i * 4, w);
        if (uses<rule>::stores && m != NULL)
            store_pack(m + i * 4, m4);
        if (uses<rule>::stores && v != NULL)
            store_pack(v + i * 4, v4);
        if (weight != NULL)
            *(decltype(narrow) *)(weight + i * 4) = narrow;
    }
    for (unsigned i = packed * 4 + threadIdx.x; i < n; i += blockDim.x) {
        float none = 0;

        step_element<rule>(s, master[i], m != NULL ? m[i] : none,
                           v != NULL ? v[i] : none,
                           uses<rule>::grad ? grad[i] : 0);
        if (weight != NULL)
            weight[i] =
                low(i, shown<rule>(s, master[i], m != NULL ? m[i] : none));
    }
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
        to.state[0] = r->state[0];
        to.state[1] = r->state[1];
        to.grad = r->grad;
        to.weight = r->weight == r->master ? NULL : r->weight;
        to.n = r->n;
        to.first = r->first;
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

        if (p->stochastic)
            update_kernel<rule, T, true>
                <<<blocks, update_threads, 0, q->stream>>>(s);
        else
            update_kernel<rule, T, false>
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
    set_numbers(&s.numbers, p);
    for (int taken = 0; taken < nruns;) {
        unsigned blocks;

        taken += take_runs(&s, runs + taken, nruns - taken, &blocks);
        if (blocks > 0)
            launch_rule(q, p, s, blocks);
    }
    return cuda_leave(q, "update");
}

/* -- sums ---------------------------------------------------------------- */

/* part[blocks][2]: the sums of |w|^2 and |x|^2; each block has one chunk of one
 * run. */
template <bool lamb>
static __global__ void sums_kernel(double *part, struct update_step p)
{
    __shared__ double shared[32];
    int k = run_of(p, blockIdx.x);
    struct rates s = rates_of(p.numbers, p.run[k].decay, p.run[k].factor,
                              p.run[k].state[0] != NULL);
    size_t at = (size_t)(blockIdx.x - p.run[k].block) * update_chunk;
    unsigned n = (unsigned)min(p.run[k].n - at, (size_t)update_chunk);
    const float *master = p.run[k].master + at, *grad = p.run[k].grad + at;
    float *m = lamb ? p.run[k].state[0] + at : NULL;
    float *v = lamb ? p.run[k].state[1] + at : NULL;
    double ww = 0, xx = 0;

    if (!isfinite(s.scale))
        n = 0;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        float w = master[i], x = grad[i];

        if (lamb) {
            step_moments(s, m[i], v[i], x);
            x = adam_direction(s, w, m[i], v[i]);
        }
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
    set_numbers(&s.numbers, p);
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

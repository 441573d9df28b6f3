/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/cuda/update.cuh"
#include "kernels/dynamic_map.h"

/* AdamW with 8-bit states. */

static const int update8_runs = 48;

struct update8_step {
    struct {
        float *master;
        uint8_t *code[2];
        float *scale[2];
        const float *grad;
        void *weight;
        size_t n;
        float decay;
        unsigned block; /* number of its first block */
    } run[update8_runs];
    int nruns;
    struct update_numbers numbers;
};

/* The largest x in a block of PLAIT_MAP_BLOCK threads, returned to all of
 * them. */
static __device__ inline float block_largest(float x, float *shared)
{
    for (int i = 16; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = shared[0];
    for (int i = 1; i < PLAIT_MAP_BLOCK / 32; i++)
        x = fmaxf(x, shared[i]);
    __syncthreads();
    return x;
}

/* Each block updates one block of PLAIT_MAP_BLOCK elements, one per thread. */
template <typename T>
static __global__ void update8_kernel(struct update8_step p)
{
    __shared__ float shared[PLAIT_MAP_BLOCK / 32];
    int k = run_of(p, blockIdx.x);
    const auto &r = p.run[k];
    struct rates s = rates_of(p.numbers, r.decay, NULL, true);
    size_t block = blockIdx.x - r.block;
    size_t i = block * PLAIT_MAP_BLOCK + threadIdx.x;
    bool inside = i < r.n;
    float m = 0, v = 0, w;

    if (!isfinite(s.scale))
        return;
    if (inside) {
        m = plait_map_decode(r.code[0][i], 1) * r.scale[0][block];
        v = plait_map_decode(r.code[1][i], 0) * r.scale[1][block];
        w = r.master[i];
        step_element<PLAIT_UPDATE_ADAMW>(s, w, m, v, r.grad[i]);
        r.master[i] = w;
        if (r.weight != NULL)
            ((T *)r.weight)[i] = from_float<T>(w);
    }

    float high = block_largest(m, shared), low = -block_largest(-m, shared);
    float scale0 = plait_map_scale(low, high);
    float scale1 = block_largest(v, shared);

    if (inside) {
        r.code[0][i] = plait_map_encode(m, plait_map_inverse(scale0), 1);
        r.code[1][i] = plait_map_encode(v, plait_map_inverse(scale1), 0);
    }
    if (threadIdx.x == 0) {
        r.scale[0][block] = scale0;
        r.scale[1][block] = scale1;
    }
}

/* Fills in the runs of one launch, from runs[0] on; returns how many it
 * took. */
static int take_runs8(struct update8_step *s,
                      const struct plait_update8_run *runs, int nruns,
                      unsigned *blocks)
{
    int i;

    s->nruns = 0;
    *blocks = 0;
    for (i = 0; i < nruns && s->nruns < update8_runs; i++) {
        const struct plait_update8_run *r = &runs[i];
        auto &to = s->run[s->nruns];

        if (r->n == 0)
            continue;
        to.master = r->master;
        for (int k = 0; k < 2; k++) {
            to.code[k] = r->code[k];
            to.scale[k] = r->scale[k];
        }
        to.grad = r->grad;
        to.weight = r->weight == r->master ? NULL : r->weight;
        to.n = r->n;
        to.decay = r->weight_decay;
        to.block = *blocks;
        *blocks += (unsigned)ceil_div(r->n, PLAIT_MAP_BLOCK);
        s->nruns++;
    }
    return i;
}

static int update8(struct plait_queue *q, const struct plait_update *p,
                   const struct plait_update8_run *runs, int nruns)
{
    struct update8_step s;

    if (cuda_enter(q) != 0)
        return -1;
    set_numbers(&s.numbers, p);
    for (int taken = 0; taken < nruns;) {
        unsigned blocks;

        taken += take_runs8(&s, runs + taken, nruns - taken, &blocks);
        if (blocks == 0)
            continue;
        for_type(p->type, [&](auto zero) {
            typedef decltype(zero) T;

            update8_kernel<T><<<blocks, PLAIT_MAP_BLOCK, 0, q->stream>>>(s);
        });
    }
    return cuda_leave(q, "update8");
}

void cuda_update8_ops(struct plait_ops *ops)
{
    ops->update8 = update8;
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_UPDATE_H
#define PLAIT_KERNELS_CPU_UPDATE_H

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* Shared by all updates: the numbers of a step, and the storing of a weight. */

struct cpu_step {
    const struct plait_update *p;
    float mix, scale, lr, correct1, correct2; /* 1 / (1 - beta1^t), and the root
                                               * of 1 / (1 - beta2^t) */
    uint64_t seed;
};

static inline struct cpu_step step_of(const struct plait_update *p)
{
    double t = (double)p->step;
    struct cpu_step s = {
        .p = p,
        .scale = p->grad_scale != NULL ? *p->grad_scale : 1,
        .lr = p->lr,
        .mix = p->mix,
        .correct1 = (float)(1 / (1 - pow(p->beta1, t))),
        .correct2 = (float)sqrt(1 / (1 - pow(p->beta2, t))),
        .seed = p->seed,
    };

    if (p->now != NULL) {
        s.lr = p->now->lr;
        s.mix = p->now->mix;
        s.correct1 = p->now->correct1;
        s.correct2 = sqrtf(p->now->correct2);
        s.seed += p->now->seed;
    }
    return s;
}

/* Stores elements i .. i+n-1 of a run's weights. They are read next in the
 * following forward: streaming stores keep them from evicting what the step
 * still needs from the caches. */
INLINE void store_weight(enum plait_dtype type, void *weight, size_t i,
                         size_t n, vec x)
{
#if defined(__AVX512BF16__)
    uint16_t *to = (uint16_t *)weight + i;

    if (type == PLAIT_BF16_T && n == VLEN && (uintptr_t)to % 32 == 0) {
        _mm256_stream_si256((__m256i *)(void *)to, (__m256i)vec_to_bf16(x));
        return;
    }
#endif
    vec_store(type, weight, i, n, x);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* Fixed blocks, each summed apart and added in order: the same bits from
 * any number of threads. */
#define BLOCK 65536

static double block_squares(const float *x, size_t n)
{
    double sums[VLEN] = {0}, total = 0;
    size_t i = 0;

    for (; i + VLEN <= n; i += VLEN)
        for (size_t k = 0; k < VLEN; k++)
            sums[k] += (double)x[i + k] * x[i + k];
    for (; i < n; i++)
        total += (double)x[i] * x[i];
    for (size_t k = 0; k < VLEN; k++)
        total += sums[k];
    return total;
}

static int sum_squares(struct plait_queue *q, double *result, const float *x,
                       size_t n)
{
    size_t blocks = (n + BLOCK - 1) / BLOCK;
    double *sums = cpu_scratch(q, CPU_SCRATCH_OP, blocks * sizeof(double));
    double total = 0;

    if (sums == NULL)
        return -1;
#pragma omp parallel for num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t b = 0; b < blocks; b++) {
        size_t left = n - b * BLOCK;

        sums[b] = block_squares(x + b * BLOCK, left < BLOCK ? left : BLOCK);
    }
    for (size_t b = 0; b < blocks; b++)
        total += sums[b];
    *result += total;
    return 0;
}

struct step {
    const struct plait_adamw *p;
    float scale, lr, correct1, correct2; /* 1 / (1 - beta^t), and its root */
    uint64_t seed;
    float *master, *m, *v;
    const float *grad;
    void *weight;
};

static void store_random(enum plait_dtype type, void *weight, size_t i,
                         size_t n, vec x, uint64_t seed)
{
    uint16_t *h = (uint16_t *)weight + i;

    for (size_t k = 0; k < n; k++) {
        uint32_t random = plait_rounding_bits(seed, i + k);

        h[k] = type == PLAIT_BF16_T ? plait_bf16_of_f32_random(x[k], random)
                                    : plait_fp16_of_f32_random(x[k], random);
    }
}

INLINE void update(enum plait_dtype type, const struct step *s, size_t i,
                   size_t n)
{
    const struct plait_adamw *p = s->p;
    vec g = vec_load(PLAIT_F32, s->grad, i, n) * s->scale;
    vec m = vec_load(PLAIT_F32, s->m, i, n);
    vec v = vec_load(PLAIT_F32, s->v, i, n);
    vec w = vec_load(PLAIT_F32, s->master, i, n);

    m = p->beta1 * m + (1 - p->beta1) * g;
    v = p->beta2 * v + (1 - p->beta2) * g * g;
    w -= s->lr * (m * s->correct1 / (vec_sqrt(v) * s->correct2 + p->eps) +
                  p->weight_decay * w);
    vec_store(PLAIT_F32, s->m, i, n, m);
    vec_store(PLAIT_F32, s->v, i, n, v);
    vec_store(PLAIT_F32, s->master, i, n, w);
    if (s->weight == NULL)
        return;
    if (p->stochastic && type != PLAIT_F32)
        store_random(type, s->weight, i, n, w, s->seed);
    else
        vec_store(type, s->weight, i, n, w);
}

INLINE void update_span(enum plait_dtype type, const struct step *s, size_t i,
                        size_t end)
{
    for (; i + VLEN <= end; i += VLEN)
        update(type, s, i, VLEN);
    if (i < end)
        update(type, s, i, end - i);
}

static int adamw(struct plait_queue *q, const struct plait_adamw *p,
                 float *master, float *m, float *v, const float *grad,
                 enum plait_dtype type, void *weight, size_t n)
{
    double t = (double)p->step;
    struct step s = {
        .p = p,
        .scale = p->grad_scale != NULL ? *p->grad_scale : 1,
        .lr = p->lr,
        .correct1 = (float)(1 / (1 - pow(p->beta1, t))),
        .correct2 = (float)sqrt(1 / (1 - pow(p->beta2, t))),
        .master = master,
        .m = m,
        .v = v,
        .grad = grad,
        .weight = weight == master ? NULL : weight,
        .seed = p->seed,
    };

    if (p->now != NULL) {
        s.lr = p->now->lr;
        s.correct1 = p->now->correct1;
        s.correct2 = sqrtf(p->now->correct2);
        s.seed += p->now->seed;
    }
    if (!isfinite(s.scale))
        return 0;
#pragma omp parallel num_threads(cpu_threads(q, n))
    {
        size_t i, end;

        cpu_span(n, omp_get_num_threads(), omp_get_thread_num(), &i, &end);
        if (type == PLAIT_F32)
            update_span(PLAIT_F32, &s, i, end);
        else if (type == PLAIT_BF16_T)
            update_span(PLAIT_BF16_T, &s, i, end);
        else
            update_span(PLAIT_FP16_T, &s, i, end);
    }
    return 0;
}

void CPU_NAME(cpu_fill_optim)(struct plait_ops *ops)
{
    ops->sum_squares = sum_squares;
    ops->adamw = adamw;
}

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

/* The blocks of a list; its last one is shorter. */
static size_t blocks_of(size_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

/* Sums of blocks b .. end-1 of all lists, one list behind the other. */
static void sum_blocks(double *sums, const struct plait_floats *l, size_t b,
                       size_t end)
{
    for (size_t first = 0; first < end; first += blocks_of(l->n), l++)
        for (; b < end && b < first + blocks_of(l->n); b++) {
            size_t at = (b - first) * BLOCK, left = l->n - at;

            sums[b] = block_squares(l->x + at, left < BLOCK ? left : BLOCK);
        }
}

static int sum_squares(struct plait_queue *q, double *result,
                       const struct plait_floats *lists, int n)
{
    size_t blocks = 0;
    double *sums, total = 0;

    for (int i = 0; i < n; i++)
        blocks += blocks_of(lists[i].n);
    sums = cpu_scratch(q, CPU_SCRATCH_OP, blocks * sizeof(double));
    if (sums == NULL)
        return -1;
#pragma omp parallel num_threads(blocks > 1 ? q->dev->threads : 1)
    {
        size_t threads = (size_t)omp_get_num_threads();
        size_t t = (size_t)omp_get_thread_num();

        sum_blocks(sums, lists, blocks * t / threads,
                   blocks * (t + 1) / threads);
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
};

static struct step step_of(const struct plait_adamw *p)
{
    double t = (double)p->step;
    struct step s = {
        .p = p,
        .scale = p->grad_scale != NULL ? *p->grad_scale : 1,
        .lr = p->lr,
        .correct1 = (float)(1 / (1 - pow(p->beta1, t))),
        .correct2 = (float)sqrt(1 / (1 - pow(p->beta2, t))),
        .seed = p->seed,
    };

    if (p->now != NULL) {
        s.lr = p->now->lr;
        s.correct1 = p->now->correct1;
        s.correct2 = sqrtf(p->now->correct2);
        s.seed += p->now->seed;
    }
    return s;
}

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

/* To be read by the next forward alone: past the caches where it can be. */
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

INLINE void update(enum plait_dtype type, const struct step *s,
                   const struct plait_adamw_run *r, size_t i, size_t n)
{
    const struct plait_adamw *p = s->p;
    vec g = vec_load(PLAIT_F32, r->grad, i, n) * s->scale;
    vec m = vec_load(PLAIT_F32, r->m, i, n);
    vec v = vec_load(PLAIT_F32, r->v, i, n);
    vec w = vec_load(PLAIT_F32, r->master, i, n);

    m = p->beta1 * m + (1 - p->beta1) * g;
    v = p->beta2 * v + (1 - p->beta2) * g * g;
    w -= s->lr * (m * s->correct1 / (vec_sqrt(v) * s->correct2 + p->eps) +
                  r->weight_decay * w);
    vec_store(PLAIT_F32, r->m, i, n, m);
    vec_store(PLAIT_F32, r->v, i, n, v);
    vec_store(PLAIT_F32, r->master, i, n, w);
    if (r->weight == NULL || r->weight == r->master)
        return;
    if (p->stochastic && type != PLAIT_F32)
        store_random(type, r->weight, i, n, w, s->seed + r->first);
    else
        store_weight(type, r->weight, i, n, w);
}

INLINE void update_span(enum plait_dtype type, const struct step *s,
                        const struct plait_adamw_run *r, size_t i, size_t end)
{
    for (; i + VLEN <= end; i += VLEN)
        update(type, s, r, i, VLEN);
    if (i < end)
        update(type, s, r, i, end - i);
}

/* Elements i .. end-1 of all runs, one run behind the other. */
static void update_runs(enum plait_dtype type, const struct step *s,
                        const struct plait_adamw_run *r, size_t i, size_t end)
{
    for (size_t first = 0; first < end; first += r->n, r++) {
        size_t from = i > first ? i - first : 0;
        size_t to = end - first < r->n ? end - first : r->n;

        if (from >= to)
            continue;
        if (type == PLAIT_F32)
            update_span(PLAIT_F32, s, r, from, to);
        else if (type == PLAIT_BF16_T)
            update_span(PLAIT_BF16_T, s, r, from, to);
        else
            update_span(PLAIT_FP16_T, s, r, from, to);
    }
#if defined(__AVX512BF16__)
    _mm_sfence();
#endif
}

static int adamw(struct plait_queue *q, const struct plait_adamw *p,
                 enum plait_dtype type, const struct plait_adamw_run *runs,
                 int nruns)
{
    struct step s = step_of(p);
    size_t n = 0;

    if (!isfinite(s.scale))
        return 0;
    for (int i = 0; i < nruns; i++)
        n += runs[i].n;
#pragma omp parallel num_threads(cpu_threads(q, n))
    {
        size_t i, end;

        cpu_span(n, omp_get_num_threads(), omp_get_thread_num(), &i, &end);
        update_runs(type, &s, runs, i, end);
    }
    return 0;
}

void CPU_NAME(cpu_fill_optim)(struct plait_ops *ops)
{
    ops->sum_squares = sum_squares;
    ops->adamw = adamw;
}

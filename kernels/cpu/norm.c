/* SPDX-License-Identifier: Apache-2.0 */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* LayerNorm and RMSNorm share code: RMSNorm subtracts no mean and has no beta.
 * `centred` (LayerNorm) is a constant in all callers. */

/* Elements of a row of fp32 in scratch memory: whole cache lines, so that
 * threads share none. */
static size_t padded_width(size_t C)
{
    return (C + 63) / 64 * 64;
}

INLINE size_t lanes(size_t c, size_t C)
{
    return C - c < VLEN ? C - c : VLEN;
}

/* Loads row i into x, with the residual added and rounded as stored; returns
 * its sum. */
INLINE float load_row(enum plait_dtype type, const struct plait_norm_forward *p,
                      size_t i, float *x)
{
    size_t C = p->C, at = i * C;
    vec sum = {0};

    for (size_t c = 0; c < C; c += VLEN) {
        vec v = vec_load(type, p->inp, at + c, lanes(c, C));

        if (p->residual != NULL) {
            v = vec_rounded(
                type, v + vec_load(type, p->residual, at + c, lanes(c, C)));
            vec_store(type, p->sum, at + c, lanes(c, C), v);
        }
        vec_store(PLAIT_F32, x, c, lanes(c, C), v);
        sum += v;
    }
    return vec_sum(sum);
}

INLINE void forward_row(enum plait_dtype type, int centred,
                        const struct plait_norm_forward *p, size_t i, float *x)
{
    size_t C = p->C;
    float total = load_row(type, p, i, x), mean = 0, rstd;
    vec squares = {0};

    if (centred)
        mean = total / (float)C;
    for (size_t c = 0; c < C; c += VLEN) {
        vec d = vec_load(PLAIT_F32, x, c, lanes(c, C)) - mean;

        if (lanes(c, C) < VLEN) /* the unused lanes hold -mean */
            for (size_t k = lanes(c, C); k < VLEN; k++)
                d[k] = 0;
        squares += d * d;
    }
    rstd = 1 / vec_sqrt1(vec_sum(squares) / (float)C + p->eps);
    for (size_t c = 0; c < C; c += VLEN) {
        vec y = (vec_load(PLAIT_F32, x, c, lanes(c, C)) - mean) * rstd *
                (vec_load(type, p->gamma, c, lanes(c, C)) + p->plus);

        if (centred)
            y += vec_load(type, p->beta, c, lanes(c, C));
        vec_store(type, p->out, i * C + c, lanes(c, C), y);
    }
    if (centred)
        p->mean[i] = mean;
    p->rstd[i] = rstd;
}

INLINE int forward_rows(struct plait_queue *q, int centred,
                        const struct plait_norm_forward *p)
{
    size_t width = padded_width(p->C);
    float *rows = cpu_scratch(q, CPU_SCRATCH_OP,
                              (size_t)q->dev->threads * width * sizeof(float));
    int threads = cpu_threads(q, p->N * p->C);

    if (rows == NULL)
        return -1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < p->N; i++) {
        float *x = rows + (size_t)omp_get_thread_num() * width;

        if (p->type == PLAIT_F32)
            forward_row(PLAIT_F32, centred, p, i, x);
        else if (p->type == PLAIT_BF16_T)
            forward_row(PLAIT_BF16_T, centred, p, i, x);
        else
            forward_row(PLAIT_FP16_T, centred, p, i, x);
    }
    return 0;
}

static int norm_forward(struct plait_queue *q,
                        const struct plait_norm_forward *p)
{
    int rc = p->mean != NULL ? forward_rows(q, 1, p) : forward_rows(q, 0, p);

    return rc < 0 ? -1
                  : CPU_NAME(cpu_fp8_amax)(q, p->amax, p->out, p->N * p->C);
}

/* -- backward ---------------------------------------------------------- */

/* dgamma, dbeta: this thread's partial sums. */
INLINE void backward_row(enum plait_dtype type, int centred,
                         const struct plait_norm_backward *p, size_t i,
                         float *dgamma, float *dbeta)
{
    size_t C = p->C, at = i * C;
    float mean = centred ? p->mean[i] : 0, rstd = p->rstd[i], avg_g, avg_gx;
    vec sum_g = {0}, sum_gx = {0};

    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = lanes(c, C);
        vec d = vec_load(type, p->dout, at + c, n);
        vec xhat = (vec_load(type, p->x, at + c, n) - mean) * rstd;
        vec g = d * (vec_load(type, p->gamma, c, n) + p->plus);

        sum_g += g;
        sum_gx += g * xhat;
        vec_store(PLAIT_F32, dgamma, c, n,
                  vec_load(PLAIT_F32, dgamma, c, n) + d * xhat);
        if (centred)
            vec_store(PLAIT_F32, dbeta, c, n,
                      vec_load(PLAIT_F32, dbeta, c, n) + d);
    }
    avg_g = centred ? vec_sum(sum_g) / (float)C : 0;
    avg_gx = vec_sum(sum_gx) / (float)C;
    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = lanes(c, C);
        vec xhat = (vec_load(type, p->x, at + c, n) - mean) * rstd;
        vec g = vec_load(type, p->dout, at + c, n) *
                (vec_load(type, p->gamma, c, n) + p->plus);
        vec d = rstd * (g - avg_g - xhat * avg_gx);

        if (p->accumulate)
            d += vec_load(type, p->dx, at + c, n);
        vec_store(type, p->dx, at + c, n, d);
    }
}

/* Rows from .. to - 1. sums: dgamma, then `width` numbers further on dbeta. */
INLINE void backward_rows(enum plait_dtype type, int centred,
                          const struct plait_norm_backward *p, size_t from,
                          size_t to, float *sums)
{
    float *dbeta = sums + padded_width(p->C);

    for (size_t i = from; i < to; i++)
        backward_row(type, centred, p, i, sums, dbeta);
}

/* Threads take equal runs of rows, and their sums are added in order: the same
 * number of threads gives the same bits. */
INLINE int backward(struct plait_queue *q, int centred,
                    const struct plait_norm_backward *p)
{
    size_t width = padded_width(p->C), N = p->N;
    size_t threads = (size_t)cpu_threads(q, N * p->C);
    float *sums =
        cpu_scratch(q, CPU_SCRATCH_OP, threads * 2 * width * sizeof(float));

    if (sums == NULL)
        return -1;
#pragma omp parallel for num_threads((int)threads) schedule(static)
    for (size_t t = 0; t < threads; t++) {
        size_t from = N * t / threads, to = N * (t + 1) / threads;
        float *own = sums + t * 2 * width;

        memset(own, 0, 2 * width * sizeof(float));
        if (p->type == PLAIT_F32)
            backward_rows(PLAIT_F32, centred, p, from, to, own);
        else if (p->type == PLAIT_BF16_T)
            backward_rows(PLAIT_BF16_T, centred, p, from, to, own);
        else
            backward_rows(PLAIT_FP16_T, centred, p, from, to, own);
    }
    for (size_t t = 0; t < threads; t++) {
        const float *sum = sums + t * 2 * width;

        for (size_t c = 0; c < p->C; c++)
            p->dgamma[c] += sum[c];
        for (size_t c = 0; centred && c < p->C; c++)
            p->dbeta[c] += sum[width + c];
    }
    return 0;
}

static int norm_backward(struct plait_queue *q,
                         const struct plait_norm_backward *p)
{
    int rc = p->mean != NULL ? backward(q, 1, p) : backward(q, 0, p);

    return rc < 0 ? -1 : CPU_NAME(cpu_fp8_amax)(q, p->amax, p->dx, p->N * p->C);
}

/* -- heads without weights ------------------------------------------------ */

/* Head i % heads of row i / heads. */
INLINE void norm_head(enum plait_dtype type, const struct plait_head_norm *p,
                      size_t i)
{
    size_t heads = (size_t)p->heads, D = (size_t)p->head_dim;
    size_t at = i / heads * p->stride + i % heads * D;
    const void *y = p->y != NULL ? p->y : p->x;
    float mean, rstd;
    vec sum = {0};

    for (size_t c = 0; c < D; c += VLEN)
        sum += vec_load(type, p->x, at + c, lanes(c, D)) *
               vec_load(type, y, at + c, lanes(c, D));
    mean = vec_sum(sum) / (float)D;
    rstd = p->y != NULL ? p->rstd[i] : 1 / vec_sqrt1(mean + p->eps);
    for (size_t c = 0; c < D; c += VLEN) {
        vec x = vec_load(type, p->x, at + c, lanes(c, D));

        if (p->y != NULL)
            x -= mean * vec_load(type, y, at + c, lanes(c, D));
        vec_store(type, p->x, at + c, lanes(c, D), rstd * x);
    }
    if (p->y == NULL)
        p->rstd[i] = rstd;
}

static int head_norm(struct plait_queue *q, const struct plait_head_norm *p)
{
    size_t n = p->N * (size_t)p->heads;
    int threads = cpu_threads(q, n * (size_t)p->head_dim);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i++) {
        if (p->type == PLAIT_F32)
            norm_head(PLAIT_F32, p, i);
        else if (p->type == PLAIT_BF16_T)
            norm_head(PLAIT_BF16_T, p, i);
        else
            norm_head(PLAIT_FP16_T, p, i);
    }
    return 0;
}

/* -- rows on several ranks ------------------------------------------------ */

INLINE void part_sum(enum plait_dtype type, const struct plait_norm_part *p,
                     size_t i)
{
    size_t C = p->C, at = i * C;
    vec sum = {0};

    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = lanes(c, C);
        vec x = vec_load(type, p->x, at + c, n), by = x;

        if (p->dout != NULL)
            by = vec_load(type, p->dout, at + c, n) *
                 vec_load(type, p->gamma, c, n);
        sum += x * by;
    }
    p->sums[i] = vec_sum(sum);
}

INLINE void part_forward(enum plait_dtype type, const struct plait_norm_part *p,
                         size_t i)
{
    size_t C = p->C, at = i * C;
    float rstd = 1 / vec_sqrt1(p->sums[i] * p->mean + p->eps);

    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = lanes(c, C);

        vec_store(type, p->out, at + c, n,
                  vec_load(type, p->x, at + c, n) * rstd *
                      vec_load(type, p->gamma, c, n));
    }
    p->rstd[i] = rstd;
}

/* dgamma: this thread's partial sums. */
INLINE void part_backward(enum plait_dtype type,
                          const struct plait_norm_part *p, size_t i,
                          float *dgamma)
{
    size_t C = p->C, at = i * C;
    float rstd = p->rstd[i], avg = rstd * p->sums[i] * p->mean;

    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = lanes(c, C);
        vec d = vec_load(type, p->dout, at + c, n);
        vec xhat = vec_load(type, p->x, at + c, n) * rstd;

        vec_store(PLAIT_F32, dgamma, c, n,
                  vec_load(PLAIT_F32, dgamma, c, n) + d * xhat);
        vec_store(type, p->out, at + c, n,
                  rstd * (d * vec_load(type, p->gamma, c, n) - xhat * avg));
    }
}

static int norm_part_sums(struct plait_queue *q,
                          const struct plait_norm_part *p)
{
    int threads = cpu_threads(q, p->N * p->C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < p->N; i++) {
        if (p->type == PLAIT_F32)
            part_sum(PLAIT_F32, p, i);
        else if (p->type == PLAIT_BF16_T)
            part_sum(PLAIT_BF16_T, p, i);
        else
            part_sum(PLAIT_FP16_T, p, i);
    }
    return 0;
}

static int norm_part_forward(struct plait_queue *q,
                             const struct plait_norm_part *p)
{
    int threads = cpu_threads(q, p->N * p->C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < p->N; i++) {
        if (p->type == PLAIT_F32)
            part_forward(PLAIT_F32, p, i);
        else if (p->type == PLAIT_BF16_T)
            part_forward(PLAIT_BF16_T, p, i);
        else
            part_forward(PLAIT_FP16_T, p, i);
    }
    return 0;
}

static int norm_part_backward(struct plait_queue *q,
                              const struct plait_norm_part *p)
{
    size_t width = padded_width(p->C), N = p->N;
    size_t threads = (size_t)cpu_threads(q, N * p->C);
    float *sums =
        cpu_scratch(q, CPU_SCRATCH_OP, threads * width * sizeof(float));

    if (sums == NULL)
        return -1;
    memset(sums, 0, threads * width * sizeof(float));
#pragma omp parallel for num_threads((int)threads) schedule(static)
    for (size_t t = 0; t < threads; t++)
        for (size_t i = N * t / threads; i < N * (t + 1) / threads; i++) {
            if (p->type == PLAIT_F32)
                part_backward(PLAIT_F32, p, i, sums + t * width);
            else if (p->type == PLAIT_BF16_T)
                part_backward(PLAIT_BF16_T, p, i, sums + t * width);
            else
                part_backward(PLAIT_FP16_T, p, i, sums + t * width);
        }
    for (size_t t = 0; t < threads; t++)
        for (size_t c = 0; c < p->C; c++)
            p->dgamma[c] += sums[t * width + c];
    return 0;
}

void CPU_NAME(cpu_fill_norm)(struct plait_ops *ops)
{
    ops->norm_forward = norm_forward;
    ops->norm_backward = norm_backward;
    ops->norm_part_sums = norm_part_sums;
    ops->norm_part_forward = norm_part_forward;
    ops->norm_part_backward = norm_part_backward;
    ops->head_norm = head_norm;
}

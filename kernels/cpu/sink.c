/* SPDX-License-Identifier: Apache-2.0 */
/* Attention sinks on the CPU: a pass over what attention has put out. */
#include <math.h>
#include <omp.h>

#include "kernels/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

INLINE float load_one(enum plait_dtype type, const void *p, size_t i)
{
    return vec_load(type, p, i, 1)[0];
}

/* The head h of token r, which is one of its sequence's q_len. */
INLINE void add_sink(enum plait_dtype type,
                     const struct plait_attention_sink *s, size_t r, size_t h)
{
    size_t H = (size_t)s->heads, T = (size_t)s->q_len, D = (size_t)s->head_dim;
    size_t at = (r * H + h) * D;
    float *lse = &s->lse[(r / T * H + h) * T + r % T];
    float sink = load_one(type, s->sink, h), max = *lse > sink ? *lse : sink;
    float all = max + logf(expf(*lse - max) + expf(sink - max));
    float factor = expf(*lse - all);

    for (size_t d = 0; d < D; d += VLEN) {
        size_t n = D - d < VLEN ? D - d : VLEN;

        vec_store(type, s->out, at + d, n,
                  vec_load(type, s->out, at + d, n) * factor);
    }
    *lse = all;
}

static void token_sinks(const struct plait_attention_sink *s, size_t r)
{
    for (size_t h = 0; h < (size_t)s->heads; h++)
        if (s->type == PLAIT_F32)
            add_sink(PLAIT_F32, s, r, h);
        else if (s->type == PLAIT_BF16_T)
            add_sink(PLAIT_BF16_T, s, r, h);
        else
            add_sink(PLAIT_FP16_T, s, r, h);
}

static int attention_sink(struct plait_queue *q,
                          const struct plait_attention_sink *s)
{
    size_t rows = (size_t)s->batch * (size_t)s->q_len;
    int threads = cpu_threads(q, rows * (size_t)s->heads * (size_t)s->head_dim);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t r = 0; r < rows; r++)
        token_sinks(s, r);
    return 0;
}

/* The probability of the sink times dout . out, summed over all tokens. */
INLINE double head_sum(enum plait_dtype type,
                       const struct plait_attention_sink_gradient *s, size_t h)
{
    size_t H = (size_t)s->heads, T = (size_t)s->q_len, D = (size_t)s->head_dim;
    float sink = load_one(type, s->sink, h);
    double sum = 0;

    for (size_t r = 0; r < (size_t)s->batch * T; r++) {
        size_t at = (r * H + h) * D;
        float lse = s->lse[(r / T * H + h) * T + r % T];
        vec dot = {0};

        for (size_t d = 0; d < D; d += VLEN) {
            size_t n = D - d < VLEN ? D - d : VLEN;

            /* elements from n on are 0 */
            dot += vec_load(type, s->dout, at + d, n) *
                   vec_load(type, s->out, at + d, n);
        }
        sum += (double)(expf(sink - lse) * vec_sum(dot));
    }
    return sum;
}

static void add_gradient(const struct plait_attention_sink_gradient *s,
                         size_t h)
{
    double sum;

    if (s->type == PLAIT_F32)
        sum = head_sum(PLAIT_F32, s, h);
    else if (s->type == PLAIT_BF16_T)
        sum = head_sum(PLAIT_BF16_T, s, h);
    else
        sum = head_sum(PLAIT_FP16_T, s, h);
    s->dsink[h] -= (float)sum;
}

/* A thread has whole heads, so that the sum's order does not depend on how many
 * threads there are. */
static int
attention_sink_backward(struct plait_queue *q,
                        const struct plait_attention_sink_gradient *s)
{
    size_t rows = (size_t)s->batch * (size_t)s->q_len;
    int threads = cpu_threads(q, rows * (size_t)s->heads * (size_t)s->head_dim);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t h = 0; h < (size_t)s->heads; h++)
        add_gradient(s, h);
    return 0;
}

void CPU_NAME(cpu_fill_sink)(struct plait_ops *ops)
{
    ops->attention_sink = attention_sink;
    ops->attention_sink_backward = attention_sink_backward;
}

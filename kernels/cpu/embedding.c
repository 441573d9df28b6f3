/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings on a CPU: rows of a shard of the vocabulary, their gradient, and
 * rotary positions. */
#include <assert.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"
#include "kernels/rope.h"

/* The row of the vocabulary shard, or -1 if another rank has the token. */
static int64_t shard_row(int32_t token, int32_t first, int32_t count)
{
    int64_t row = (int64_t)token - first;

    return row >= 0 && row < count ? row : -1;
}

/* The position of row i within its document. */
static size_t position(const struct plait_positions *at, size_t i)
{
    size_t pos = (size_t)at->pos0 + i % at->T;

    return at->starts != NULL ? pos - (size_t)at->starts[i] : pos;
}

INLINE void forward_row(enum plait_dtype type,
                        const struct plait_embedding_forward *e, size_t i)
{
    int64_t row = shard_row(e->tokens[i], e->first, e->count);
    size_t pos = position(&e->at, i), C = e->C;
    const void *wte = e->wte, *wpe = e->wpe;
    void *out = e->out;

    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = C - c < VLEN ? C - c : VLEN;
        vec x = {0};

        if (row >= 0)
            x = vec_load(type, wte, (size_t)row * C + c, n);
        if (wpe != NULL)
            x += vec_load(type, wpe, pos * C + c, n);
        vec_store(type, out, i * C + c, n, x);
    }
}

static int embedding_forward(struct plait_queue *q,
                             const struct plait_embedding_forward *e)
{
    int threads = cpu_threads(q, e->N * e->C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < e->N; i++) {
        if (e->type == PLAIT_F32)
            forward_row(PLAIT_F32, e, i);
        else if (e->type == PLAIT_BF16_T)
            forward_row(PLAIT_BF16_T, e, i);
        else
            forward_row(PLAIT_FP16_T, e, i);
    }
    return 0;
}

INLINE void add_row(enum plait_dtype type, float *sum, const void *dout,
                    size_t at, size_t cols)
{
    for (size_t c = 0; c < cols; c += VLEN) {
        size_t n = cols - c < VLEN ? cols - c : VLEN;

        vec_store(PLAIT_F32, sum, c, n,
                  vec_load(PLAIT_F32, sum, c, n) +
                      vec_load(type, dout, at + c, n));
    }
}

static void add_any(enum plait_dtype type, float *sum, const void *dout,
                    size_t at, size_t cols)
{
    if (type == PLAIT_F32)
        add_row(PLAIT_F32, sum, dout, at, cols);
    else if (type == PLAIT_BF16_T)
        add_row(PLAIT_BF16_T, sum, dout, at, cols);
    else
        add_row(PLAIT_FP16_T, sum, dout, at, cols);
}

/* Threads share the columns, so that each sum is formed in token order. */
static int embedding_backward(struct plait_queue *q,
                              const struct plait_embedding_backward *e)
{
    size_t C = e->C;
    int threads = cpu_threads(q, e->N * C);

#pragma omp parallel num_threads(threads)
    {
        size_t from, to;

        cpu_span(C, omp_get_num_threads(), omp_get_thread_num(), &from, &to);
        for (size_t i = 0; i < e->N; i++) {
            int64_t row = shard_row(e->tokens[i], e->first, e->count);
            size_t pos = position(&e->at, i);

            if (e->dwte != NULL && row >= 0)
                add_any(e->type, e->dwte + (size_t)row * C + from, e->dout,
                        i * C + from, to - from);
            if (e->dwpe != NULL)
                add_any(e->type, e->dwpe + pos * C + from, e->dout,
                        i * C + from, to - from);
        }
    }
    return 0;
}

/* -- rotary positions -------------------------------------------------- */

/* Rotates each head of row i, which begins with two runs of `half` values, by
 * one token's angles. angles: `half` cosines, then as many sines. */
INLINE void rotate(enum plait_dtype type, const struct plait_rope *r, size_t i,
                   const float *angles)
{
    size_t half = (size_t)plait_rope_columns(r) / 2, heads = (size_t)r->heads;
    size_t row = i * r->stride, D = (size_t)r->head_dim;
    const float *sines = angles + half;
    void *x = r->x;

    for (size_t h = 0; h < heads; h++) {
        for (size_t d = 0; d < half; d += VLEN) {
            size_t n = half - d < VLEN ? half - d : VLEN;
            size_t at = row + h * D + d;
            vec a = vec_load(type, x, at, n);
            vec b = vec_load(type, x, at + half, n);
            vec c = vec_load(PLAIT_F32, angles, d, n);
            vec s = vec_load(PLAIT_F32, sines, d, n);

            vec_store(type, x, at, n, a * c - b * s);
            vec_store(type, x, at + half, n, a * s + b * c);
        }
    }
}

/* The cosines and sines of pair d at the positions from `first` on, for
 * rotate(): those of a position are adjacent. */
static void fill_angles(const struct plait_rope *r, size_t d, size_t first,
                        size_t positions, float *table)
{
    double step = plait_rope_step(&r->angles, d, plait_rope_columns(r));
    double size = plait_rope_size(&r->angles);
    size_t half = (size_t)plait_rope_columns(r) / 2;

    for (size_t t = 0; t < positions; t++) {
        double angle = (double)(first + t) * step;

        table[t * 2 * half + d] = (float)(size * cos(angle));
        table[(t * 2 + 1) * half + d] =
            (float)(size * r->direction * sin(angle));
    }
}

static int rope(struct plait_queue *q, const struct plait_rope *r)
{
    size_t half = (size_t)plait_rope_columns(r) / 2;
    int threads = cpu_threads(q, r->N * (size_t)r->heads * half);
    /* With documents that start anywhere, every position up to the last can
     * occur. */
    size_t first = r->at.starts != NULL ? 0 : (size_t)r->at.pos0;
    size_t positions = (size_t)r->at.pos0 + r->at.T - first;
    float *table =
        cpu_scratch(q, CPU_SCRATCH_OP, positions * 2 * half * sizeof(float));

    assert(plait_rope_columns(r) % 2 == 0);
    if (table == NULL)
        return -1;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (size_t d = 0; d < half; d++)
            fill_angles(r, d, first, positions, table);
#pragma omp for schedule(static)
        for (size_t i = 0; i < r->N; i++) {
            size_t t = position(&r->at, i) - first;
            const float *angles = table + t * 2 * half;

            if (r->type == PLAIT_F32)
                rotate(PLAIT_F32, r, i, angles);
            else if (r->type == PLAIT_BF16_T)
                rotate(PLAIT_BF16_T, r, i, angles);
            else
                rotate(PLAIT_FP16_T, r, i, angles);
        }
    }
    return 0;
}

/* -- tempered queries -------------------------------------------------- */

INLINE void temper_row(enum plait_dtype type, const struct plait_temper *t,
                       size_t i)
{
    size_t reach = (position(&t->at, i) + 1) / (size_t)t->floor;
    float by = (float)(1 + t->scale * log1p((double)reach));

    for (size_t c = 0; c < t->C; c += VLEN) {
        size_t n = t->C - c < VLEN ? t->C - c : VLEN, at = i * t->stride + c;

        vec_store(type, t->x, at, n, by * vec_load(type, t->x, at, n));
    }
}

static int temper(struct plait_queue *q, const struct plait_temper *t)
{
    int threads = cpu_threads(q, t->N * t->C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < t->N; i++) {
        if (t->type == PLAIT_F32)
            temper_row(PLAIT_F32, t, i);
        else if (t->type == PLAIT_BF16_T)
            temper_row(PLAIT_BF16_T, t, i);
        else
            temper_row(PLAIT_FP16_T, t, i);
    }
    return 0;
}

/* -- columns of heads -------------------------------------------------- */

static int copy_heads(struct plait_queue *q, const struct plait_copy_heads *c)
{
    size_t size = plait_dtype_size(c->type), bytes = c->cols * size;
    int threads = cpu_threads(q, c->rows * c->heads * c->cols);
    const char *from = c->src;
    char *to = c->dst;

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < c->rows; i++)
        for (size_t h = 0; h < c->heads; h++) {
            char *at = to + (i * c->dst_stride + h * c->dst_head) * size;

            if (from == NULL)
                memset(at, 0, bytes);
            else
                memcpy(at, from + (i * c->src_stride + h * c->src_head) * size,
                       bytes);
        }
    return 0;
}

INLINE void sum_row(enum plait_dtype type, const struct plait_sum_heads *s,
                    size_t i)
{
    for (size_t j = 0; j < s->cols; j += VLEN) {
        size_t n = s->cols - j < VLEN ? s->cols - j : VLEN;
        vec sum = vec_set(0.0f);

        for (size_t h = 0; h < s->heads; h++)
            sum = sum + vec_load(type, s->src,
                                 i * s->src_stride + h * s->src_head + j, n);
        vec_store(type, s->dst, i * s->cols + j, n, sum);
    }
}

static int sum_heads(struct plait_queue *q, const struct plait_sum_heads *s)
{
    int threads = cpu_threads(q, s->rows * s->heads * s->cols);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < s->rows; i++)
        if (s->type == PLAIT_F32)
            sum_row(PLAIT_F32, s, i);
        else if (s->type == PLAIT_BF16_T)
            sum_row(PLAIT_BF16_T, s, i);
        else
            sum_row(PLAIT_FP16_T, s, i);
    return 0;
}

void CPU_NAME(cpu_fill_embedding)(struct plait_ops *ops)
{
    ops->embedding_forward = embedding_forward;
    ops->embedding_backward = embedding_backward;
    ops->rope = rope;
    ops->temper = temper;
    ops->copy_heads = copy_heads;
    ops->sum_heads = sum_heads;
}

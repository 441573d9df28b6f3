/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <omp.h>

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
static size_t position(const int32_t *starts, int64_t pos0, size_t i, size_t T)
{
    size_t pos = (size_t)pos0 + i % T;

    return starts != NULL ? pos - (size_t)starts[i] : pos;
}

INLINE void forward_row(enum plait_dtype type, void *out, size_t at,
                        const void *wte, int64_t row, const void *wpe,
                        size_t pos, size_t C)
{
    for (size_t c = 0; c < C; c += VLEN) {
        size_t n = C - c < VLEN ? C - c : VLEN;
        vec x = {0};

        if (row >= 0)
            x = vec_load(type, wte, (size_t)row * C + c, n);
        if (wpe != NULL)
            x += vec_load(type, wpe, pos * C + c, n);
        vec_store(type, out, at + c, n, x);
    }
}

static int embedding_forward(struct plait_queue *q, enum plait_dtype type,
                             void *out, const int32_t *tokens, const void *wte,
                             const void *wpe, int32_t first, int32_t count,
                             int64_t pos0, const int32_t *starts, size_t N,
                             size_t T, size_t C)
{
    int threads = cpu_threads(q, N * C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < N; i++) {
        int64_t row = shard_row(tokens[i], first, count);
        size_t pos = position(starts, pos0, i, T);

        if (type == PLAIT_F32)
            forward_row(PLAIT_F32, out, i * C, wte, row, wpe, pos, C);
        else if (type == PLAIT_BF16_T)
            forward_row(PLAIT_BF16_T, out, i * C, wte, row, wpe, pos, C);
        else
            forward_row(PLAIT_FP16_T, out, i * C, wte, row, wpe, pos, C);
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
static int embedding_backward(struct plait_queue *q, enum plait_dtype type,
                              float *dwte, float *dwpe, const int32_t *tokens,
                              const void *dout, int32_t first, int32_t count,
                              int64_t pos0, const int32_t *starts, size_t N,
                              size_t T, size_t C)
{
    int threads = cpu_threads(q, N * C);

#pragma omp parallel num_threads(threads)
    {
        size_t from, to;

        cpu_span(C, omp_get_num_threads(), omp_get_thread_num(), &from, &to);
        for (size_t i = 0; i < N; i++) {
            int64_t row = shard_row(tokens[i], first, count);
            size_t pos = position(starts, pos0, i, T);

            if (dwte != NULL && row >= 0)
                add_any(type, dwte + (size_t)row * C + from, dout, i * C + from,
                        to - from);
            if (dwpe != NULL)
                add_any(type, dwpe + pos * C + from, dout, i * C + from,
                        to - from);
        }
    }
    return 0;
}

/* -- rotary positions -------------------------------------------------- */

/* Rotates each head, which is two runs of `half` values, by one token's
 * angles. */
INLINE void rotate(enum plait_dtype type, void *x, size_t at, int heads,
                   size_t half, const float *cosine, const float *sine)
{
    for (size_t h = 0; h < (size_t)heads; h++) {
        for (size_t d = 0; d < half; d += VLEN) {
            size_t n = half - d < VLEN ? half - d : VLEN;
            size_t i = at + h * 2 * half + d;
            vec a = vec_load(type, x, i, n);
            vec b = vec_load(type, x, i + half, n);
            vec c = vec_load(PLAIT_F32, cosine, d, n);
            vec s = vec_load(PLAIT_F32, sine, d, n);

            vec_store(type, x, i, n, a * c - b * s);
            vec_store(type, x, i + half, n, a * s + b * c);
        }
    }
}

static int rope(struct plait_queue *q, enum plait_dtype type, void *x,
                size_t stride, int heads, int head_dim,
                const struct plait_rope *how, int64_t pos0,
                const int32_t *starts, int direction, size_t N, size_t T)
{
    size_t half = (size_t)head_dim / 2;
    int threads = cpu_threads(q, N * (size_t)heads * half);
    /* With documents that start anywhere, every position up to the last can
     * occur. */
    size_t first = starts != NULL ? 0 : (size_t)pos0;
    size_t positions = (size_t)pos0 + T - first;
    float *table =
        cpu_scratch(q, CPU_SCRATCH_OP, positions * 2 * half * sizeof(float));

    assert(head_dim % 2 == 0);
    if (table == NULL)
        return -1;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (size_t d = 0; d < half; d++) {
            double step = plait_rope_step(how, d, head_dim);

            for (size_t t = 0; t < positions; t++) {
                double angle = (double)(first + t) * step;

                table[t * 2 * half + d] = (float)cos(angle);
                table[(t * 2 + 1) * half + d] = (float)(direction * sin(angle));
            }
        }
#pragma omp for schedule(static)
        for (size_t i = 0; i < N; i++) {
            size_t t = position(starts, pos0, i, T) - first;
            const float *c = table + t * 2 * half, *s = c + half;

            if (type == PLAIT_F32)
                rotate(PLAIT_F32, x, i * stride, heads, half, c, s);
            else if (type == PLAIT_BF16_T)
                rotate(PLAIT_BF16_T, x, i * stride, heads, half, c, s);
            else
                rotate(PLAIT_FP16_T, x, i * stride, heads, half, c, s);
        }
    }
    return 0;
}

void CPU_NAME(cpu_fill_embedding)(struct plait_ops *ops)
{
    ops->embedding_forward = embedding_forward;
    ops->embedding_backward = embedding_backward;
    ops->rope = rope;
}

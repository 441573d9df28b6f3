/* SPDX-License-Identifier: Apache-2.0 */
/* Attention sinks: a pass over what attention has put out. */
#include "kernels/attention.h"
#include "kernels/cuda/common.cuh"

static const int threads = 256, warps = threads / 32;
/* Tokens that a block of the backward sums, and how many such blocks a head has
 * at most. */
static const size_t token_chunk = 16 * warps, parts_most = 64;

/* A warp has one head of one token. */
template <typename T>
static __global__ void sink_kernel(struct plait_attention_sink s, size_t n)
{
    size_t i = (size_t)blockIdx.x * warps + threadIdx.x / 32;
    size_t H = s.heads, len = s.q_len, r = i / H, h = i % H;
    size_t stat = (r / len * H + h) * len + r % len;
    T *out = (T *)s.out + i * s.head_dim;
    float lse, sink, all, factor;

    if (i >= n)
        return;
    lse = s.lse[stat];
    sink = to_float(((const T *)s.sink)[h]);
    all = lse > sink ? lse : sink;
    all += logf(expf(lse - all) + expf(sink - all));
    factor = expf(lse - all);
    for (int d = threadIdx.x % 32; d < s.head_dim; d += 32)
        out[d] = from_float<T>(to_float(out[d]) * factor);
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        s.lse[stat] = all;
}

static int attention_sink(struct plait_queue *q,
                          const struct plait_attention_sink *s)
{
    size_t n = (size_t)s->batch * s->q_len * s->heads;

    return cuda_launch(q, "attention_sink", s->type, n, [&](auto zero) {
        sink_kernel<decltype(zero)>
            <<<(unsigned)ceil_div(n, warps), threads, 0, q->stream>>>(*s, n);
    });
}

/* part[h, blockIdx.y]: the sum over this block's tokens, of which each warp has
 * every `warps`-th. */
template <typename T>
static __global__ void sink_sums_kernel(double *part,
                                        struct plait_attention_sink_gradient s,
                                        size_t rows)
{
    __shared__ double shared[32];
    size_t H = s.heads, len = s.q_len, h = blockIdx.x;
    float sink = to_float(((const T *)s.sink)[h]);
    double sum = 0;

    for (size_t r = (size_t)blockIdx.y * warps + threadIdx.x / 32; r < rows;
         r += (size_t)gridDim.y * warps) {
        float p = expf(sink - s.lse[(r / len * H + h) * len + r % len]);
        size_t at = (r * H + h) * s.head_dim;
        const T *out = (const T *)s.out + at, *dout = (const T *)s.dout + at;
        float dot = 0;

        for (int d = threadIdx.x % 32; d < s.head_dim; d += 32)
            dot += to_float(out[d]) * to_float(dout[d]);
        sum += (double)(p * dot);
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        part[h * gridDim.y + blockIdx.y] = sum;
}

static __global__ void sink_gradient_kernel(float *dsink, const double *part,
                                            int heads, unsigned parts)
{
    int h = blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0;

    if (h >= heads)
        return;
    for (unsigned i = 0; i < parts; i++)
        sum += part[(size_t)h * parts + i];
    dsink[h] -= (float)sum;
}

static int
attention_sink_backward(struct plait_queue *q,
                        const struct plait_attention_sink_gradient *s)
{
    size_t rows = (size_t)s->batch * s->q_len;
    size_t parts = ceil_div(rows, token_chunk);
    unsigned blocks = (unsigned)ceil_div((size_t)s->heads, threads);
    double *part;

    if (parts > parts_most)
        parts = parts_most;
    if (cuda_enter(q) != 0)
        return -1;
    if (rows == 0)
        return 0;
    part = (double *)cuda_scratch(q, s->heads * parts * sizeof(*part));
    if (part == NULL)
        return -1;
    for_type(s->type, [&](auto zero) {
        typedef decltype(zero) T;
        dim3 grid(s->heads, (unsigned)parts);

        sink_sums_kernel<T><<<grid, threads, 0, q->stream>>>(part, *s, rows);
    });
    sink_gradient_kernel<<<blocks, threads, 0, q->stream>>>(
        s->dsink, part, s->heads, (unsigned)parts);
    return cuda_leave(q, "attention_sink_backward");
}

void cuda_sink_ops(struct plait_ops *ops)
{
    ops->attention_sink = attention_sink;
    ops->attention_sink_backward = attention_sink_backward;
}

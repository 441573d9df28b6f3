/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of heads, copied from matrix to matrix and summed over the heads. */
#include "kernels/cuda/common.cuh"

static const unsigned threads = 256;

template <typename T>
static __global__ void copy_heads_kernel(struct plait_copy_heads c)
{
    T *dst = (T *)c.dst;
    const T *src = (const T *)c.src;

    GRID_LOOP(i, c.rows * c.heads * c.cols)
    {
        size_t col = i % c.cols, head = i / c.cols % c.heads;
        size_t row = i / c.cols / c.heads;
        size_t from = row * c.src_stride + head * c.src_head + col;

        dst[row * c.dst_stride + head * c.dst_head + col] =
            src != NULL ? src[from] : from_float<T>(0.0f);
    }
}

static int copy_heads(struct plait_queue *q, const struct plait_copy_heads *c)
{
    size_t n = c->rows * c->heads * c->cols;

    return cuda_launch(q, "copy_heads", c->type, n, [&](auto zero) {
        copy_heads_kernel<decltype(zero)>
            <<<grid_for(q, n, threads), threads, 0, q->stream>>>(*c);
    });
}

/* One thread adds the heads of a column, in their order. */
template <typename T>
static __global__ void sum_heads_kernel(struct plait_sum_heads s)
{
    T *dst = (T *)s.dst;
    const T *src = (const T *)s.src;

    GRID_LOOP(i, s.rows * s.cols)
    {
        size_t from = i / s.cols * s.src_stride + i % s.cols;
        float sum = 0;

        for (size_t h = 0; h < s.heads; h++)
            sum += to_float(src[from + h * s.src_head]);
        dst[i] = from_float<T>(sum);
    }
}

static int sum_heads(struct plait_queue *q, const struct plait_sum_heads *s)
{
    size_t n = s->rows * s->cols;

    return cuda_launch(q, "sum_heads", s->type, n, [&](auto zero) {
        sum_heads_kernel<decltype(zero)>
            <<<grid_for(q, n, threads), threads, 0, q->stream>>>(*s);
    });
}

void cuda_heads_ops(struct plait_ops *ops)
{
    ops->copy_heads = copy_heads;
    ops->sum_heads = sum_heads;
}

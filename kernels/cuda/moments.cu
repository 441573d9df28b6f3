/* SPDX-License-Identifier: Apache-2.0 */
/* Moments of gradients in fp32: averages over steps, and Adafactor's sums over
 * rows and columns. */
#include "kernels/cuda/common.cuh"
#include "kernels/moments.h"

static const int threads = 256, tile = 32, lanes = 8;

/* -- element by element --------------------------------------------------- */

/* Calls f(i) for all i below n. */
template <typename F> static __global__ void each_kernel(size_t n, F f)
{
    GRID_LOOP(i, n)
    f(i);
}

template <typename F>
static int each(struct plait_queue *q, const char *op, size_t n, F f)
{
    if (cuda_enter(q) != 0)
        return -1;
    if (n > 0)
        each_kernel<<<grid_for(q, n, threads), threads, 0, q->stream>>>(n, f);
    return cuda_leave(q, op);
}

struct average_each {
    struct plait_average a;

    __device__ void operator()(size_t i) const
    {
        a.y[i] += a.weight * (a.scale * a.x[i] - a.y[i]);
    }
};

static int average(struct plait_queue *q, const struct plait_average *a)
{
    return each(q, "average", a->n, average_each{*a});
}

struct squares_each {
    struct plait_average a;

    __device__ void operator()(size_t i) const
    {
        float s = a.scale * a.x[i];

        a.y[i] += a.weight * (s * s - a.y[i]);
    }
};

static int average_squares(struct plait_queue *q, const struct plait_average *a)
{
    return each(q, "average_squares", a->n, squares_each{*a});
}

struct divide_each {
    struct plait_divide_root d;

    __device__ void operator()(size_t i) const
    {
        d.x[i] = d.scale * d.x[i] /
                 (sqrtf(d.v[i] < d.least ? d.least : d.v[i]) + d.eps);
    }
};

static int divide_root(struct plait_queue *q, const struct plait_divide_root *d)
{
    return each(q, "divide_root", d->n, divide_each{*d});
}

struct factor_each {
    struct plait_factors f;

    __device__ void operator()(size_t k) const
    {
        size_t at = f.first + k;
        float eps = f.eps, whole = *f.mean < eps ? eps : *f.mean;
        float v = f.rows[at / f.C] / whole * f.cols[at % f.C];

        f.x[k] = f.scale * f.x[k] / sqrtf(v < eps * eps ? eps * eps : v);
    }
};

static int factor_divide(struct plait_queue *q, const struct plait_factors *f)
{
    return each(q, "factor_divide", f->n, factor_each{*f});
}

/* -- sums over rows and columns ------------------------------------------- */

/* A range of elements of a matrix of C columns. */
struct run {
    const float *x;
    size_t first, end, C;
};

/* Each block sums one row after another. */
static __global__ void row_squares_kernel(float *rows, struct run r)
{
    __shared__ float shared[32];

    for (size_t i = r.first / r.C + blockIdx.x; i * r.C < r.end;
         i += gridDim.x) {
        size_t begin = max(i * r.C, r.first), end = min((i + 1) * r.C, r.end);
        float sum = 0;

        for (size_t k = begin + threadIdx.x; k < end; k += blockDim.x)
            sum += r.x[k - r.first] * r.x[k - r.first];
        sum = block_sum(sum, shared);
        if (threadIdx.x == 0)
            rows[i] += sum;
    }
}

/* Block (x, y) sums `tile` columns over a share of the rows; part [gridDim.y,
 * C]. */
static __global__ void column_squares_kernel(float *part, struct run r)
{
    __shared__ float shared[lanes][tile];
    size_t col = (size_t)blockIdx.x * tile + threadIdx.x;
    size_t row = r.first / r.C + (size_t)blockIdx.y * lanes + threadIdx.y;
    size_t step = (size_t)gridDim.y * lanes;
    float sum = 0;

    for (; col < r.C && row * r.C < r.end; row += step) {
        size_t at = row * r.C + col;

        if (at >= r.first && at < r.end)
            sum += r.x[at - r.first] * r.x[at - r.first];
    }
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && col < r.C) {
        sum = 0;
        for (int i = 0; i < lanes; i++)
            sum += shared[i][threadIdx.x];
        part[blockIdx.y * r.C + col] = sum;
    }
}

static int factor_sums(struct plait_queue *q, const struct plait_factors *f)
{
    size_t n = f->n, C = f->C, first = f->first;
    struct run r = {f->x, first, first + n, C};
    size_t nrows = n ? (first + n - 1) / C + 1 - first / C : 0;
    size_t across = ceil_div(C, tile), down, most;
    float *part;

    if (cuda_enter(q) != 0)
        return -1;
    if (n == 0)
        return 0;
    most = (size_t)q->dev->sms * 8;
    down = ceil_div(most, across);
    down = down < ceil_div(nrows, lanes) ? down : ceil_div(nrows, lanes);
    part = (float *)cuda_scratch(q, down * C * sizeof(*part));
    if (part == NULL)
        return -1;
    row_squares_kernel<<<(unsigned)(nrows < most ? nrows : most), threads, 0,
                         q->stream>>>(f->rows, r);
    column_squares_kernel<<<dim3((unsigned)across, (unsigned)down),
                            dim3(tile, lanes), 0, q->stream>>>(part, r);
    cuda_sum_rows(q, f->cols, NULL, part, down, C);
    return cuda_leave(q, "factor_sums");
}

void cuda_moment_ops(struct plait_ops *ops)
{
    ops->average = average;
    ops->average_squares = average_squares;
    ops->divide_root = divide_root;
    ops->factor_sums = factor_sums;
    ops->factor_divide = factor_divide;
}

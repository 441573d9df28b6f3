/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm of rows of channels. Sums over rows are made in two stages and in
 * a fixed order, as in reduce.cu. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/image.h"

static const unsigned threads = 256;
static const unsigned lanes = 32; /* channels of a block */
static const unsigned most_parts = 64;

struct pair {
    float a, b;
};

/* part [groups, parts, 2, C]: the sums of f(g, i, c) over each part's rows, for
 * element i = row * C + c of group g. */
template <typename F>
static __global__ void pair_sums_kernel(float *part, size_t rows, size_t C, F f)
{
    __shared__ float shared[2][threads / lanes][lanes + 1];
    size_t c = (size_t)blockIdx.x * lanes + threadIdx.x, g = blockIdx.z;
    size_t step = (size_t)gridDim.y * blockDim.y;
    struct pair sum = {0, 0};

    for (size_t r = (size_t)blockIdx.y * blockDim.y + threadIdx.y;
         r < rows && c < C; r += step) {
        struct pair p = f(g, (g * rows + r) * C + c, c);

        sum.a += p.a;
        sum.b += p.b;
    }
    shared[0][threadIdx.y][threadIdx.x] = sum.a;
    shared[1][threadIdx.y][threadIdx.x] = sum.b;
    __syncthreads();
    if (threadIdx.y >= 2 || c >= C)
        return;
    sum.a = 0;
    for (unsigned y = 0; y < blockDim.y; y++)
        sum.a += shared[threadIdx.y][y][threadIdx.x];
    part[((g * gridDim.y + blockIdx.y) * 2 + threadIdx.y) * C + c] = sum.a;
}

/* out[g * stride_g + k * stride_k + c] = scale * the sum over the parts, for
 * the first `kinds` (1 or 2) of each pair. */
static __global__ void join_parts_kernel(float *out, const float *part,
                                         unsigned parts, size_t groups,
                                         size_t C, int kinds, size_t stride_g,
                                         size_t stride_k, float scale)
{
    size_t n = groups * (size_t)kinds * C;

    GRID_LOOP(i, n)
    {
        size_t c = i % C, k = i / C % (size_t)kinds, g = i / C / (size_t)kinds;
        double sum = 0;

        for (unsigned p = 0; p < parts; p++)
            sum += part[((g * parts + p) * 2 + k) * C + c];
        out[g * stride_g + k * stride_k + c] = (float)(sum * scale);
    }
}

static unsigned parts_of(const struct plait_batchnorm *b)
{
    size_t parts = ceil_div(b->rows, 256);

    return (unsigned)(parts < most_parts ? parts : most_parts);
}

template <typename F>
static void pair_sums(struct plait_queue *q, const struct plait_batchnorm *b,
                      float *part, F f)
{
    dim3 grid((unsigned)ceil_div(b->C, lanes), parts_of(b),
              (unsigned)b->groups);
    dim3 block(lanes, threads / lanes);

    pair_sums_kernel<<<grid, block, 0, q->stream>>>(part, b->rows, b->C, f);
}

static float *parts_room(struct plait_queue *q, const struct plait_batchnorm *b)
{
    return (float *)cuda_scratch(q, b->groups * parts_of(b) * 2 * b->C *
                                        sizeof(float));
}

/* -- statistics ---------------------------------------------------------- */

/* What is summed; these functors get group, element and channel. */
struct value_of {
    const float *x;

    __device__ pair operator()(size_t, size_t i, size_t) const
    {
        return pair{x[i], 0};
    }
};

struct square_of {
    const float *x, *mean;
    size_t C;

    __device__ pair operator()(size_t g, size_t i, size_t c) const
    {
        float d = x[i] - mean[g * C + c];

        return pair{d * d, 0};
    }
};

static int batchnorm_stats(struct plait_queue *q,
                           const struct plait_batchnorm *b, float *stats,
                           const float *x)
{
    size_t C = b->C, n = b->groups * C;
    unsigned blocks = grid_for(q, n, threads), parts = parts_of(b);
    float *part;

    if (cuda_enter(q) != 0)
        return -1;
    part = parts_room(q, b);
    if (part == NULL)
        return -1;
    pair_sums(q, b, part, value_of{x});
    join_parts_kernel<<<blocks, threads, 0, q->stream>>>(
        stats, part, parts, b->groups, C, 1, C, 0, 1 / (float)b->rows);
    pair_sums(q, b, part, square_of{x, stats, C});
    join_parts_kernel<<<blocks, threads, 0, q->stream>>>(
        stats + n, part, parts, b->groups, C, 1, C, 0, 1 / (float)b->rows);
    return cuda_leave(q, "batchnorm_stats");
}

static __global__ void join_kernel(float *stats, const float *each, size_t n,
                                   size_t C)
{
    size_t c = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    double mean = 0, var = 0;

    if (c >= C)
        return;
    for (size_t i = 0; i < n; i++)
        mean += each[i * 2 * C + c];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) {
        double d = each[i * 2 * C + c] - mean;

        var += each[(i * 2 + 1) * C + c] + d * d;
    }
    stats[c] = (float)mean;
    stats[C + c] = (float)(var / (double)n);
}

static int batchnorm_join(struct plait_queue *q, float *stats,
                          const float *each, size_t n, size_t C)
{
    if (cuda_enter(q) != 0)
        return -1;
    join_kernel<<<(unsigned)ceil_div(C, threads), threads, 0, q->stream>>>(
        stats, each, n, C);
    return cuda_leave(q, "batchnorm_join");
}

static __global__ void fold_kernel(float *delta, const float *running,
                                   const float *stats, size_t groups, size_t C,
                                   float weight, float keep, float unbias)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t k = i / C, c = i % C;
    double sum = 0, w = weight;

    if (i >= 2 * C)
        return;
    for (size_t g = groups; g-- > 0; w *= keep)
        sum += w * (stats[(k * groups + g) * C + c] *
                        (k > 0 ? (double)unbias : 1.0) -
                    running[i]);
    delta[i] = (float)(delta[i] + sum);
}

static int batchnorm_fold(struct plait_queue *q, float *delta,
                          const float *running, const float *stats,
                          size_t groups, size_t C, float weight, float keep,
                          float unbias)
{
    if (cuda_enter(q) != 0)
        return -1;
    fold_kernel<<<(unsigned)ceil_div(2 * C, threads), threads, 0, q->stream>>>(
        delta, running, stats, groups, C, weight, keep, unbias);
    return cuda_leave(q, "batchnorm_fold");
}

/* -- forward and backward ------------------------------------------------- */

/* Calls f(g, i, c) for every element. */
template <typename F>
static __global__ void element_kernel(size_t n, size_t group, size_t C, F f)
{
    GRID_LOOP(i, n)
    f(i / group, i, i % C);
}

template <typename F>
static int each_element(struct plait_queue *q, const struct plait_batchnorm *b,
                        const char *op, F f)
{
    size_t n = b->groups * b->rows * b->C;

    if (cuda_enter(q) != 0)
        return -1;
    element_kernel<<<grid_for(q, n, threads), threads, 0, q->stream>>>(
        n, b->rows * b->C, b->C, f);
    return cuda_leave(q, op);
}

/* Normalises elements by a batch norm's statistics. */
struct normaliser {
    const float *stats, *var;
    size_t C;
    float eps;

    __device__ float rstd(size_t g, size_t c) const
    {
        return rsqrtf(var[g * C + c] + eps);
    }

    __device__ float apply(float x, size_t g, size_t c) const
    {
        return (x - stats[g * C + c]) * rstd(g, c);
    }
};

static normaliser normaliser_of(const struct plait_batchnorm *b,
                                const float *stats)
{
    return normaliser{stats, stats + b->groups * b->C, b->C, b->eps};
}

struct forward_element {
    normaliser norm;
    float *out;
    const float *x, *gamma, *beta, *residual;
    int relu;

    __device__ void operator()(size_t g, size_t i, size_t c) const
    {
        float y = norm.apply(x[i], g, c) * gamma[c] + beta[c];

        if (residual != NULL)
            y += residual[i];
        out[i] = relu && y < 0 ? 0 : y;
    }
};

static int batchnorm_forward(struct plait_queue *q,
                             const struct plait_batchnorm *b, float *out,
                             const float *x, const float *stats,
                             const float *gamma, const float *beta,
                             const float *residual, int relu)
{
    return each_element(q, b, "batchnorm_forward",
                        forward_element{normaliser_of(b, stats), out, x, gamma,
                                        beta, residual, relu});
}

static __device__ inline float masked(const float *dout, const float *out,
                                      size_t i)
{
    return out != NULL && out[i] <= 0 ? 0 : dout[i];
}

struct gradient_of {
    normaliser norm;
    const float *dout, *out, *x;

    __device__ pair operator()(size_t g, size_t i, size_t c) const
    {
        float d = masked(dout, out, i);

        return pair{d, d * norm.apply(x[i], g, c)};
    }
};

static int batchnorm_sums(struct plait_queue *q,
                          const struct plait_batchnorm *b, float *sums,
                          const float *dout, const float *out, const float *x,
                          const float *stats)
{
    size_t C = b->C;
    float *part;

    if (cuda_enter(q) != 0)
        return -1;
    part = parts_room(q, b);
    if (part == NULL)
        return -1;
    pair_sums(q, b, part, gradient_of{normaliser_of(b, stats), dout, out, x});
    join_parts_kernel<<<grid_for(q, b->groups * 2 * C, threads), threads, 0,
                        q->stream>>>(sums, part, parts_of(b), b->groups, C, 2,
                                     2 * C, C, 1);
    return cuda_leave(q, "batchnorm_sums");
}

struct backward_element {
    normaliser norm;
    float *dx, *dresidual;
    const float *dout, *out, *x, *gamma, *sums;
    float share;

    __device__ void operator()(size_t g, size_t i, size_t c) const
    {
        const float *s = sums + g * 2 * norm.C + c;
        float d = masked(dout, out, i), y = norm.apply(x[i], g, c);

        if (dresidual != NULL)
            dresidual[i] = d;
        dx[i] =
            gamma[c] * norm.rstd(g, c) * (d - (s[0] + y * s[norm.C]) * share);
    }
};

static int batchnorm_backward(struct plait_queue *q,
                              const struct plait_batchnorm *b, float *dx,
                              float *dresidual, const float *dout,
                              const float *out, const float *x,
                              const float *stats, const float *gamma,
                              const float *sums, size_t count)
{
    return each_element(q, b, "batchnorm_backward",
                        backward_element{normaliser_of(b, stats), dx, dresidual,
                                         dout, out, x, gamma, sums,
                                         1 / (float)count});
}

void cuda_batchnorm_ops(struct plait_image_ops *ops)
{
    ops->batchnorm_stats = batchnorm_stats;
    ops->batchnorm_join = batchnorm_join;
    ops->batchnorm_forward = batchnorm_forward;
    ops->batchnorm_sums = batchnorm_sums;
    ops->batchnorm_backward = batchnorm_backward;
    ops->batchnorm_fold = batchnorm_fold;
}

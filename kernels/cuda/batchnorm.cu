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

/* How the sums of all parts are joined: out[g * stride_g + k * stride_k + c] =
 * scale * the sum over the parts, for the first `kinds` (1 or 2) of each
 * pair. */
struct joined {
    float *out;
    int kinds;
    size_t stride_g, stride_k;
    float scale;
};

static __global__ void join_parts_kernel(joined j, const float *part,
                                         unsigned parts, size_t groups,
                                         size_t C)
{
    size_t kinds = (size_t)j.kinds, n = groups * kinds * C;

    GRID_LOOP(i, n)
    {
        size_t c = i % C, k = i / C % kinds, g = i / C / kinds;
        double sum = 0;

        for (unsigned p = 0; p < parts; p++)
            sum += part[((g * parts + p) * 2 + k) * C + c];
        j.out[g * j.stride_g + k * j.stride_k + c] = (float)(sum * j.scale);
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

static void join_parts(struct plait_queue *q, const struct plait_batchnorm *b,
                       const float *part, joined j)
{
    unsigned blocks = grid_for(q, b->groups * j.kinds * b->C, threads);

    join_parts_kernel<<<blocks, threads, 0, q->stream>>>(j, part, parts_of(b),
                                                         b->groups, b->C);
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
                           const struct plait_batchnorm *b)
{
    size_t C = b->C;
    float *part, *var = b->stats + b->groups * C, share = 1 / (float)b->rows;

    if (cuda_enter(q) != 0)
        return -1;
    part = parts_room(q, b);
    if (part == NULL)
        return -1;
    pair_sums(q, b, part, value_of{b->x});
    join_parts(q, b, part, joined{b->stats, 1, C, 0, share});
    pair_sums(q, b, part, square_of{b->x, b->stats, C});
    join_parts(q, b, part, joined{var, 1, C, 0, share});
    return cuda_leave(q, "batchnorm_stats");
}

static __global__ void join_kernel(struct plait_batchnorm_join j)
{
    size_t c = (size_t)blockIdx.x * blockDim.x + threadIdx.x, C = j.C;
    double mean = 0, var = 0;

    if (c >= C)
        return;
    for (size_t i = 0; i < j.n; i++)
        mean += j.each[i * 2 * C + c];
    mean /= (double)j.n;
    for (size_t i = 0; i < j.n; i++) {
        double d = j.each[i * 2 * C + c] - mean;

        var += j.each[(i * 2 + 1) * C + c] + d * d;
    }
    j.stats[c] = (float)mean;
    j.stats[C + c] = (float)(var / (double)j.n);
}

static int batchnorm_join(struct plait_queue *q,
                          const struct plait_batchnorm_join *j)
{
    if (cuda_enter(q) != 0)
        return -1;
    join_kernel<<<(unsigned)ceil_div(j->C, threads), threads, 0, q->stream>>>(
        *j);
    return cuda_leave(q, "batchnorm_join");
}

static __global__ void fold_kernel(struct plait_batchnorm_fold f)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, C = f.C;
    size_t k = i / C, c = i % C;
    double sum = 0, w = f.weight;

    if (i >= 2 * C)
        return;
    for (size_t g = f.groups; g-- > 0; w *= f.keep)
        sum += w * (f.stats[(k * f.groups + g) * C + c] *
                        (k > 0 ? (double)f.unbias : 1.0) -
                    f.running[i]);
    f.delta[i] = (float)(f.delta[i] + sum);
}

static int batchnorm_fold(struct plait_queue *q,
                          const struct plait_batchnorm_fold *f)
{
    if (cuda_enter(q) != 0)
        return -1;
    fold_kernel<<<(unsigned)ceil_div(2 * f->C, threads), threads, 0,
                  q->stream>>>(*f);
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
static __device__ inline float rstd_of(const struct plait_batchnorm &b,
                                       size_t g, size_t c)
{
    return rsqrtf(b.stats[(b.groups + g) * b.C + c] + b.eps);
}

static __device__ inline float normalised(const struct plait_batchnorm &b,
                                          size_t i, size_t g, size_t c)
{
    return (b.x[i] - b.stats[g * b.C + c]) * rstd_of(b, g, c);
}

struct forward_element {
    struct plait_batchnorm b;

    __device__ void operator()(size_t g, size_t i, size_t c) const
    {
        float y = normalised(b, i, g, c) * b.gamma[c] + b.beta[c];

        if (b.residual != NULL)
            y += b.residual[i];
        b.out[i] = b.relu && y < 0 ? 0 : y;
    }
};

static int batchnorm_forward(struct plait_queue *q,
                             const struct plait_batchnorm *b)
{
    return each_element(q, b, "batchnorm_forward", forward_element{*b});
}

static __device__ inline float masked(const struct plait_batchnorm &b, size_t i)
{
    return b.out != NULL && b.out[i] <= 0 ? 0 : b.dout[i];
}

struct gradient_of {
    struct plait_batchnorm b;

    __device__ pair operator()(size_t g, size_t i, size_t c) const
    {
        float d = masked(b, i);

        return pair{d, d * normalised(b, i, g, c)};
    }
};

static int batchnorm_sums(struct plait_queue *q,
                          const struct plait_batchnorm *b)
{
    size_t C = b->C;
    float *part;

    if (cuda_enter(q) != 0)
        return -1;
    part = parts_room(q, b);
    if (part == NULL)
        return -1;
    pair_sums(q, b, part, gradient_of{*b});
    join_parts(q, b, part, joined{b->sums, 2, 2 * C, C, 1});
    return cuda_leave(q, "batchnorm_sums");
}

struct backward_element {
    struct plait_batchnorm b;
    float share;

    __device__ void operator()(size_t g, size_t i, size_t c) const
    {
        const float *s = b.sums + g * 2 * b.C + c;
        float d = masked(b, i), y = normalised(b, i, g, c);

        if (b.dresidual != NULL)
            b.dresidual[i] = d;
        b.dx[i] =
            b.gamma[c] * rstd_of(b, g, c) * (d - (s[0] + y * s[b.C]) * share);
    }
};

static int batchnorm_backward(struct plait_queue *q,
                              const struct plait_batchnorm *b)
{
    return each_element(q, b, "batchnorm_backward",
                        backward_element{*b, 1 / (float)b->count});
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

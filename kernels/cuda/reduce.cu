/* SPDX-License-Identifier: Apache-2.0 */
/* Sums in two stages: a fixed number of blocks computes partial sums, and a
 * second kernel adds those. Without atomics, so that on one kind of GPU the
 * same input always gives the same bits. */
#include "kernels/cuda/common.cuh"
#include "kernels/moments.h"

/* -- sums to one number -------------------------------------------------- */

static const int sum_threads = 512;

/* The number of elements that a block sums at a time, and how many lists one
 * launch takes: a kernel's parameters are limited to 4 KiB. */
static const unsigned sum_chunk = 32768;
static const int sum_lists = 160;

struct squares {
    struct {
        const float *x;
        size_t n;
        unsigned first; /* number of its first chunk within the launch */
    } list[sum_lists];
    int nlists;
    unsigned chunks;
};

static __device__ inline double chunk_squares(const float *x, unsigned n)
{
    unsigned packed = (uintptr_t)x % 16 == 0 ? n / 4 : 0;
    double sum = 0;

    for (unsigned i = threadIdx.x; i < packed; i += blockDim.x) {
        pack<float> v = load_pack(x + i * 4);

        for (int j = 0; j < 4; j++)
            sum += (double)v.v[j] * v.v[j];
    }
    for (unsigned i = packed * 4 + threadIdx.x; i < n; i += blockDim.x)
        sum += (double)x[i] * x[i];
    return sum;
}

static __global__ void sum_squares_kernel(double *part, struct squares s)
{
    __shared__ double shared[32];
    double sum = 0;
    int l = 0;

    for (unsigned c = blockIdx.x; c < s.chunks; c += gridDim.x) {
        size_t at;

        while (l + 1 < s.nlists && s.list[l + 1].first <= c)
            l++;
        at = (size_t)(c - s.list[l].first) * sum_chunk;
        sum +=
            chunk_squares(s.list[l].x + at,
                          (unsigned)min(s.list[l].n - at, (size_t)sum_chunk));
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

static __global__ void sum_doubles_kernel(double *dst, const double *src,
                                          size_t n)
{
    __shared__ double shared[32];
    double sum = 0;

    for (size_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += src[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        *dst += sum;
}

void cuda_sum_doubles(struct plait_queue *q, double *dst, const double *src,
                      size_t n)
{
    sum_doubles_kernel<<<1, sum_threads, 0, q->stream>>>(dst, src, n);
}

/* Fills in the lists of one launch, from lists[0] on; returns how many it
 * took. */
static int take_lists(struct squares *s, const struct plait_floats *lists,
                      int n)
{
    int i;

    s->nlists = 0;
    s->chunks = 0;
    for (i = 0; i < n && s->nlists < sum_lists; i++) {
        if (lists[i].n == 0)
            continue;
        s->list[s->nlists].x = lists[i].x;
        s->list[s->nlists].n = lists[i].n;
        s->list[s->nlists++].first = s->chunks;
        s->chunks += (unsigned)ceil_div(lists[i].n, sum_chunk);
    }
    return i;
}

static int sum_squares(struct plait_queue *q, double *result,
                       const struct plait_floats *lists, int n)
{
    unsigned most = (unsigned)q->dev->sms * (2048 / sum_threads) * 4;
    size_t launches = ceil_div((size_t)n, sum_lists), parts = 0;
    double *part;

    if (cuda_enter(q) != 0)
        return -1;
    part = (double *)cuda_scratch(q, launches * most * sizeof(*part));
    if (part == NULL)
        return -1;
    for (int taken = 0; taken < n;) {
        struct squares s;
        unsigned blocks;

        taken += take_lists(&s, lists + taken, n - taken);
        blocks = s.chunks < most ? s.chunks : most;
        if (blocks > 0)
            sum_squares_kernel<<<blocks, sum_threads, 0, q->stream>>>(
                part + parts, s);
        parts += blocks;
    }
    if (parts > 0)
        cuda_sum_doubles(q, result, part, parts);
    return cuda_leave(q, "sum_squares");
}

static __global__ void clip_scale_kernel(struct plait_clip c)
{
    double total = sqrt(*c.sum_squares) * c.factor;

    if (!isfinite(total))
        *c.scale = CUDART_NAN_F;
    else if (c.clip > 0)
        *c.scale = (float)(fmin(1.0, c.clip / (total + 1e-6)) * c.factor);
    else
        *c.scale = (float)c.factor;
    *c.norm = (float)total;
}

static int clip_scale(struct plait_queue *q, const struct plait_clip *c)
{
    if (cuda_enter(q) != 0)
        return -1;
    clip_scale_kernel<<<1, 1, 0, q->stream>>>(*c);
    return cuda_leave(q, "clip_scale");
}

/* -- sums over rows ------------------------------------------------------- */

static const int tile = 32, lanes = 8, sum_tile = 8, sum_lanes = 128;

/* Thread (x, y) sums rows y, y + blockDim.y, .. of column x. A block has as few
 * columns as fill whole sectors of memory: there are at most thousands of
 * columns, and with 32 per block most multiprocessors would be idle. A warp
 * adds its 4 rows, then the warps' sums are added in order. */
static __global__ void sum_rows_kernel(float *dst, float *second,
                                       const float *part, size_t rows,
                                       size_t cols)
{
    __shared__ float shared[sum_lanes / 4][sum_tile];
    size_t col = (size_t)blockIdx.x * sum_tile + threadIdx.x;
    float sum = 0;

    if (blockIdx.y > 0) {
        dst = second;
        part += rows * cols;
    }
    if (col < cols) {
        for (size_t r = threadIdx.y; r < rows; r += blockDim.y)
            sum += part[r * cols + col];
    }
    sum += __shfl_xor_sync(0xffffffff, sum, sum_tile);
    sum += __shfl_xor_sync(0xffffffff, sum, 2 * sum_tile);
    if (threadIdx.y % 4 == 0)
        shared[threadIdx.y / 4][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        sum = 0;
        for (unsigned i = 0; i < blockDim.y / 4; i++)
            sum += shared[i][threadIdx.x];
        dst[col] += sum;
    }
}

void cuda_sum_rows(struct plait_queue *q, float *dst, float *second,
                   const float *part, size_t rows, size_t cols)
{
    unsigned deep = rows < sum_lanes ? (unsigned)ceil_div(rows, 4) * 4
                                     : (unsigned)sum_lanes;

    sum_rows_kernel<<<dim3((unsigned)ceil_div(cols, sum_tile),
                           second != NULL ? 2 : 1),
                      dim3(sum_tile, deep), 0, q->stream>>>(dst, second, part,
                                                            rows, cols);
}

/* Block (x, y) sums V * tile columns over a share of the rows; part [gridDim.y,
 * O]. */
template <typename T, int V>
static __global__ void column_sums_kernel(float *part, const T *dout, size_t N,
                                          size_t O)
{
    __shared__ float shared[lanes][tile * V];
    size_t col = ((size_t)blockIdx.x * tile + threadIdx.x) * V;
    size_t first = (size_t)blockIdx.y * lanes + threadIdx.y;
    size_t step = (size_t)gridDim.y * lanes;
    int at = threadIdx.y * tile + threadIdx.x;
    float sum[V] = {};

    if (col < O) {
        for (size_t r = first; r < N; r += step) {
            alignas(16) T v[V];

            copy_values<T, V>(v, dout + r * O + col);
            for (int j = 0; j < V; j++)
                sum[j] += to_float(v[j]);
        }
    }
    for (int j = 0; j < V; j++)
        shared[threadIdx.y][threadIdx.x * V + j] = sum[j];
    __syncthreads();
    for (int i = at; i < tile * V; i += tile * lanes) {
        size_t c = (size_t)blockIdx.x * tile * V + i;
        float total = 0;

        for (int k = 0; k < lanes; k++)
            total += shared[k][i];
        if (c < O)
            part[blockIdx.y * O + c] = total;
    }
}

void cuda_column_sums(struct plait_queue *q, enum plait_dtype type,
                      float *dbias, const void *dout, size_t N, size_t O)
{
    if (N * O == 0)
        return;
    for_type(type, [&](auto zero) {
        typedef decltype(zero) T;
        constexpr int V = pack<T>::n;
        bool packs = rows_aligned16<T>(dout, O);
        size_t across = ceil_div(O, packs ? tile * V : tile);
        size_t down = ceil_div((size_t)q->dev->sms * 8, across);
        float *part;

        down = down < ceil_div(N, lanes) ? down : ceil_div(N, lanes);
        part = (float *)cuda_scratch(q, down * O * sizeof(*part));
        if (part == NULL)
            return;
        if (packs)
            column_sums_kernel<T, V>
                <<<dim3((unsigned)across, (unsigned)down), dim3(tile, lanes), 0,
                   q->stream>>>(part, (const T *)dout, N, O);
        else
            column_sums_kernel<T, 1>
                <<<dim3((unsigned)across, (unsigned)down), dim3(tile, lanes), 0,
                   q->stream>>>(part, (const T *)dout, N, O);
        cuda_sum_rows(q, dbias, NULL, part, down, O);
    });
}

static int bias_backward(struct plait_queue *q,
                         const struct plait_bias_backward *b)
{
    if (cuda_enter(q) != 0)
        return -1;
    cuda_column_sums(q, b->type, b->dbias, b->dout, b->N, b->O);
    return cuda_leave(q, "bias_backward");
}

int cuda_has_code(void)
{
    cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, sum_rows_kernel) == cudaSuccess;
}

void cuda_reduce_ops(struct plait_ops *ops)
{
    ops->sum_squares = sum_squares;
    ops->clip_scale = clip_scale;
    ops->bias_backward = bias_backward;
}

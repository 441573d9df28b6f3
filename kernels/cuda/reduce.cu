/* SPDX-License-Identifier: Apache-2.0 */
/* Sums in two stages: a fixed number of blocks leaves partial sums, a second
 * kernel adds those up. No atomics: on one kind of GPU the same input gives
 * the same bits, every time. */
#include "kernels/cuda/common.cuh"

/* -- sums to one number -------------------------------------------------- */

static const int sum_threads = 512;

static __global__ void sum_squares_kernel(double *part, const float *x,
                                          size_t packed, size_t n)
{
    __shared__ double shared[32];
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t step = (size_t)gridDim.x * blockDim.x;
    double sum = 0;

    for (size_t i = first; i < packed / 4; i += step) {
        pack<float> v = load_pack(x + i * 4);

        for (int j = 0; j < 4; j++)
            sum += (double)v.v[j] * v.v[j];
    }
    for (size_t i = packed + first; i < n; i += step)
        sum += (double)x[i] * x[i];
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

static int sum_squares(struct plait_queue *q, double *result, const float *x,
                       size_t n)
{
    size_t packed = aligned16(x) ? n / 4 * 4 : 0;
    double *part;
    unsigned blocks;

    if (cuda_enter(q) != 0)
        return -1;
    if (n == 0)
        return 0;
    blocks = grid_for(q, ceil_div(n, 4), sum_threads);
    part = (double *)cuda_scratch(q, blocks * sizeof(*part));
    if (part == NULL)
        return -1;
    sum_squares_kernel<<<blocks, sum_threads, 0, q->stream>>>(part, x, packed,
                                                              n);
    cuda_sum_doubles(q, result, part, blocks);
    return cuda_leave(q, "sum_squares");
}

static __global__ void clip_scale_kernel(float *scale, float *norm,
                                         const double *sum_squares, float clip)
{
    double total = sqrt(*sum_squares);
    float s = 1;

    if (!isfinite(total))
        s = CUDART_NAN_F;
    else if (clip > 0)
        s = (float)fmin(1.0, clip / (total + 1e-6));
    *scale = s;
    *norm = (float)total;
}

static int clip_scale(struct plait_queue *q, float *scale, float *norm,
                      const double *sum_squares, float clip)
{
    if (cuda_enter(q) != 0)
        return -1;
    clip_scale_kernel<<<1, 1, 0, q->stream>>>(scale, norm, sum_squares, clip);
    return cuda_leave(q, "clip_scale");
}

/* -- sums over rows ------------------------------------------------------- */

static const int tile = 32, lanes = 8;

/* Thread (x, y) takes rows y, y + lanes, .. of column x; then the lanes of a
 * column are added in order. */
static __global__ void sum_rows_kernel(float *dst, const float *part,
                                       size_t rows, size_t cols)
{
    __shared__ float shared[lanes][tile];
    size_t col = (size_t)blockIdx.x * tile + threadIdx.x;
    float sum = 0;

    if (col < cols) {
        for (size_t r = threadIdx.y; r < rows; r += lanes)
            sum += part[r * cols + col];
    }
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        sum = 0;
        for (int i = 0; i < lanes; i++)
            sum += shared[i][threadIdx.x];
        dst[col] += sum;
    }
}

void cuda_sum_rows(struct plait_queue *q, float *dst, const float *part,
                   size_t rows, size_t cols)
{
    sum_rows_kernel<<<(unsigned)ceil_div(cols, tile), dim3(tile, lanes), 0,
                      q->stream>>>(dst, part, rows, cols);
}

/* Block (x, y): V * tile columns, a share of the rows; part [gridDim.y, O] */
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

            if (V > 1)
                *(uint4 *)v = *(const uint4 *)(dout + r * O + col);
            else
                v[0] = dout[r * O + col];
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
        cuda_sum_rows(q, dbias, part, down, O);
    });
}

static int bias_backward(struct plait_queue *q, enum plait_dtype type,
                         float *dbias, const void *dout, size_t N, size_t O)
{
    if (cuda_enter(q) != 0)
        return -1;
    cuda_column_sums(q, type, dbias, dout, N, O);
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

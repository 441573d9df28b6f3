/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of heads, copied from matrix to matrix, summed over the heads,
 * normalised and tempered. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/positions.cuh"

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

/* A warp has a head of a row; the sum over its lanes is the same in all. */
template <typename T, int V>
static __global__ void head_norm_kernel(struct plait_head_norm n)
{
    size_t warps = (size_t)gridDim.x * (blockDim.x / 32);
    int lane = threadIdx.x % 32, D = n.head_dim;

    for (size_t i = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
         i < n.N * n.heads; i += warps) {
        size_t at = i / n.heads * n.stride + i % n.heads * D;
        T *x = (T *)n.x + at;
        const T *y = n.y != NULL ? (const T *)n.y + at : x;
        float sum = 0, mean, rstd, a[V], b[V];

        for (int c = lane * V; c < D; c += 32 * V) {
            load_values<T, V>(a, x + c);
            load_values<T, V>(b, y + c);
            for (int j = 0; j < V; j++)
                sum += a[j] * b[j];
        }
        mean = warp_sum(sum) / D;
        rstd = n.y != NULL ? n.rstd[i] : 1 / sqrtf(mean + n.eps);
        for (int c = lane * V; c < D; c += 32 * V) {
            load_values<T, V>(a, x + c);
            load_values<T, V>(b, y + c);
            for (int j = 0; j < V; j++)
                a[j] = rstd * (n.y != NULL ? a[j] - mean * b[j] : a[j]);
            store_values<T, V>(x + c, a);
        }
        if (n.y == NULL && lane == 0)
            n.rstd[i] = rstd;
    }
}

static int head_norm(struct plait_queue *q, const struct plait_head_norm *n)
{
    size_t lanes = n->N * n->heads * 32;

    return cuda_launch(q, "head_norm", n->type, lanes, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(n->x, n->stride) && aligned16(n->y) &&
                     n->head_dim % pack<T>::n == 0;

        for_width<T>(packs, [&](auto width) {
            head_norm_kernel<T, width.value>
                <<<grid_for(q, lanes, threads), threads, 0, q->stream>>>(*n);
        });
    });
}

/* A block has a row at a time: fp64 is slow on most GPUs, and the logarithm is
 * the row's, not each thread's. */
template <typename T, int V>
static __global__ void temper_kernel(struct plait_temper t)
{
    __shared__ float by;

    for (size_t row = blockIdx.x; row < t.N; row += gridDim.x) {
        T *x = (T *)t.x + row * t.stride;

        if (threadIdx.x == 0) {
            long long reach = (position_of(t.at, row) + 1) / t.floor;

            by = (float)(1 + t.scale * log1p((double)reach));
        }
        __syncthreads();
        for (size_t c = threadIdx.x * V; c < t.C; c += blockDim.x * V) {
            float v[V];

            load_values<T, V>(v, x + c);
            for (int j = 0; j < V; j++)
                v[j] *= by;
            store_values<T, V>(x + c, v);
        }
        __syncthreads();
    }
}

static int temper(struct plait_queue *q, const struct plait_temper *t)
{
    return cuda_launch(q, "temper", t->type, t->N * t->C, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs =
            rows_aligned16<T>(t->x, t->stride) && t->C % pack<T>::n == 0;

        for_width<T>(packs, [&](auto width) {
            constexpr int V = width.value;

            size_t warps = ceil_div(t->C / V, 32);
            unsigned block =
                warps < threads / 32 ? 32 * (unsigned)warps : threads;

            temper_kernel<T, V>
                <<<grid_for(q, t->N * block, block), block, 0, q->stream>>>(*t);
        });
    });
}

void cuda_heads_ops(struct plait_ops *ops)
{
    ops->head_norm = head_norm;
    ops->temper = temper;
    ops->copy_heads = copy_heads;
    ops->sum_heads = sum_heads;
}

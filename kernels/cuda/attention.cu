/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention in tiles, the scores never in device memory (Dao et al.
 * 2022; the backward is split in two kernels, one per key tile and one per
 * query tile, so that no two blocks add to the same place and the result is
 * the same every time). Here in fp32 arithmetic for any type, any head
 * dimension up to 256; attention_mma.cu has the tensor-core kernels. */
#include <errno.h>
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/common.cuh"

/* A block has 32 rows (queries or keys), 8 threads a row, and goes over the
 * other side 32 at a time. Thread x of a row has columns x, x + 8, .. */
static const int tile = 32, lanes = 8, threads = tile * lanes;
static const int head_dim_max = 256;

/* How many keys, from the first, the query sees. */
static __device__ inline int64_t seen(const struct plait_attention &a,
                                      int64_t query)
{
    int64_t n = a.q_pos + query - a.k_pos + 1;

    return n < 0 ? 0 : n > a.k_len ? a.k_len : n;
}

/* rows first .. first + tile of src, `stride` elements apart, to dst
 * [tile, D + 1]; rows from `end` on are 0. */
template <typename T>
static __device__ inline void load_tile(float *dst, const T *src, size_t stride,
                                        int first, int end, int D)
{
    for (int i = threadIdx.x; i < tile * D; i += threads) {
        int row = i / D, d = i % D;

        dst[row * (D + 1) + d] =
            first + row < end
                ? to_float(src[(size_t)(first + row) * stride + d])
                : 0.0f;
    }
}

static __device__ inline float dot(const float *a, const float *b, int D)
{
    float sum = 0;

    for (int d = 0; d < D; d++)
        sum += a[d] * b[d];
    return sum;
}

/* acc[j] += sum over c of p[c] * x[c][lane + 8 j] */
template <int J>
static __device__ inline void add_rows(float *acc, const float *p,
                                       const float *x, int D)
{
    int lane = threadIdx.x % lanes;

    for (int c = 0; c < tile; c++) {
#pragma unroll
        for (int j = 0; j < J; j++)
            if (lane + lanes * j < D)
                acc[j] += p[c] * x[c * (D + 1) + lane + lanes * j];
    }
}

static __device__ inline float lanes_sum(float x)
{
    for (int i = lanes / 2; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffff, x, i);
    return x;
}

static __device__ inline float lanes_max(float x)
{
    for (int i = lanes / 2; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, i));
    return x;
}

/* -- forward ------------------------------------------------------------- */

template <typename T, int J>
static __global__ void __launch_bounds__(threads)
    forward_kernel(struct plait_attention a, T *out, float *lse, const T *Q,
                   const T *K, const T *V)
{
    extern __shared__ __align__(16) float shared[];
    int D = a.head_dim, h = blockIdx.y, kv = h / (a.q_heads / a.kv_heads);
    int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    int first = (gridDim.x - 1 - blockIdx.x) * tile, i = first + row;
    int last = min(first + tile, a.q_len) - 1;
    int64_t mine = seen(a, i), most = seen(a, last);
    float *q = shared, *k = q + tile * (D + 1), *v = k + tile * (D + 1);
    float *p = v + tile * (D + 1) + row * (tile + 1);
    float m = -CUDART_INF_F, l = 0, acc[J] = {};
    const T *Kb =
        K + (size_t)blockIdx.z * a.k_len * a.kv_stride + (size_t)kv * D;
    const T *Vb =
        V + (size_t)blockIdx.z * a.k_len * a.kv_stride + (size_t)kv * D;

    load_tile(q, Q + (size_t)blockIdx.z * a.q_len * a.q_stride + (size_t)h * D,
              a.q_stride, first, a.q_len, D);
    for (int k0 = 0; k0 < most; k0 += tile) {
        float s[tile / lanes], top = -CUDART_INF_F, base, shrink, sum = 0;

        __syncthreads();
        load_tile(k, Kb, a.kv_stride, k0, a.k_len, D);
        load_tile(v, Vb, a.kv_stride, k0, a.k_len, D);
        __syncthreads();
        for (int j = 0; j < tile / lanes; j++) {
            int c = lane + lanes * j;

            s[j] = k0 + c < mine
                       ? a.scale * dot(q + row * (D + 1), k + c * (D + 1), D)
                       : -CUDART_INF_F;
            top = fmaxf(top, s[j]);
        }
        top = fmaxf(m, lanes_max(top));
        base = top == -CUDART_INF_F ? 0 : top; /* no key seen yet */
        shrink = expf(m - base);
        for (int j = 0; j < tile / lanes; j++) {
            s[j] = expf(s[j] - base);
            p[lane + lanes * j] = s[j];
            sum += s[j];
        }
        m = top;
        l = l * shrink + lanes_sum(sum);
        for (int j = 0; j < J; j++)
            acc[j] *= shrink;
        __syncwarp(); /* a row lies within a warp */
        add_rows<J>(acc, p, v, D);
        __syncwarp();
    }
    if (i >= a.q_len)
        return;
    for (int j = 0; j < J; j++)
        if (lane + lanes * j < D)
            out[(((size_t)blockIdx.z * a.q_len + i) * a.q_heads + h) * D +
                lane + lanes * j] = from_float<T>(l == 0 ? 0 : acc[j] / l);
    if (lane == 0)
        lse[((size_t)blockIdx.z * a.q_heads + h) * a.q_len + i] =
            l == 0 ? -CUDART_INF_F : m + logf(l);
}

/* -- backward ------------------------------------------------------------ */

/* delta[b,h,i] = sum over d of dout * out (Dao et al. 2022), one warp each */
template <typename T>
static __global__ void delta_kernel(float *delta, const T *dout, const T *out,
                                    int q_len, int q_heads, int D, size_t n)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    size_t i, h, b;
    float sum = 0;

    if (at >= n)
        return;
    for (int d = threadIdx.x % 32; d < D; d += 32)
        sum += to_float(dout[at * D + d]) * to_float(out[at * D + d]);
    sum = warp_sum(sum);
    h = at % q_heads;
    i = at / q_heads % q_len;
    b = at / q_heads / q_len;
    if (threadIdx.x % 32 == 0)
        delta[(b * q_heads + h) * q_len + i] = sum;
}

/* The keys of one tile against every query of the heads that share them. */
template <typename T, int J>
static __global__ void __launch_bounds__(threads)
    key_gradient_kernel(struct plait_attention a, T *dK, T *dV, const T *dout,
                        const float *delta, const float *lse, const T *Q,
                        const T *K, const T *V)
{
    extern __shared__ __align__(16) float shared[];
    int D = a.head_dim, kv = blockIdx.y, group = a.q_heads / a.kv_heads;
    int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    int first = blockIdx.x * tile, key = first + row;
    size_t area = tile * (D + 1), b = blockIdx.z;
    float *k = shared, *v = k + area, *q = v + area, *o = q + area;
    float *p = o + area + row * (tile + 1);
    float *ds = o + area + tile * (tile + 1) + row * (tile + 1);
    float dk[J] = {}, dv[J] = {};
    size_t at = b * a.k_len * a.kv_stride + (size_t)kv * D;
    int64_t begin = a.k_pos + first - a.q_pos;
    int start = begin < 0 ? 0 : begin > a.q_len ? a.q_len : (int)begin;

    load_tile(k, K + at, a.kv_stride, first, a.k_len, D);
    load_tile(v, V + at, a.kv_stride, first, a.k_len, D);
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        const T *Qb = Q + b * a.q_len * a.q_stride + (size_t)h * D;
        const T *Ob = dout + (b * a.q_len * a.q_heads + h) * D;
        size_t stats = (b * a.q_heads + h) * a.q_len;

        for (int q0 = start / tile * tile; q0 < a.q_len; q0 += tile) {
            __syncthreads();
            load_tile(q, Qb, a.q_stride, q0, a.q_len, D);
            load_tile(o, Ob, (size_t)a.q_heads * D, q0, a.q_len, D);
            __syncthreads();
            for (int c = lane; c < tile; c += lanes) {
                int i = q0 + c;
                float w = 0, g = 0;

                if (i < a.q_len && key < seen(a, i)) {
                    w = expf(a.scale *
                                 dot(k + row * (D + 1), q + c * (D + 1), D) -
                             lse[stats + i]);
                    g = w * a.scale *
                        (dot(v + row * (D + 1), o + c * (D + 1), D) -
                         delta[stats + i]);
                }
                p[c] = w;
                ds[c] = g;
            }
            __syncwarp();
            add_rows<J>(dv, p, o, D);
            add_rows<J>(dk, ds, q, D);
            __syncwarp();
        }
    }
    if (key >= a.k_len)
        return;
    at += (size_t)key * a.kv_stride;
    for (int j = 0; j < J; j++) {
        int d = lane + lanes * j;

        if (d < D) {
            dK[at + d] = from_float<T>(to_float(dK[at + d]) + dk[j]);
            dV[at + d] = from_float<T>(to_float(dV[at + d]) + dv[j]);
        }
    }
}

/* The queries of one tile against every key they see. */
template <typename T, int J>
static __global__ void __launch_bounds__(threads)
    query_gradient_kernel(struct plait_attention a, T *dQ, const T *dout,
                          const float *delta, const float *lse, const T *Q,
                          const T *K, const T *V)
{
    extern __shared__ __align__(16) float shared[];
    int D = a.head_dim, h = blockIdx.y, kv = h / (a.q_heads / a.kv_heads);
    int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    int first = (gridDim.x - 1 - blockIdx.x) * tile, i = first + row;
    size_t area = tile * (D + 1), b = blockIdx.z;
    float *q = shared, *o = q + area, *k = o + area, *v = k + area;
    float *ds = v + area + row * (tile + 1);
    float dq[J] = {}, my_lse = 0, my_delta = 0;
    size_t at = b * a.q_len * a.q_stride + (size_t)h * D;
    size_t kv_at = b * a.k_len * a.kv_stride + (size_t)kv * D;
    int64_t mine = i < a.q_len ? seen(a, i) : 0;
    int64_t most = seen(a, min(first + tile, a.q_len) - 1);

    if (i < a.q_len) {
        my_lse = lse[(b * a.q_heads + h) * a.q_len + i];
        my_delta = delta[(b * a.q_heads + h) * a.q_len + i];
    }
    load_tile(q, Q + at, a.q_stride, first, a.q_len, D);
    load_tile(o, dout + (b * a.q_len * a.q_heads + h) * D,
              (size_t)a.q_heads * D, first, a.q_len, D);
    for (int k0 = 0; k0 < most; k0 += tile) {
        __syncthreads();
        load_tile(k, K + kv_at, a.kv_stride, k0, a.k_len, D);
        load_tile(v, V + kv_at, a.kv_stride, k0, a.k_len, D);
        __syncthreads();
        for (int c = lane; c < tile; c += lanes) {
            float g = 0;

            if (k0 + c < mine)
                g = expf(a.scale * dot(q + row * (D + 1), k + c * (D + 1), D) -
                         my_lse) *
                    a.scale *
                    (dot(o + row * (D + 1), v + c * (D + 1), D) - my_delta);
            ds[c] = g;
        }
        __syncwarp();
        add_rows<J>(dq, ds, k, D);
        __syncwarp();
    }
    if (i >= a.q_len)
        return;
    at += (size_t)i * a.q_stride;
    for (int j = 0; j < J; j++) {
        int d = lane + lanes * j;

        if (d < D)
            dQ[at + d] = from_float<T>(to_float(dQ[at + d]) + dq[j]);
    }
}

/* -- partial results ------------------------------------------------------- */

/* One warp joins one row of one head. */
template <typename T>
static __global__ void merge_kernel(T *out, float *lse, const T *out2,
                                    const float *lse2, int q_len, int q_heads,
                                    int D, size_t n)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    size_t h = at % q_heads, i = at / q_heads % q_len;
    size_t stat = (at / q_heads / q_len * q_heads + h) * q_len + i;
    float a, b, top, w1, w2;

    if (at >= n)
        return;
    a = lse[stat];
    b = lse2[stat];
    top = fmaxf(a, b);
    if (a == -CUDART_INF_F && b == -CUDART_INF_F)
        return; /* neither side saw a key */
    w1 = expf(a - top);
    w2 = expf(b - top);
    for (int d = threadIdx.x % 32; d < D; d += 32)
        out[at * D + d] = from_float<T>(
            (w1 * to_float(out[at * D + d]) + w2 * to_float(out2[at * D + d])) /
            (w1 + w2));
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        lse[stat] = top + logf(w1 + w2);
}

/* -- ops --------------------------------------------------------------------
 */

static bool has_work(const struct plait_attention *a)
{
    return a->batch > 0 && a->q_len > 0 && a->q_heads > 0;
}

/* fp32 has kernels for heads up to 64, 128 and 256; the other types, whose
 * usual shapes have kernels of their own, the last only. */
template <typename F>
static void for_head_dim(enum plait_dtype type, int D, F f)
{
    if (type == PLAIT_BF16_T)
        f(bf16(), std::integral_constant<int, 32>());
    else if (type == PLAIT_FP16_T)
        f(fp16(), std::integral_constant<int, 32>());
    else if (D <= 64)
        f(float(), std::integral_constant<int, 8>());
    else if (D <= 128)
        f(float(), std::integral_constant<int, 16>());
    else
        f(float(), std::integral_constant<int, 32>());
}

/* Shared memory of `tiles` tiles and `squares` score tiles, allowed to
 * `kernel`; 0: the queue has failed. */
static size_t shared_bytes(struct plait_queue *q, const void *kernel,
                           const char *op, int D, int tiles, int squares)
{
    size_t bytes = sizeof(float) * tile *
                   ((size_t)tiles * (D + 1) + (size_t)squares * (tile + 1));

    if (bytes > q->dev->smem_max) {
        plait_queue_fail(&q->head, EINVAL,
                         "%s: heads of %d need %zu bytes of shared memory, "
                         "the GPU has %zu",
                         op, D, bytes, q->dev->smem_max);
        return 0;
    }
    if (cuda_check(q, op,
                   cudaFuncSetAttribute(
                       kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       (int)bytes)) != 0)
        return 0;
    return bytes;
}

static int check(struct plait_queue *q, const struct plait_attention *a)
{
    if (a->head_dim > head_dim_max)
        return plait_queue_fail(&q->head, EINVAL,
                                "attention: heads of %d, the most is %d",
                                a->head_dim, head_dim_max);
    return 0;
}

static uintptr_t addresses(std::initializer_list<const void *> list)
{
    uintptr_t all = 0;

    for (const void *p : list)
        all |= (uintptr_t)p;
    return all;
}

static int attention_forward(struct plait_queue *q, enum plait_dtype type,
                             const struct plait_attention *a, void *out,
                             float *lse, const void *Q, const void *K,
                             const void *V)
{
    const char *op = "attention_forward";
    uintptr_t all = addresses({Q, K, V, out});
    int D = a->head_dim, cudnn;

    if (cuda_enter(q) != 0 || check(q, a) != 0)
        return -1;
    if (!has_work(a))
        return 0;
    cudnn = cuda_cudnn_takes(q, type, a, all);
    if (cudnn > 0)
        cudnn = cuda_cudnn_forward(q, type, a, out, lse, Q, K, V);
    if (cudnn != 0)
        return cudnn < 0 ? -1 : cuda_leave(q, op);
    if (cuda_attention_mma_fits(type, a, all)) {
        cuda_attention_mma_forward(q, type, a, out, lse, Q, K, V);
        return cuda_leave(q, op);
    }
    for_head_dim(type, D, [&](auto zero, auto j) {
        typedef decltype(zero) T;
        auto kernel = forward_kernel<T, decltype(j)::value>;
        size_t bytes = shared_bytes(q, (const void *)kernel, op, D, 3, 1);
        dim3 grid((unsigned)ceil_div(a->q_len, tile), a->q_heads, a->batch);

        if (bytes != 0)
            kernel<<<grid, threads, bytes, q->stream>>>(
                *a, (T *)out, lse, (const T *)Q, (const T *)K, (const T *)V);
    });
    return cuda_leave(q, op);
}

/* dst[rows, stride] += src[rows, cols]: three of them, a warp a row. */
template <typename T> struct gradients {
    T *dst[3];
    const T *src[3];
    size_t stride[3];
    int cols[3];
    size_t rows;
};

template <typename T>
static __global__ void
add_gradients_kernel(const __grid_constant__ struct gradients<T> g)
{
    constexpr int V = pack<T>::n;
    int which = blockIdx.y, lane = threadIdx.x % 32;
    size_t row = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    T *dst = g.dst[which] + row * g.stride[which];
    const T *src = g.src[which] + row * (size_t)g.cols[which];

    if (row >= g.rows)
        return;
    for (int c = lane * V; c < g.cols[which]; c += 32 * V) {
        pack<T> x = load_pack(dst + c), y = load_pack(src + c);

        for (int j = 0; j < V; j++)
            x.v[j] = from_float<T>(to_float(x.v[j]) + to_float(y.v[j]));
        store_pack(dst + c, x);
    }
}

void cuda_add_gradients(struct plait_queue *q, enum plait_dtype type,
                        const struct plait_attention *a, void *dQ, void *dK,
                        void *dV, const void *dense_dQ, const void *dense_dK,
                        const void *dense_dV)
{
    size_t rows = (size_t)a->batch * a->q_len;
    int cols = a->q_heads * a->head_dim, kv_cols = a->kv_heads * a->head_dim;

    for_type(type, [&](auto zero) {
        typedef decltype(zero) T;
        struct gradients<T> g = {
            {(T *)dQ, (T *)dK, (T *)dV},
                {(const T *)dense_dQ, (const T *)dense_dK, (const T *)dense_dV},
                {a->q_stride, a->kv_stride, a->kv_stride},
                {cols, kv_cols, kv_cols}, rows
        };

        add_gradients_kernel<<<dim3((unsigned)ceil_div(rows, 8), 3), 256, 0,
                               q->stream>>>(g);
    });
}

static void backward_plain(struct plait_queue *q, enum plait_dtype type,
                           const struct plait_attention *a, void *dQ, void *dK,
                           void *dV, const void *dout, const float *delta,
                           const float *lse, const void *Q, const void *K,
                           const void *V)
{
    const char *op = "attention_backward";
    int D = a->head_dim;

    for_head_dim(type, D, [&](auto zero, auto j) {
        typedef decltype(zero) T;
        auto keys = key_gradient_kernel<T, decltype(j)::value>;
        auto queries = query_gradient_kernel<T, decltype(j)::value>;
        size_t bytes = shared_bytes(q, (const void *)keys, op, D, 4, 2);
        dim3 grid((unsigned)ceil_div(a->k_len, tile), a->kv_heads, a->batch);

        if (bytes == 0)
            return;
        if (a->k_len > 0)
            keys<<<grid, threads, bytes, q->stream>>>(
                *a, (T *)dK, (T *)dV, (const T *)dout, delta, lse, (const T *)Q,
                (const T *)K, (const T *)V);
        bytes = shared_bytes(q, (const void *)queries, op, D, 4, 1);
        grid = dim3((unsigned)ceil_div(a->q_len, tile), a->q_heads, a->batch);
        if (bytes != 0)
            queries<<<grid, threads, bytes, q->stream>>>(
                *a, (T *)dQ, (const T *)dout, delta, lse, (const T *)Q,
                (const T *)K, (const T *)V);
    });
}

static int attention_backward(struct plait_queue *q, enum plait_dtype type,
                              const struct plait_attention *a, void *dQ,
                              void *dK, void *dV, const void *dout,
                              const void *out, const float *lse, const void *Q,
                              const void *K, const void *V)
{
    size_t rows = (size_t)a->batch * a->q_len * a->q_heads;
    uintptr_t all = addresses({Q, K, V, out, dout, dQ, dK, dV});
    const char *op = "attention_backward";
    float *delta;
    int cudnn;

    if (cuda_enter(q) != 0 || check(q, a) != 0)
        return -1;
    if (!has_work(a))
        return 0;
    cudnn = cuda_cudnn_takes(q, type, a, all);
    if (cudnn > 0)
        cudnn = cuda_cudnn_backward(q, type, a, dQ, dK, dV, dout, out, lse, Q,
                                    K, V);
    if (cudnn != 0)
        return cudnn < 0 ? -1 : cuda_leave(q, op);
    delta = (float *)cuda_scratch(q, rows * sizeof(*delta));
    if (delta == NULL)
        return -1;
    for_type(type, [&](auto zero) {
        typedef decltype(zero) T;

        delta_kernel<<<(unsigned)ceil_div(rows, 8), 256, 0, q->stream>>>(
            delta, (const T *)dout, (const T *)out, a->q_len, a->q_heads,
            a->head_dim, rows);
    });
    if (cuda_attention_mma_fits(type, a, all))
        cuda_attention_mma_backward(q, type, a, dQ, dK, dV, dout, delta, lse, Q,
                                    K, V);
    else
        backward_plain(q, type, a, dQ, dK, dV, dout, delta, lse, Q, K, V);
    return cuda_leave(q, op);
}

static int attention_merge(struct plait_queue *q, enum plait_dtype type,
                           const struct plait_attention *a, void *out,
                           float *lse, const void *out2, const float *lse2)
{
    size_t rows = (size_t)a->batch * a->q_len * a->q_heads;

    if (cuda_enter(q) != 0)
        return -1;
    if (!has_work(a))
        return 0;
    for_type(type, [&](auto zero) {
        typedef decltype(zero) T;

        merge_kernel<<<(unsigned)ceil_div(rows, 8), 256, 0, q->stream>>>(
            (T *)out, lse, (const T *)out2, lse2, a->q_len, a->q_heads,
            a->head_dim, rows);
    });
    return cuda_leave(q, "attention_merge");
}

void cuda_attention_ops(struct plait_ops *ops)
{
    ops->attention_forward = attention_forward;
    ops->attention_backward = attention_backward;
    ops->attention_merge = attention_merge;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention on tensor cores, for 16-bit types and heads of 64 or 128:
 * the algorithm of FlashAttention-2 (Dao 2023), the backward in two kernels
 * as in attention.cu. A block has 128 rows (queries or keys), each of its 8
 * warps 16 of them, and goes over the other side `step` rows at a time while
 * the next ones are on their way to shared memory. A warp's scores turn from
 * the result of one product into the operand of the next in registers. */
#include <errno.h>
#include <type_traits>

#include "kernels/cuda/mma.cuh"

static const int rows = 128, warps = 8, threads = 32 * warps;

static __device__ inline int64_t seen(const struct plait_attention &a,
                                      int64_t query)
{
    int64_t n = a.q_pos + query - a.k_pos + 1;

    return n < 0 ? 0 : n > a.k_len ? a.k_len : n;
}

/* -- tiles in shared memory ------------------------------------------------ */

/* A tile [n, D] of 16-bit values. The 16-byte pieces of a row are permuted
 * by the row, so that the eight rows of an 8x8 matrix lie in different banks
 * (NVIDIA, CUTLASS documentation, "swizzle"). */
template <int D>
static __device__ inline unsigned place(unsigned tile, int row, int piece)
{
    return tile + row * (D * 2) + ((piece ^ (row & 7)) << 4);
}

/* Rows first .. first + n of src to a tile; rows from `end` on are 0. */
template <int D, int n, typename T>
static __device__ inline void fetch(unsigned tile, const T *src, size_t stride,
                                    int first, int end)
{
    constexpr int pieces = D / 8;

#pragma unroll
    for (int i = threadIdx.x; i < n * pieces; i += threads) {
        int row = i / pieces, piece = i % pieces;
        bool valid = first + row < end;

        copy_async(place<D>(tile, row, piece),
                   src + (size_t)(valid ? first + row : 0) * stride + piece * 8,
                   valid);
    }
}

/* A operand: rows row .. row + 16, columns 16 k .. of a tile. */
template <int D>
static __device__ inline void load_a(uint32_t a[4], unsigned tile, int row,
                                     int k)
{
    int l = threadIdx.x % 32;

    ldmatrix(a, place<D>(tile, row + l % 16, k * 2 + l / 16));
}

/* Two B operands of x . tile^T: tile rows row .. row + 8 (b[0], b[1]) and
 * row + 8 .. row + 16 (b[2], b[3]), columns 16 k .. */
template <int D>
static __device__ inline void load_b(uint32_t b[4], unsigned tile, int row,
                                     int k)
{
    int l = threadIdx.x % 32;

    ldmatrix(b, place<D>(tile, row + l % 8 + l / 16 * 8, k * 2 + l / 8 % 2));
}

/* Two B operands of x . tile: tile rows row .. row + 16, columns 16 k ..
 * 16 k + 8 (b[0], b[1]) and 16 k + 8 .. 16 k + 16 (b[2], b[3]). */
template <int D>
static __device__ inline void load_b_trans(uint32_t b[4], unsigned tile,
                                           int row, int k)
{
    int l = threadIdx.x % 32;

    ldmatrix_trans(b, place<D>(tile, row + l % 16, k * 2 + l / 16));
}

/* s [16, n] = a-tile rows row .. row + 16 times b-tile [n, D]^T */
template <typename T, int D, int n>
static __device__ inline void scores(float s[n / 8][4], unsigned a_tile,
                                     int row, unsigned b_tile)
{
#pragma unroll
    for (int j = 0; j < n / 8; j++)
        for (int i = 0; i < 4; i++)
            s[j][i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4], b[4];

        load_a<D>(a, a_tile, row, k);
#pragma unroll
        for (int j = 0; j < n / 16; j++) {
            load_b<D>(b, b_tile, j * 16, k);
            mma(T(), s[2 * j], a, b);
            mma(T(), s[2 * j + 1], a, b + 2);
        }
    }
}

/* acc [16, D] += p [16, n] times tile [n, D] */
template <typename T, int D, int n>
static __device__ inline void
add_product(float acc[D / 8][4], const float p[n / 8][4], unsigned tile)
{
#pragma unroll
    for (int k = 0; k < n / 16; k++) {
        uint32_t a[4], b[4];

        for (int i = 0; i < 2; i++) {
            a[2 * i] = pair(T(), p[2 * k + i][0], p[2 * k + i][1]);
            a[2 * i + 1] = pair(T(), p[2 * k + i][2], p[2 * k + i][3]);
        }
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            load_b_trans<D>(b, tile, k * 16, j);
            mma(T(), acc[2 * j], a, b);
            mma(T(), acc[2 * j + 1], a, b + 2);
        }
    }
}

/* dst [16, D] += acc (= where it is zeroed), the lane's two rows, where they
 * exist. */
template <typename T, int D>
static __device__ inline void add_to_rows(T *dst, size_t stride, int first,
                                          int end, const float acc[D / 8][4],
                                          bool zeroed)
{
    int lane = threadIdx.x % 32;

    for (int half = 0; half < 2; half++) {
        int row = first + lane / 4 + half * 8;
        uint32_t *p = (uint32_t *)(dst + (size_t)row * stride) + lane % 4;

        if (row >= end)
            continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            uint32_t old = zeroed ? 0 : p[j * 4];
            const T *x = (const T *)&old;

            p[j * 4] = pair(T(), to_float(x[0]) + acc[j][half * 2],
                            to_float(x[1]) + acc[j][half * 2 + 1]);
        }
    }
}

/* -- forward ------------------------------------------------------------- */

static __device__ inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

static __device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

/* Scores become weights: s = exp2(s - the row's maximum so far); m, l and
 * acc follow. Row `half` of the lane sees keys below limit[half]. */
template <int D, int n>
static __device__ inline void
softmax_step(float s[n / 8][4], float m[2], float l[2], float acc[D / 8][4],
             float scale, int k0, const int limit[2], bool whole)
{
    int col = k0 + threadIdx.x % 4 * 2;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = m[half], base, shrink, sum = 0;

#pragma unroll
        for (int j = 0; j < n / 8; j++) {
            for (int i = half * 2; i < half * 2 + 2; i++) {
                s[j][i] = whole || col + j * 8 + i % 2 < limit[half]
                              ? s[j][i] * scale
                              : -CUDART_INF_F;
                top = fmaxf(top, s[j][i]);
            }
        }
        top = quad_max(top);
        base = top == -CUDART_INF_F ? 0 : top; /* no key seen yet */
        shrink = power_of_two(m[half] - base);
#pragma unroll
        for (int j = 0; j < n / 8; j++) {
            for (int i = half * 2; i < half * 2 + 2; i++) {
                s[j][i] = power_of_two(s[j][i] - base);
                sum += s[j][i];
            }
        }
        m[half] = top;
        l[half] = l[half] * shrink + sum;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            acc[j][half * 2] *= shrink;
            acc[j][half * 2 + 1] *= shrink;
        }
    }
}

/* The lane's rows of out [16, D] and lse. */
template <typename T, int D>
static __device__ inline void
store_rows(const struct plait_attention &a, T *out, float *lse, int first,
           const float m[2], const float l[2], const float acc[D / 8][4])
{
    int lane = threadIdx.x % 32, h = blockIdx.y;

    for (int half = 0; half < 2; half++) {
        int row = first + lane / 4 + half * 8;
        float total = quad_sum(l[half]);
        float inverse = total == 0 ? 0 : 1 / total;
        size_t at = ((size_t)blockIdx.z * a.q_len + row) * a.q_heads + h;
        uint32_t *p = (uint32_t *)(out + at * D) + lane % 4;

        if (row >= a.q_len)
            continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            p[j * 4] = pair(T(), acc[j][half * 2] * inverse,
                            acc[j][half * 2 + 1] * inverse);
        if (lane % 4 == 0)
            lse[((size_t)blockIdx.z * a.q_heads + h) * a.q_len + row] =
                total == 0 ? -CUDART_INF_F
                           : m[half] * 0.6931471805599453f + logf(total);
    }
}

template <typename T, int D>
static __global__ void __launch_bounds__(threads, D == 64 ? 2 : 1)
    forward_kernel(struct plait_attention a, T *out, float *lse, const T *Q,
                   const T *K, const T *V)
{
    constexpr int step = 64;
    extern __shared__ __align__(128) char shared[];
    int h = blockIdx.y, kv = h / (a.q_heads / a.kv_heads);
    int first = (gridDim.x - 1 - blockIdx.x) * rows;
    int warp_row = threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
    int mine = first + warp_row + lane / 4;
    int limit[2] = {(int)seen(a, mine), (int)seen(a, mine + 8)};
    int all = (int)seen(a, first + warp_row); /* rows of the warp see */
    int most = (int)seen(a, min(first + rows, a.q_len) - 1);
    unsigned q_tile = shared_address(shared);
    unsigned k_tile = q_tile + rows * D * 2, bytes = step * D * 2;
    size_t at = (size_t)blockIdx.z * a.k_len * a.kv_stride + (size_t)kv * D;
    float scale = a.scale * 1.4426950408889634f; /* to powers of two */
    float m[2] = {-CUDART_INF_F, -CUDART_INF_F}, l[2] = {0, 0};
    float acc[D / 8][4] = {};

    fetch<D, rows>(
        q_tile, Q + (size_t)blockIdx.z * a.q_len * a.q_stride + (size_t)h * D,
        a.q_stride, first, a.q_len);
    fetch<D, step>(k_tile, K + at, a.kv_stride, 0, a.k_len);
    fetch<D, step>(k_tile + bytes, V + at, a.kv_stride, 0, a.k_len);
    copy_commit();
    for (int k0 = 0; k0 < most; k0 += step) {
        unsigned now = k_tile + k0 / step % 2 * 2 * bytes;
        unsigned next = k_tile + (k0 / step + 1) % 2 * 2 * bytes;
        bool whole = k0 + step <= all;
        float s[step / 8][4];

        /* Past the end these only fill in zeros. */
        fetch<D, step>(next, K + at, a.kv_stride, k0 + step, a.k_len);
        fetch<D, step>(next + bytes, V + at, a.kv_stride, k0 + step, a.k_len);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        scores<T, D, step>(s, q_tile, warp_row, now);
        softmax_step<D, step>(s, m, l, acc, scale, k0, limit, whole);
        add_product<T, D, step>(acc, s, now + bytes);
        __syncthreads();
    }
    copy_wait<0>();
    store_rows<T, D>(a, out, lse, first + warp_row, m, l, acc);
}

/* -- backward ------------------------------------------------------------ */

/* p[c] = exp(score - lse) and ds = p (dp - delta) scale, of a warp's 16 keys
 * and the queries from q0 on. Row `half` of the lane is seen by queries from
 * from[half] on; lse and delta of the queries lie in shared memory. */
template <int n>
static __device__ inline void key_weights(const struct plait_attention &a,
                                          float p[n / 8][4], float ds[n / 8][4],
                                          const float *lse, const float *delta,
                                          int q0, const int from[2], bool whole)
{
    const float log2e = 1.4426950408889634f;
    int col = threadIdx.x % 4 * 2;

#pragma unroll
    for (int j = 0; j < n / 8; j++) {
        for (int i = 0; i < 4; i++) {
            int c = j * 8 + col + i % 2, query = q0 + c;
            bool visible = whole || (query < a.q_len && query >= from[i / 2]);
            float w =
                power_of_two(p[j][i] * (a.scale * log2e) - lse[c] * log2e);

            p[j][i] = visible ? w : 0;
            ds[j][i] = visible ? w * (ds[j][i] - delta[c]) * a.scale : 0;
        }
    }
}

/* The first query that sees the key; q_len: none does. */
static __device__ inline int first_query(const struct plait_attention &a,
                                         int key)
{
    int64_t i = a.k_pos + key - a.q_pos;

    return key >= a.k_len || i > a.q_len ? a.q_len : i < 0 ? 0 : (int)i;
}

/* The keys of one tile against the queries of every head that shares them,
 * transposed: a warp has 16 keys. */
template <typename T, int D>
static __global__ void __launch_bounds__(threads, 1)
    key_gradient_kernel(struct plait_attention a, T *dK, T *dV, const T *dout,
                        const float *delta, const float *lse, const T *Q,
                        const T *K, const T *V)
{
    constexpr int step = D == 64 ? 64 : 32;
    extern __shared__ __align__(128) char shared[];
    __shared__ float stats[2][2][step]; /* lse, delta; two turns */
    int kv = blockIdx.y, group = a.q_heads / a.kv_heads;
    int first = blockIdx.x * rows, warp_row = threadIdx.x / 32 * 16;
    int key = first + warp_row + threadIdx.x % 32 / 4;
    unsigned k_tile = shared_address(shared), v_tile = k_tile + rows * D * 2;
    unsigned q_tile = v_tile + rows * D * 2, bytes = step * D * 2;
    size_t b = blockIdx.z, at = b * a.k_len * a.kv_stride + (size_t)kv * D;
    int start = first_query(a, first) / step * step;
    int from[2] = {first_query(a, key), first_query(a, key + 8)};
    int last_from = first_query(a, first + warp_row + 15);
    int tiles = group * ((a.q_len - start + step - 1) / step);
    int h = kv * group, q_next = start, q0 = start; /* next, at hand */
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    auto bring = [&](int turn) {
        unsigned tile = q_tile + turn * 2 * bytes;
        size_t stat = (b * a.q_heads + h) * a.q_len;

        fetch<D, step>(tile, Q + b * a.q_len * a.q_stride + (size_t)h * D,
                       a.q_stride, q_next, a.q_len);
        fetch<D, step>(tile + bytes, dout + (b * a.q_len * a.q_heads + h) * D,
                       (size_t)a.q_heads * D, q_next, a.q_len);
        if (threadIdx.x < step) {
            bool valid = q_next + (int)threadIdx.x < a.q_len;

            stats[turn][0][threadIdx.x] =
                valid ? lse[stat + q_next + threadIdx.x] : 0;
            stats[turn][1][threadIdx.x] =
                valid ? delta[stat + q_next + threadIdx.x] : 0;
        }
        q_next += step;
        if (q_next >= a.q_len) {
            q_next = start;
            h++;
        }
    };

    fetch<D, rows>(k_tile, K + at, a.kv_stride, first, a.k_len);
    fetch<D, rows>(v_tile, V + at, a.kv_stride, first, a.k_len);
    if (tiles > 0)
        bring(0);
    copy_commit();
    for (int n = 0; n < tiles; n++) {
        int turn = n % 2;
        unsigned q_now = q_tile + turn * 2 * bytes, o_now = q_now + bytes;
        bool whole = q0 >= last_from && q0 + step <= a.q_len;
        float p[step / 8][4], ds[step / 8][4];

        if (n + 1 < tiles)
            bring(turn ^ 1);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        scores<T, D, step>(p, k_tile, warp_row, q_now);
        scores<T, D, step>(ds, v_tile, warp_row, o_now);
        key_weights<step>(a, p, ds, stats[turn][0], stats[turn][1], q0, from,
                          whole);
        add_product<T, D, step>(dv, p, o_now);
        add_product<T, D, step>(dk, ds, q_now);
        q0 = q0 + step < a.q_len ? q0 + step : start;
        __syncthreads();
    }
    copy_wait<0>();
    add_to_rows<T, D>(dK + at, a.kv_stride, first + warp_row, a.k_len, dk,
                      a.zeroed);
    add_to_rows<T, D>(dV + at, a.kv_stride, first + warp_row, a.k_len, dv,
                      a.zeroed);
}

/* The queries of one tile against every key they see; a warp has 16. */
template <typename T, int D>
static __global__ void __launch_bounds__(threads, 1)
    query_gradient_kernel(struct plait_attention a, T *dQ, const T *dout,
                          const float *delta, const float *lse, const T *Q,
                          const T *K, const T *V)
{
    constexpr int step = 32;
    extern __shared__ __align__(128) char shared[];
    int h = blockIdx.y, kv = h / (a.q_heads / a.kv_heads);
    int first = (gridDim.x - 1 - blockIdx.x) * rows;
    int warp_row = threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
    int mine = first + warp_row + lane / 4;
    int most = (int)seen(a, min(first + rows, a.q_len) - 1);
    unsigned q_tile = shared_address(shared), o_tile = q_tile + rows * D * 2;
    unsigned k_tile = o_tile + rows * D * 2, bytes = step * D * 2;
    size_t b = blockIdx.z, stat = (b * a.q_heads + h) * a.q_len;
    size_t at = b * a.q_len * a.q_stride + (size_t)h * D;
    size_t kv_at = b * a.k_len * a.kv_stride + (size_t)kv * D;
    const float log2e = 1.4426950408889634f;
    float row_lse[2], row_delta[2], dq[D / 8][4] = {};
    int limit[2];

    for (int half = 0; half < 2; half++) {
        int i = mine + half * 8;

        limit[half] = i < a.q_len ? (int)seen(a, i) : 0;
        row_lse[half] = i < a.q_len ? lse[stat + i] * log2e : 0;
        row_delta[half] = i < a.q_len ? delta[stat + i] : 0;
    }
    fetch<D, rows>(q_tile, Q + at, a.q_stride, first, a.q_len);
    fetch<D, rows>(o_tile, dout + (b * a.q_len * a.q_heads + h) * D,
                   (size_t)a.q_heads * D, first, a.q_len);
    fetch<D, step>(k_tile, K + kv_at, a.kv_stride, 0, a.k_len);
    fetch<D, step>(k_tile + bytes, V + kv_at, a.kv_stride, 0, a.k_len);
    copy_commit();
    for (int k0 = 0, turn = 0; k0 < most; k0 += step, turn ^= 1) {
        unsigned now = k_tile + turn * 2 * bytes;
        unsigned next = k_tile + (turn ^ 1) * 2 * bytes;
        bool whole = k0 + step <= seen(a, first + warp_row);
        float s[step / 8][4], ds[step / 8][4];

        fetch<D, step>(next, K + kv_at, a.kv_stride, k0 + step, a.k_len);
        fetch<D, step>(next + bytes, V + kv_at, a.kv_stride, k0 + step,
                       a.k_len);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        scores<T, D, step>(s, q_tile, warp_row, now);
        scores<T, D, step>(ds, o_tile, warp_row, now + bytes);
#pragma unroll
        for (int j = 0; j < step / 8; j++) {
            for (int i = 0; i < 4; i++) {
                bool visible = k0 + j * 8 + lane % 4 * 2 + i % 2 < limit[i / 2];
                float w =
                    power_of_two(s[j][i] * a.scale * log2e - row_lse[i / 2]);

                ds[j][i] =
                    visible ? w * (ds[j][i] - row_delta[i / 2]) * a.scale : 0;
            }
        }
        add_product<T, D, step>(dq, ds, now);
        __syncthreads();
    }
    copy_wait<0>();
    add_to_rows<T, D>(dQ + at, a.q_stride, first + warp_row, a.q_len, dq,
                      a.zeroed);
}

/* -- launches ----------------------------------------------------------------
 */

int cuda_attention_mma_fits(enum plait_dtype type,
                            const struct plait_attention *a,
                            uintptr_t addresses)
{
    return (type == PLAIT_BF16_T || type == PLAIT_FP16_T) &&
           (a->head_dim == 64 || a->head_dim == 128) && a->k_len > 0 &&
           a->q_stride % 8 == 0 && a->kv_stride % 8 == 0 && addresses % 16 == 0;
}

/* f(T(), the head dimension as a constant) */
template <typename F> static void for_shape(enum plait_dtype type, int D, F f)
{
    typedef std::integral_constant<int, 64> d64;
    typedef std::integral_constant<int, 128> d128;

    if (type == PLAIT_BF16_T && D == 64)
        f(bf16(), d64());
    else if (type == PLAIT_BF16_T)
        f(bf16(), d128());
    else if (D == 64)
        f(fp16(), d64());
    else
        f(fp16(), d128());
}

static bool allow_shared(struct plait_queue *q, const void *kernel,
                         size_t bytes, const char *op)
{
    if (bytes > q->dev->smem_max) {
        plait_queue_fail(&q->head, ENOTSUP,
                         "%s: %zu bytes of shared memory, the GPU has %zu", op,
                         bytes, q->dev->smem_max);
        return false;
    }
    return cuda_check(q, op,
                      cudaFuncSetAttribute(
                          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                          (int)bytes)) == 0;
}

void cuda_attention_mma_forward(struct plait_queue *q, enum plait_dtype type,
                                const struct plait_attention *a, void *out,
                                float *lse, const void *Q, const void *K,
                                const void *V)
{
    for_shape(type, a->head_dim, [&](auto zero, auto d) {
        typedef decltype(zero) T;
        constexpr int D = decltype(d)::value;
        auto kernel = forward_kernel<T, D>;
        size_t bytes = (rows + 4 * 64) * D * 2;
        dim3 grid((unsigned)ceil_div(a->q_len, rows), a->q_heads, a->batch);

        if (allow_shared(q, (const void *)kernel, bytes, "attention_forward"))
            kernel<<<grid, threads, bytes, q->stream>>>(
                *a, (T *)out, lse, (const T *)Q, (const T *)K, (const T *)V);
    });
}

void cuda_attention_mma_backward(struct plait_queue *q, enum plait_dtype type,
                                 const struct plait_attention *a, void *dQ,
                                 void *dK, void *dV, const void *dout,
                                 const float *delta, const float *lse,
                                 const void *Q, const void *K, const void *V)
{
    const char *op = "attention_backward";

    for_shape(type, a->head_dim, [&](auto zero, auto d) {
        typedef decltype(zero) T;
        constexpr int D = decltype(d)::value;
        auto keys = key_gradient_kernel<T, D>;
        auto queries = query_gradient_kernel<T, D>;
        size_t bytes = (2 * rows + 4 * (D == 64 ? 64 : 32)) * D * 2;
        dim3 grid((unsigned)ceil_div(a->k_len, rows), a->kv_heads, a->batch);

        if (!allow_shared(q, (const void *)keys, bytes, op))
            return;
        keys<<<grid, threads, bytes, q->stream>>>(
            *a, (T *)dK, (T *)dV, (const T *)dout, delta, lse, (const T *)Q,
            (const T *)K, (const T *)V);
        bytes = (2 * rows + 4 * 32) * D * 2;
        grid = dim3((unsigned)ceil_div(a->q_len, rows), a->q_heads, a->batch);
        if (allow_shared(q, (const void *)queries, bytes, op))
            queries<<<grid, threads, bytes, q->stream>>>(
                *a, (T *)dQ, (const T *)dout, delta, lse, (const T *)Q,
                (const T *)K, (const T *)V);
    });
}

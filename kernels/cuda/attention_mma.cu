/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention on tensor cores, for 16-bit types and heads of 64 or 128:
 * the algorithm of FlashAttention-2 (Dao 2023). */
#include "kernels/cuda/attention_mma.cuh"

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

/* Of the lane's two rows: the largest score so far, and the sum of exp2(score -
 * m) over the columns that the lane has. */
struct row_sums {
    float m[2], l[2];
};

/* Turns the scores of keys k0 and following into weights: s = exp2(s - the
 * row's maximum so far), and updates the sums and acc; the sums are of what was
 * not dropped yet. `whole`: the rows see all of those keys. */
template <int D, int n, bool capped, typename A>
static __device__ inline void
softmax_step(const A &a, float s[n / 8][4], struct row_sums &row,
             float acc[D / 8][4], const struct row_keys &keys, int k0,
             bool whole)
{
    float scale = a.scale * 1.4426950408889634f; /* for powers of two */
    int col = k0 + threadIdx.x % 4 * 2;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = row.m[half], base, shrink, sum = 0;

#pragma unroll
        for (int j = 0; j < n / 8; j++) {
            for (int i = half * 2; i < half * 2 + 2; i++) {
                int key = col + j * 8 + i % 2;

                s[j][i] =
                    whole || (key < keys.limit[half] && key >= keys.from[half])
                        ? (is_capped<capped>(a)
                               ? a.out * capped_part(a, s[j][i])
                               : s[j][i]) *
                              scale
                        : -CUDART_INF_F;
                top = fmaxf(top, s[j][i]);
            }
        }
        top = quad_max(top);
        base = top == -CUDART_INF_F ? 0 : top; /* no key seen yet */
        shrink = power_of_two(row.m[half] - base);
#pragma unroll
        for (int j = 0; j < n / 8; j++) {
            for (int i = half * 2; i < half * 2 + 2; i++) {
                s[j][i] = power_of_two(s[j][i] - base);
                sum += s[j][i];
                s[j][i] *=
                    kept_part(a, keys.dropped[half], col + j * 8 + i % 2);
            }
        }
        row.m[half] = top;
        row.l[half] = row.l[half] * shrink + sum;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            acc[j][half * 2] *= shrink;
            acc[j][half * 2 + 1] *= shrink;
        }
    }
}

/* Stores the lane's rows of out [16, D] and lse. */
template <typename T, int D>
static __device__ inline void
store_rows(const struct plait_attention &a, T *out, float *lse, int first,
           const struct row_sums &sums, const float acc[D / 8][4])
{
    int lane = threadIdx.x % 32, h = blockIdx.y;

    for (int half = 0; half < 2; half++) {
        int row = first + lane / 4 + half * 8;
        float total = quad_sum(sums.l[half]);
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
                           : sums.m[half] * 0.6931471805599453f + logf(total);
    }
}

/* Of the lane's rows that exist; all lanes of the warp call it. */
static __device__ inline void raise_rows(const struct plait_attention &a,
                                         float *peak, int first,
                                         const struct row_sums &sums)
{
    int row = first + threadIdx.x % 32 / 4;
    float top = row < a.q_len ? sums.m[0] : -CUDART_INF_F;

    if (row + 8 < a.q_len)
        top = fmaxf(top, sums.m[1]);
    raise_peak(peak + blockIdx.y, top * 0.6931471805599453f);
}

template <typename T, int D, bool capped, typename A>
static __global__ void __launch_bounds__(threads, D == 64 ? 2 : 1)
    forward_kernel(A a, T *out, float *lse, float *peak, const T *Q, const T *K,
                   const T *V)
{
    constexpr int step = 64;
    extern __shared__ __align__(128) char shared[];
    int h = blockIdx.y, kv = h / (a.q_heads / a.kv_heads);
    int first = (gridDim.x - 1 - blockIdx.x) * rows;
    int warp_row = threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
    int mine = first + warp_row + lane / 4;
    struct row_keys keys = {{(int)seen(a, mine), (int)seen(a, mine + 8)}, {}};
    int all = (int)seen(a, first + warp_row); /* seen by every row of the
                                               * warp */
    int most = (int)seen(a, min(first + rows, a.q_len) - 1);
    int none = hidden(a, blockIdx.z, first + warp_row + 15);
    int begin = hidden(a, blockIdx.z, first) / step * step;
    unsigned q_tile = shared_address(shared);
    unsigned k_tile = q_tile + rows * D * 2, bytes = step * D * 2;
    unsigned k_first = k_tile + begin / step % 2 * 2 * bytes;
    size_t at = (size_t)blockIdx.z * a.k_len * a.kv_stride + (size_t)kv * D;
    struct row_sums sums = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}};
    float acc[D / 8][4] = {};

    for (int half = 0; half < 2; half++) {
        keys.from[half] = hidden(a, blockIdx.z, mine + half * 8);
        keys.dropped[half] = dropped_row(a, blockIdx.z, h, mine + half * 8);
    }
    fetch<D, rows>(
        q_tile, Q + (size_t)blockIdx.z * a.q_len * a.q_stride + (size_t)h * D,
        a.q_stride, first, a.q_len);
    fetch<D, step>(k_first, K + at, a.kv_stride, begin, a.k_len);
    fetch<D, step>(k_first + bytes, V + at, a.kv_stride, begin, a.k_len);
    copy_commit();
    for (int k0 = begin; k0 < most; k0 += step) {
        unsigned now = k_tile + k0 / step % 2 * 2 * bytes;
        unsigned next = k_tile + (k0 / step + 1) % 2 * 2 * bytes;
        bool whole = k0 + step <= all && k0 >= none;
        float s[step / 8][4];

        /* Past the last key these only store zeros. */
        fetch<D, step>(next, K + at, a.kv_stride, k0 + step, a.k_len);
        fetch<D, step>(next + bytes, V + at, a.kv_stride, k0 + step, a.k_len);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        scores<T, D, step>(s, q_tile, warp_row, now);
        softmax_step<D, step, capped>(a, s, sums, acc, keys, k0, whole);
        add_product<T, D, step>(acc, s, now + bytes);
        __syncthreads();
    }
    copy_wait<0>();
    store_rows<T, D>(a, out, lse, first + warp_row, sums, acc);
    if (peak != NULL)
        raise_rows(a, peak, first + warp_row, sums);
}

int cuda_attention_mma_fits(enum plait_dtype type,
                            const struct plait_attention *a,
                            uintptr_t addresses)
{
    return (type == PLAIT_BF16_T || type == PLAIT_FP16_T) &&
           (a->head_dim == 64 || a->head_dim == 128) && a->k_len > 0 &&
           a->q_stride % 8 == 0 && a->kv_stride % 8 == 0 && addresses % 16 == 0;
}

void cuda_attention_mma_forward(struct plait_queue *q,
                                const struct plait_attention_forward *f)
{
    const struct plait_attention *a = &f->a;

    for_shape(f, [&](auto zero, auto d, auto capped, auto scores) {
        typedef decltype(zero) T;
        constexpr int D = decltype(d)::value;
        auto kernel =
            forward_kernel<T, D, decltype(capped)::value, decltype(scores)>;
        size_t bytes = (rows + 4 * 64) * D * 2;
        dim3 grid((unsigned)ceil_div(a->q_len, rows), a->q_heads, a->batch);

        if (cuda_allow_shared(q, "attention_forward", (const void *)kernel,
                              bytes) == 0)
            kernel<<<grid, threads, bytes, q->stream>>>(
                scores, (T *)f->out, f->lse, f->peak, (const T *)f->Q,
                (const T *)f->K, (const T *)f->V);
    });
}

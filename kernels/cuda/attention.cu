/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention in tiles; the scores are never in device memory (Dao et al.
 * 2022). This file computes in fp32 for any type and any head dimension up to
 * 256; attention_mma.cu has the tensor-core kernels. */
#include "kernels/cuda/attention.cuh"

/* -- forward ------------------------------------------------------------- */

/* Of one row: the largest score m so far, and the sum of exp(score - m). */
struct row_sum {
    float m, l;
};

/* Stores row i of the block's head: acc divided by the row's sum. */
template <typename T, int J>
static __device__ __forceinline__ void
store_row(const struct plait_attention &a, T *out, float *lse,
          const float (&acc)[J], const struct row_sum &row, int i)
{
    int D = a.head_dim, lane = threadIdx.x % lanes, h = blockIdx.y;
    size_t b = blockIdx.z;

    for (int j = 0; j < J; j++)
        if (lane + lanes * j < D)
            out[((b * a.q_len + i) * a.q_heads + h) * D + lane + lanes * j] =
                from_float<T>(row.l == 0 ? 0 : acc[j] / row.l);
    if (lane == 0)
        lse[(b * a.q_heads + h) * a.q_len + i] =
            row.l == 0 ? -CUDART_INF_F : row.m + logf(row.l);
}

/* Returns the largest score of the thread's row; -inf: there is none. */
template <typename T, int J, typename A>
static __device__ __forceinline__ float attend(const A &a, float *shared,
                                               T *out, float *lse, const T *Q,
                                               const T *K, const T *V)
{
    int D = a.head_dim, h = blockIdx.y, kv = h / (a.q_heads / a.kv_heads);
    int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    int first = (gridDim.x - 1 - blockIdx.x) * tile, i = first + row;
    int last = min(first + tile, a.q_len) - 1;
    int64_t mine = seen(a, i), most = seen(a, last);
    int from = hidden(a, blockIdx.z, i);
    int begin = hidden(a, blockIdx.z, first) / tile * tile;
    float *q = shared, *k = q + tile * (D + 1), *v = k + tile * (D + 1);
    float *p = v + tile * (D + 1) + row * (tile + 1);
    float m = -CUDART_INF_F, l = 0, acc[J] = {};
    struct plait_drop_row dropped = dropped_row(a, blockIdx.z, h, i);
    const T *Kb =
        K + (size_t)blockIdx.z * a.k_len * a.kv_stride + (size_t)kv * D;
    const T *Vb =
        V + (size_t)blockIdx.z * a.k_len * a.kv_stride + (size_t)kv * D;

    load_tile(q, Q + (size_t)blockIdx.z * a.q_len * a.q_stride + (size_t)h * D,
              a.q_stride, first, a.q_len, D);
    for (int k0 = begin; k0 < most; k0 += tile) {
        float s[tile / lanes], top = -CUDART_INF_F, base, shrink, sum = 0;

        __syncthreads();
        load_tile(k, Kb, a.kv_stride, k0, a.k_len, D);
        load_tile(v, Vb, a.kv_stride, k0, a.k_len, D);
        __syncthreads();
        for (int j = 0; j < tile / lanes; j++) {
            int c = lane + lanes * j;

            s[j] = k0 + c < mine && k0 + c >= from
                       ? score_of(a, dot(q + row * (D + 1), k + c * (D + 1), D))
                       : -CUDART_INF_F;
            top = fmaxf(top, s[j]);
        }
        top = fmaxf(m, lanes_max(top));
        base = top == -CUDART_INF_F ? 0 : top; /* no key seen yet */
        shrink = expf(m - base);
        for (int j = 0; j < tile / lanes; j++) {
            s[j] = expf(s[j] - base);
            p[lane + lanes * j] =
                s[j] * kept_part(a, dropped, k0 + lane + lanes * j);
            sum += s[j];
        }
        m = top;
        l = l * shrink + lanes_sum(sum);
        for (int j = 0; j < J; j++)
            acc[j] *= shrink;
        __syncwarp(); /* all threads of a row are in one warp */
        add_rows<J>(acc, p, v, D);
        __syncwarp();
    }
    if (i < a.q_len)
        store_row<T, J>(a, out, lse, acc, {m, l}, i);
    return i < a.q_len ? m : -CUDART_INF_F;
}

template <typename T, int J, typename A>
static __global__ void __launch_bounds__(threads)
    forward_kernel(A a, T *out, float *lse, const T *Q, const T *K, const T *V)
{
    extern __shared__ __align__(16) float shared[];

    attend<T, J>(a, shared, out, lse, Q, K, V);
}

/* A kernel of its own, as a register more costs the other one speed. */
template <typename T, int J, typename A>
static __global__ void __launch_bounds__(threads)
    peak_kernel(A a, T *out, float *lse, float *peak, const T *Q, const T *K,
                const T *V)
{
    extern __shared__ __align__(16) float shared[];
    float most = attend<T, J>(a, shared, out, lse, Q, K, V);

    raise_peak(peak + blockIdx.y, most);
}

template <typename T, int J, typename A>
static void launch_forward(struct plait_queue *q,
                           const struct plait_attention_forward *f,
                           const A &scores)
{
    const struct plait_attention *a = &f->a;
    auto plain = forward_kernel<T, J, A>;
    auto peaks = peak_kernel<T, J, A>;
    size_t bytes =
        shared_bytes(q, f->peak ? (const void *)peaks : (const void *)plain,
                     "attention_forward", a->head_dim, PLAIT_FORWARD_TILES,
                     PLAIT_FORWARD_SQUARES);
    dim3 grid((unsigned)ceil_div(a->q_len, tile), a->q_heads, a->batch);
    const T *Q = (const T *)f->Q, *K = (const T *)f->K, *V = (const T *)f->V;

    if (bytes == 0)
        return;
    if (f->peak)
        peaks<<<grid, threads, bytes, q->stream>>>(scores, (T *)f->out, f->lse,
                                                   f->peak, Q, K, V);
    else
        plain<<<grid, threads, bytes, q->stream>>>(scores, (T *)f->out, f->lse,
                                                   Q, K, V);
}

static int attention_forward(struct plait_queue *q,
                             const struct plait_attention_forward *f)
{
    const char *op = "attention_forward";
    const struct plait_attention *a = &f->a;
    uintptr_t all = addresses({f->Q, f->K, f->V, f->out});
    int cudnn;

    if (cuda_enter(q) != 0 || check_head_dim(q, a) != 0)
        return -1;
    if (!has_work(a))
        return 0;
    /* cuDNN does not tell the largest score. */
    cudnn = f->peak != NULL ? 0
                            : cuda_cudnn_takes(q, f->type, a, &f->drops,
                                               all | addresses({f->lse}));
    if (cudnn > 0)
        cudnn = cuda_cudnn_forward(q, f);
    if (cudnn != 0)
        return cudnn < 0 ? -1 : cuda_leave(q, op);
    if (cuda_attention_mma_fits(f->type, a, all)) {
        cuda_attention_mma_forward(q, f);
        return cuda_leave(q, op);
    }
    for_head_dim(f, [&](auto zero, auto j, auto scores) {
        launch_forward<decltype(zero), decltype(j)::value>(q, f, scores);
    });
    return cuda_leave(q, op);
}

/* -- partial results ------------------------------------------------------- */

/* One warp joins one row of one head. */
template <typename T>
static __global__ void merge_kernel(struct plait_attention a, float *out,
                                    float *lse, const T *out2,
                                    const float *lse2)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    size_t h = at % a.q_heads, i = at / a.q_heads % a.q_len;
    size_t stat = (at / a.q_heads / a.q_len * a.q_heads + h) * a.q_len + i;
    int D = a.head_dim;
    float x, y, top, w1, w2;

    if (at >= (size_t)a.batch * a.q_len * a.q_heads)
        return;
    x = lse[stat];
    y = lse2[stat];
    top = fmaxf(x, y);
    if (x == -CUDART_INF_F && y == -CUDART_INF_F)
        return; /* neither side saw a key */
    w1 = expf(x - top);
    w2 = expf(y - top);
    for (int d = threadIdx.x % 32; d < D; d += 32)
        out[at * D + d] =
            (w1 * out[at * D + d] + w2 * to_float(out2[at * D + d])) /
            (w1 + w2);
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        lse[stat] = top + logf(w1 + w2);
}

static int attention_merge(struct plait_queue *q,
                           const struct plait_attention_merge *m)
{
    const struct plait_attention *a = &m->a;
    size_t rows = (size_t)a->batch * a->q_len * a->q_heads;

    if (cuda_enter(q) != 0)
        return -1;
    if (!has_work(a))
        return 0;
    for_type(m->type, [&](auto zero) {
        typedef decltype(zero) T;

        merge_kernel<<<(unsigned)ceil_div(rows, 8), 256, 0, q->stream>>>(
            *a, m->out, m->lse, (const T *)m->out2, m->lse2);
    });
    return cuda_leave(q, "attention_merge");
}

void cuda_attention_ops(struct plait_ops *ops)
{
    ops->attention_forward = attention_forward;
    ops->attention_backward = cuda_attention_backward;
    ops->attention_merge = attention_merge;
}

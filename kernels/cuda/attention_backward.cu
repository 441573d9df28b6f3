/* SPDX-License-Identifier: Apache-2.0 */
/* The backward of attention.cu in two kernels, one per key tile and one per
 * query tile: no two blocks add to the same element, so that the result always
 * has the same bits. */
#include "kernels/cuda/attention.cuh"

/* delta[b,h,i] = sum over d of dout * out (Dao et al. 2022); one warp each. */
template <typename T>
static __global__ void delta_kernel(struct plait_attention a, float *delta,
                                    const T *dout, const T *out)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int D = a.head_dim;
    size_t i, h, b;
    float sum = 0;

    if (at >= (size_t)a.batch * a.q_len * a.q_heads)
        return;
    for (int d = threadIdx.x % 32; d < D; d += 32)
        sum += to_float(dout[at * D + d]) * to_float(out[at * D + d]);
    sum = warp_sum(sum);
    h = at % a.q_heads;
    i = at / a.q_heads % a.q_len;
    b = at / a.q_heads / a.q_len;
    if (threadIdx.x % 32 == 0)
        delta[(b * a.q_heads + h) * a.q_len + i] = sum;
}

/* One key and the queries of a tile. */
struct key_tile {
    const float *k, *v;       /* shared: the key's row of K and V */
    const float *q, *o;       /* shared: the queries' tiles of Q and dout */
    const float *lse, *delta; /* of the queries' head */
};

/* For a key and the queries of head h from q0 on: p = exp(score - lse), as much
 * of it as dropout leaves, and ds, the gradient of the scores. */
template <typename A>
static __device__ __forceinline__ void
key_weights(const A &a, float *p, float *ds, const struct key_tile &t, int key,
            int h, int q0)
{
    size_t b = blockIdx.z;
    int D = a.head_dim;

    for (int c = threadIdx.x % lanes; c < tile; c += lanes) {
        int i = q0 + c;
        float w = 0, g = 0;

        if (i < a.q_len && key < seen(a, i) && key >= hidden(a, b, i)) {
            float score = score_of(a, dot(t.k, t.q + c * (D + 1), D));
            float by = kept_part(a, dropped_row(a, b, h, i), key);

            w = expf(score - t.lse[i]);
            g = w * slope_of(a, score) *
                (by * dot(t.v, t.o + c * (D + 1), D) - t.delta[i]);
            w *= by;
        }
        p[c] = w;
        ds[c] = g;
    }
}

/* The keys of one tile with all queries of the heads that share them. */
template <typename T, int J, typename A>
static __global__ void __launch_bounds__(threads)
    key_gradient_kernel(A a, struct key_gradients<T> to,
                        struct backward_inputs<T> in)
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
    int end = last_queries(a, b, min(first + tile, a.k_len) - 1);

    load_tile(k, in.K + at, a.kv_stride, first, a.k_len, D);
    load_tile(v, in.V + at, a.kv_stride, first, a.k_len, D);
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        const T *Qb = in.Q + b * a.q_len * a.q_stride + (size_t)h * D;
        const T *Ob = in.dout + (b * a.q_len * a.q_heads + h) * D;
        size_t stats = (b * a.q_heads + h) * a.q_len;

        for (int q0 = start / tile * tile; q0 < end; q0 += tile) {
            __syncthreads();
            load_tile(q, Qb, a.q_stride, q0, a.q_len, D);
            load_tile(o, Ob, (size_t)a.q_heads * D, q0, a.q_len, D);
            __syncthreads();
            key_weights(a, p, ds,
                        {k + row * (D + 1), v + row * (D + 1), q, o,
                         in.lse + stats, in.delta + stats},
                        key, h, q0);
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
            if (!a.overwrite) {
                dk[j] += to_float(to.dK[at + d]);
                dv[j] += to_float(to.dV[at + d]);
            }
            to.dK[at + d] = from_float<T>(dk[j]);
            to.dV[at + d] = from_float<T>(dv[j]);
        }
    }
}

/* The queries of one tile with all keys they see. */
template <typename T, int J, typename A>
static __global__ void __launch_bounds__(threads)
    query_gradient_kernel(A a, T *dQ, struct backward_inputs<T> in)
{
    extern __shared__ __align__(16) float shared[];
    int D = a.head_dim, h = blockIdx.y, kv = h / (a.q_heads / a.kv_heads);
    int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    int first = (gridDim.x - 1 - blockIdx.x) * tile, i = first + row;
    size_t area = tile * (D + 1), b = blockIdx.z;
    float *q = shared, *o = q + area, *k = o + area, *v = k + area;
    float *ds = v + area + row * (tile + 1);
    float dq[J] = {}, my_lse = 0, my_delta = 0;
    struct plait_drop_row dropped = dropped_row(a, b, h, i);
    size_t at = b * a.q_len * a.q_stride + (size_t)h * D;
    size_t kv_at = b * a.k_len * a.kv_stride + (size_t)kv * D;
    int64_t mine = i < a.q_len ? seen(a, i) : 0;
    int from = hidden(a, b, i), begin = hidden(a, b, first) / tile * tile;
    int64_t most = seen(a, min(first + tile, a.q_len) - 1);

    if (i < a.q_len) {
        my_lse = in.lse[(b * a.q_heads + h) * a.q_len + i];
        my_delta = in.delta[(b * a.q_heads + h) * a.q_len + i];
        for (int j = 0; j < J && !a.overwrite; j++)
            if (lane + lanes * j < D)
                dq[j] = to_float(dQ[at + i * a.q_stride + lane + lanes * j]);
    }
    load_tile(q, in.Q + at, a.q_stride, first, a.q_len, D);
    load_tile(o, in.dout + (b * a.q_len * a.q_heads + h) * D,
              (size_t)a.q_heads * D, first, a.q_len, D);
    for (int k0 = begin; k0 < most; k0 += tile) {
        __syncthreads();
        load_tile(k, in.K + kv_at, a.kv_stride, k0, a.k_len, D);
        load_tile(v, in.V + kv_at, a.kv_stride, k0, a.k_len, D);
        __syncthreads();
        for (int c = lane; c < tile; c += lanes) {
            float g = 0;

            if (k0 + c < mine && k0 + c >= from) {
                float score =
                    score_of(a, dot(q + row * (D + 1), k + c * (D + 1), D));
                float by = kept_part(a, dropped, k0 + c);

                g = expf(score - my_lse) * slope_of(a, score) *
                    (by * dot(o + row * (D + 1), v + c * (D + 1), D) -
                     my_delta);
            }
            ds[c] = g;
        }
        __syncwarp();
        add_rows<J>(dq, ds, k, D);
        __syncwarp();
    }
    if (i >= a.q_len)
        return;
    at += (size_t)i * a.q_stride;
    for (int j = 0; j < J; j++)
        if (lane + lanes * j < D)
            dQ[at + lane + lanes * j] = from_float<T>(dq[j]);
}

/* Three of dst[rows, stride] += src[rows, cols]; one warp per row. */
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

void cuda_add_gradients(struct plait_queue *q,
                        const struct plait_attention_backward *g,
                        const void *const dense[3])
{
    const struct plait_attention *a = &g->a;
    size_t rows = (size_t)a->batch * a->q_len;
    int cols = a->q_heads * a->head_dim, kv_cols = a->kv_heads * a->head_dim;

    for_type(g->type, [&](auto zero) {
        typedef decltype(zero) T;
        struct gradients<T> sums = {
            {(T *)g->dQ, (T *)g->dK, (T *)g->dV},
                {(const T *)dense[0], (const T *)dense[1], (const T *)dense[2]},
                {a->q_stride, a->kv_stride, a->kv_stride},
                {cols, kv_cols, kv_cols}, rows
        };

        add_gradients_kernel<<<dim3((unsigned)ceil_div(rows, 8), 3), 256, 0,
                               q->stream>>>(sums);
    });
}

static void backward_plain(struct plait_queue *q,
                           const struct plait_attention_backward *g,
                           const float *delta)
{
    const char *op = "attention_backward";
    const struct plait_attention *a = &g->a;
    int D = a->head_dim;

    for_head_dim(g, [&](auto zero, auto j, auto scores) {
        typedef decltype(zero) T;
        constexpr int J = decltype(j)::value;
        auto keys = key_gradient_kernel<T, J, decltype(scores)>;
        auto queries = query_gradient_kernel<T, J, decltype(scores)>;
        struct key_gradients<T> to = {
            (T *)g->dK, (T *)g->dV
        };
        struct backward_inputs<T> in(*g, delta);
        size_t bytes =
            shared_bytes(q, (const void *)keys, op, D, PLAIT_BACKWARD_TILES,
                         PLAIT_BACKWARD_SQUARES);
        dim3 grid((unsigned)ceil_div(a->k_len, tile), a->kv_heads, a->batch);

        if (bytes == 0)
            return;
        if (a->k_len > 0)
            keys<<<grid, threads, bytes, q->stream>>>(scores, to, in);
        bytes = shared_bytes(q, (const void *)queries, op, D, 4, 1);
        grid = dim3((unsigned)ceil_div(a->q_len, tile), a->q_heads, a->batch);
        if (bytes != 0)
            queries<<<grid, threads, bytes, q->stream>>>(scores, (T *)g->dQ,
                                                         in);
    });
}

int cuda_attention_backward(struct plait_queue *q,
                            const struct plait_attention_backward *g)
{
    const struct plait_attention *a = &g->a;
    size_t rows = (size_t)a->batch * a->q_len * a->q_heads;
    uintptr_t all =
        addresses({g->Q, g->K, g->V, g->out, g->dout, g->dQ, g->dK, g->dV});
    const char *op = "attention_backward";
    float *delta;
    int cudnn;

    if (cuda_enter(q) != 0 || check_head_dim(q, a) != 0)
        return -1;
    if (!has_work(a))
        return 0;
    cudnn =
        cuda_cudnn_takes(q, g->type, a, &g->drops, all | addresses({g->lse}));
    if (cudnn > 0)
        cudnn = cuda_cudnn_backward(q, g);
    if (cudnn != 0)
        return cudnn < 0 ? -1 : cuda_leave(q, op);
    delta = (float *)cuda_scratch(q, rows * sizeof(*delta));
    if (delta == NULL)
        return -1;
    for_type(g->type, [&](auto zero) {
        typedef decltype(zero) T;

        delta_kernel<<<(unsigned)ceil_div(rows, 8), 256, 0, q->stream>>>(
            *a, delta, (const T *)g->dout, (const T *)g->out);
    });
    if (cuda_attention_mma_fits(g->type, a, all))
        cuda_attention_mma_backward(q, g, delta);
    else
        backward_plain(q, g, delta);
    return cuda_leave(q, op);
}

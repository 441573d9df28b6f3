/* SPDX-License-Identifier: Apache-2.0 */
/* The backward of attention_mma.cu, in two kernels as in
 * attention_backward.cu. */
#include "kernels/cuda/attention_mma.cuh"

/* Of a step of queries, in shared memory. A query does not see a key before its
 * document: how many of the first keys those are. */
template <int step, typename A> struct query_stats {
    float lse[step], delta[step];
    int hides[step];
};
template <int step>
struct query_stats<step, dropped_attention>
    : query_stats<step, capped_attention> {
    struct plait_drop_row dropped[step];
};

/* The lane's two keys: the first, and the first query that sees each. */
struct lane_keys {
    int key, from[2];
};

/* The weight and the derivative by the product of a score: x is the product,
 * lse is to base 2. */
template <bool capped, typename A>
static __device__ __forceinline__ float weight_of(const A &a, float x,
                                                  float lse, float &slope)
{
    const float log2e = 1.4426950408889634f;
    bool has_cap = is_capped<capped>(a);
    float t = has_cap ? capped_part(a, x) : 0;

    slope = a.scale * (1 - t * t);
    return power_of_two((has_cap ? a.out * t : x) * (a.scale * log2e) - lse);
}

/* What the probability of the chunk's key is multiplied by for query c of the
 * step. */
template <int n>
static __device__ __forceinline__ float
kept_of(const struct capped_attention &,
        const struct query_stats<n, capped_attention> &, int, int)
{
    return 1;
}

template <int n>
static __device__ __forceinline__ float
kept_of(const struct dropped_attention &a,
        const struct query_stats<n, dropped_attention> &stats, int c, int key)
{
    return kept_part(a, stats.dropped[c], key);
}

/* p = exp(score - lse) and ds = p (dp - delta) slope, for a warp's 16 keys and
 * the queries from q0 on, both p and dp as much as dropout leaves. `whole`:
 * those see all of the keys. */
template <int n, bool capped, typename A>
static __device__ inline void
key_weights(const A &a, float p[n / 8][4], float ds[n / 8][4],
            const struct query_stats<n, A> &stats, const struct lane_keys &keys,
            int q0, bool whole)
{
    const float log2e = 1.4426950408889634f;
    int col = threadIdx.x % 4 * 2;

#pragma unroll
    for (int j = 0; j < n / 8; j++) {
        for (int i = 0; i < 4; i++) {
            int c = j * 8 + col + i % 2, query = q0 + c;
            bool visible =
                whole || (query < a.q_len && query >= keys.from[i / 2] &&
                          stats.hides[c] <= keys.key + i / 2 * 8);
            float by = kept_of<n>(a, stats, c, keys.key + i / 2 * 8);
            float slope,
                w = weight_of<capped>(a, p[j][i], stats.lse[c] * log2e, slope);

            p[j][i] = visible ? by * w : 0;
            ds[j][i] =
                visible ? w * (by * ds[j][i] - stats.delta[c]) * slope : 0;
        }
    }
}

/* Loads lse and delta of `step` queries from `first` on; 0 from `end` on. */
template <int step, typename A>
static __device__ __forceinline__ void
load_stats(struct query_stats<step, A> &stats, const float *lse,
           const float *delta, int first, int end)
{
    int i = threadIdx.x;

    if (i >= step)
        return;
    stats.lse[i] = first + i < end ? lse[first + i] : 0;
    stats.delta[i] = first + i < end ? delta[first + i] : 0;
}

/* How many of the first keys these queries do not see because their documents
 * begin later. */
template <int step, typename A>
static __device__ __forceinline__ void
load_hides(struct query_stats<step, A> &stats, const struct plait_attention &a,
           int first)
{
    int i = threadIdx.x;

    if (i < step)
        stats.hides[i] = hidden(a, blockIdx.z, first + i);
}

/* The rows of dropout of these queries of head h, if there is dropout. */
template <int step>
static __device__ __forceinline__ void
load_dropped(struct query_stats<step, capped_attention> &,
             const struct capped_attention &, int, int)
{
}

template <int step>
static __device__ __forceinline__ void
load_dropped(struct query_stats<step, dropped_attention> &stats,
             const struct dropped_attention &a, int h, int first)
{
    int i = threadIdx.x;

    if (i < step)
        stats.dropped[i] = dropped_row(a, blockIdx.z, h, first + i);
}

/* The first query that sees the key; q_len: none does. */
static __device__ inline int first_query(const struct plait_attention &a,
                                         int key)
{
    int64_t i = a.k_pos + key - a.q_pos;

    return key >= a.k_len || i > a.q_len ? a.q_len : i < 0 ? 0 : (int)i;
}

/* Loads `step` queries of head h from `first` on, and their gradients, to two
 * tiles from `tile` on; and their stats. */
template <typename T, int D, int step, typename A>
static __device__ inline void
fetch_queries(const A &a, unsigned tile, struct query_stats<step, A> &stats,
              const struct backward_inputs<T> &in, int h, int first)
{
    size_t b = blockIdx.z, stat = (b * a.q_heads + h) * a.q_len;

    fetch<D, step>(tile, in.Q + b * a.q_len * a.q_stride + (size_t)h * D,
                   a.q_stride, first, a.q_len);
    fetch<D, step>(tile + step * D * 2,
                   in.dout + (b * a.q_len * a.q_heads + h) * D,
                   (size_t)a.q_heads * D, first, a.q_len);
    load_stats(stats, in.lse + stat, in.delta + stat, first, a.q_len);
    load_hides(stats, a, first);
    load_dropped<step>(stats, a, h, first);
}

/* The step of queries that follows the one at `at`; after a head's last it is
 * the next head's first. */
static __device__ __forceinline__ int next_query(int at, int step, int start,
                                                 int end)
{
    return at + step < end ? at + step : start;
}

/* The keys of one tile with the queries of all heads that share them. Computed
 * transposed: a warp has 16 keys. */
template <typename T, int D, bool capped, typename A>
static __global__ void __launch_bounds__(threads, 1)
    key_gradient_kernel(A a, struct key_gradients<T> to,
                        struct backward_inputs<T> in)
{
    constexpr int step = D == 64 ? 64 : 32;
    extern __shared__ __align__(128) char shared[];
    typedef struct query_stats<step, A> query_stats;
    __shared__ query_stats stats[2]; /* of two buffers */
    int kv = blockIdx.y, group = a.q_heads / a.kv_heads;
    int first = blockIdx.x * rows, warp_row = threadIdx.x / 32 * 16;
    int row = first + warp_row, key = row + threadIdx.x % 32 / 4;
    struct lane_keys keys = {key,
                             {first_query(a, key), first_query(a, key + 8)}};
    unsigned k_tile = shared_address(shared), v_tile = k_tile + rows * D * 2;
    unsigned q_tile = v_tile + rows * D * 2, bytes = step * D * 2;
    size_t b = blockIdx.z, at = b * a.k_len * a.kv_stride + (size_t)kv * D;
    int start = first_query(a, first) / step * step;
    int end = last_queries(a, b, min(first + rows, a.k_len) - 1);
    int tiles = group * ((max(end - start, 0) + step - 1) / step);
    int h = kv * group, q_next = start, q0 = start; /* next, current */
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    auto fetch_next = [&](int half) {
        fetch_queries<T, D, step>(a, q_tile + half * 2 * bytes, stats[half], in,
                                  h, q_next);
        q_next = next_query(q_next, step, start, end);
        h += q_next == start;
    };

    fetch<D, rows>(k_tile, in.K + at, a.kv_stride, first, a.k_len);
    fetch<D, rows>(v_tile, in.V + at, a.kv_stride, first, a.k_len);
    if (tiles > 0)
        fetch_next(0);
    copy_commit();
    for (int n = 0; n < tiles; n++) {
        int half = n % 2;
        unsigned q_now = q_tile + half * 2 * bytes, o_now = q_now + bytes;
        bool whole = q0 >= first_query(a, row + 15) && q0 + step <= a.q_len &&
                     hidden(a, b, q0 + step - 1) <= row;
        float p[step / 8][4], ds[step / 8][4];

        if (n + 1 < tiles)
            fetch_next(half ^ 1);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        scores<T, D, step>(p, k_tile, warp_row, q_now);
        scores<T, D, step>(ds, v_tile, warp_row, o_now);
        key_weights<step, capped>(a, p, ds, stats[half], keys, q0, whole);
        add_product<T, D, step>(dv, p, o_now);
        add_product<T, D, step>(dk, ds, q_now);
        q0 = next_query(q0, step, start, end);
        __syncthreads();
    }
    copy_wait<0>();
    add_to_rows<T, D>(to.dK + at, a.kv_stride, row, a.k_len, dk, a.overwrite);
    add_to_rows<T, D>(to.dV + at, a.kv_stride, row, a.k_len, dv, a.overwrite);
}

/* The lane's two queries; lse is to base 2. */
struct lane_queries {
    float lse[2], delta[2];
    struct row_keys keys;
};

/* ds = p (dp - delta) slope with p = exp(score - lse), for a warp's 16 queries
 * and the n keys from k0 on; ds is dp before, as much of which counts as
 * dropout leaves. */
template <int n, bool capped, typename A>
static __device__ __forceinline__ void
query_weights(const A &a, const float s[n / 8][4], float ds[n / 8][4],
              const struct lane_queries &q, int k0)
{
    int lane = threadIdx.x % 32;

#pragma unroll
    for (int j = 0; j < n / 8; j++) {
        for (int i = 0; i < 4; i++) {
            int key = k0 + j * 8 + lane % 4 * 2 + i % 2;
            bool visible =
                key < q.keys.limit[i / 2] && key >= q.keys.from[i / 2];
            float slope, w = weight_of<capped>(a, s[j][i], q.lse[i / 2], slope);
            float by = kept_part(a, q.keys.dropped[i / 2], key);

            ds[j][i] =
                visible ? w * (by * ds[j][i] - q.delta[i / 2]) * slope : 0;
        }
    }
}

/* The queries of one tile with all keys they see; a warp has 16. */
template <typename T, int D, bool capped, typename A>
static __global__ void __launch_bounds__(threads, 1)
    query_gradient_kernel(A a, T *dQ, struct backward_inputs<T> in)
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
    float dq[D / 8][4] = {};
    struct lane_queries own;
    int begin = hidden(a, b, first) / step * step;

    for (int half = 0; half < 2; half++) {
        int i = mine + half * 8;

        own.keys.from[half] = hidden(a, b, i);
        own.keys.dropped[half] = dropped_row(a, b, h, i);
        own.keys.limit[half] = i < a.q_len ? (int)seen(a, i) : 0;
        own.lse[half] = i < a.q_len ? in.lse[stat + i] * log2e : 0;
        own.delta[half] = i < a.q_len ? in.delta[stat + i] : 0;
    }
    fetch<D, rows>(q_tile, in.Q + at, a.q_stride, first, a.q_len);
    fetch<D, rows>(o_tile, in.dout + (b * a.q_len * a.q_heads + h) * D,
                   (size_t)a.q_heads * D, first, a.q_len);
    fetch<D, step>(k_tile, in.K + kv_at, a.kv_stride, begin, a.k_len);
    fetch<D, step>(k_tile + bytes, in.V + kv_at, a.kv_stride, begin, a.k_len);
    copy_commit();
    for (int k0 = begin, half = 0; k0 < most; k0 += step, half ^= 1) {
        unsigned now = k_tile + half * 2 * bytes;
        unsigned next = k_tile + (half ^ 1) * 2 * bytes;
        float s[step / 8][4], ds[step / 8][4];

        fetch<D, step>(next, in.K + kv_at, a.kv_stride, k0 + step, a.k_len);
        fetch<D, step>(next + bytes, in.V + kv_at, a.kv_stride, k0 + step,
                       a.k_len);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        scores<T, D, step>(s, q_tile, warp_row, now);
        scores<T, D, step>(ds, o_tile, warp_row, now + bytes);
        query_weights<step, capped>(a, s, ds, own, k0);
        add_product<T, D, step>(dq, ds, now);
        __syncthreads();
    }
    copy_wait<0>();
    add_to_rows<T, D>(dQ + at, a.q_stride, first + warp_row, a.q_len, dq,
                      a.overwrite);
}

void cuda_attention_mma_backward(struct plait_queue *q,
                                 const struct plait_attention_backward *g,
                                 const float *delta)
{
    const char *op = "attention_backward";
    const struct plait_attention *a = &g->a;

    for_shape(g, [&](auto zero, auto d, auto capped, auto scores) {
        typedef decltype(zero) T;
        typedef decltype(scores) A;
        constexpr int D = decltype(d)::value;
        auto keys = key_gradient_kernel<T, D, decltype(capped)::value, A>;
        auto queries = query_gradient_kernel<T, D, decltype(capped)::value, A>;
        struct key_gradients<T> to = {
            (T *)g->dK, (T *)g->dV
        };
        struct backward_inputs<T> in(*g, delta);
        size_t bytes = (2 * rows + 4 * (D == 64 ? 64 : 32)) * D * 2;
        dim3 grid((unsigned)ceil_div(a->k_len, rows), a->kv_heads, a->batch);

        if (cuda_allow_shared(q, op, (const void *)keys, bytes) != 0)
            return;
        keys<<<grid, threads, bytes, q->stream>>>(scores, to, in);
        bytes = (2 * rows + 4 * 32) * D * 2;
        grid = dim3((unsigned)ceil_div(a->q_len, rows), a->q_heads, a->batch);
        if (cuda_allow_shared(q, op, (const void *)queries, bytes) == 0)
            queries<<<grid, threads, bytes, q->stream>>>(scores, (T *)g->dQ,
                                                         in);
    });
}

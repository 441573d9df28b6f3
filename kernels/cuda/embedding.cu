/* SPDX-License-Identifier: Apache-2.0 */
/* Token and position embedding, and rotary positions. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/positions.cuh"
#include "kernels/rope.h"

static const unsigned threads = 256;

/* -- forward ------------------------------------------------------------- */

/* A thread has V columns of a row. */
template <typename T, int V>
static __global__ void embedding_kernel(struct plait_embedding_forward e)
{
    const size_t C = e.C;
    const T *wte = (const T *)e.wte, *wpe = (const T *)e.wpe;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
         i < e.N * (C / V); i += (size_t)gridDim.x * blockDim.x) {
        size_t row = i / (C / V), c = i % (C / V) * V;
        int64_t token = (int64_t)e.tokens[row] - e.first;
        float x[V] = {}, position[V] = {};

        if (token >= 0 && token < e.count)
            load_values<T, V>(x, wte + (size_t)token * C + c);
        if (wpe != NULL)
            load_values<T, V>(position,
                              wpe + (size_t)position_of(e.at, row) * C + c);
        for (int j = 0; j < V; j++)
            x[j] += position[j];
        store_values<T, V>((T *)e.out + row * C + c, x);
    }
}

static int embedding_forward(struct plait_queue *q,
                             const struct plait_embedding_forward *e)
{
    size_t n = e->N * e->C;

    return cuda_launch(q, "embedding_forward", e->type, n, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(e->out, e->C) && aligned16(e->wte) &&
                     aligned16(e->wpe);

        for_width<T>(packs, [&](auto width) {
            constexpr int V = width.value;

            embedding_kernel<T, V>
                <<<grid_for(q, n / V, threads), threads, 0, q->stream>>>(*e);
        });
    });
}

/* -- backward ------------------------------------------------------------ */

/* Each row i of N has the key key[i]: the row of a table that it is added to.
 * Rows with keys outside first .. first + count - 1 are ignored. */
struct keys {
    const int32_t *key;
    int32_t first, count;
    size_t N;

    /* The key of row i as a row of the table; outside 0 .. count - 1 if the row
     * is to be ignored. */
    __device__ int64_t row(size_t i) const
    {
        return (int64_t)key[i] - first;
    }
};

/* The rows sorted by key, in scratch memory: order[starts[k]] up to
 * order[starts[k + 1]] are those of key first + k, ascending. Rows of keys
 * outside first .. first + count - 1 are in none. */
struct by_key {
    int32_t *starts, *order;
};

/* counts[k] = how many of the keys are first + k; counts is 0 before. */
static __global__ void count_keys_kernel(int32_t *counts, struct keys keys)
{
    GRID_LOOP(i, keys.N)
    {
        int64_t k = keys.row(i);

        if (k >= 0 && k < keys.count)
            atomicAdd(&counts[k], 1);
    }
}

static const int scan_threads = 1024;

/* starts[k] = next[k] = the sum of the counts before k, which are in starts
 * before; starts has one more. One block, each thread has a share of the k. */
static __global__ void starts_kernel(int32_t *starts, int32_t *next,
                                     int32_t count)
{
    __shared__ int32_t sums[scan_threads];
    int t = threadIdx.x;
    int32_t share = (count + scan_threads - 1) / scan_threads;
    int32_t from = min(t * share, count), to = min(from + share, count);
    int32_t before = 0;

    for (int32_t k = from; k < to; k++)
        before += starts[k];
    sums[t] = before;
    __syncthreads();
    for (int d = 1; d < scan_threads; d *= 2) {
        int32_t x = t >= d ? sums[t - d] : 0;

        __syncthreads();
        sums[t] += x;
        __syncthreads();
    }
    before = t > 0 ? sums[t - 1] : 0;
    for (int32_t k = from; k < to; k++) {
        int32_t n = starts[k];

        starts[k] = next[k] = before;
        before += n;
    }
    if (t == scan_threads - 1)
        starts[count] = before;
}

/* loose[] = the rows of each key, in any order. */
static __global__ void gather_keys_kernel(int32_t *loose, int32_t *next,
                                          struct keys keys)
{
    GRID_LOOP(i, keys.N)
    {
        int64_t k = keys.row(i);

        if (k >= 0 && k < keys.count)
            loose[atomicAdd(&next[k], 1)] = (int32_t)i;
    }
}

/* order[] = loose[], the rows of each key ascending. */
static __global__ void order_keys_kernel(int32_t *order, const int32_t *loose,
                                         const int32_t *starts,
                                         struct keys keys)
{
    GRID_LOOP(at, (size_t)starts[keys.count])
    {
        int32_t row = loose[at], k = (int32_t)keys.row(row);
        int32_t from = starts[k], to = starts[k + 1], place = from;

        for (int32_t j = from; j < to; j++)
            place += loose[j] < row;
        order[place] = row;
    }
}

static int sort_by_key(struct plait_queue *q, struct by_key *sorted,
                       const struct keys &keys, int32_t *scratch)
{
    int32_t *next = scratch + keys.count + 1, *loose = next + keys.count;
    unsigned blocks = grid_for(q, keys.N, threads);
    size_t counts = (size_t)keys.count * sizeof(*scratch);

    sorted->starts = scratch;
    sorted->order = loose + keys.N;
    if (cuda_check(q, "embedding_backward",
                   cudaMemsetAsync(scratch, 0, counts, q->stream)) != 0)
        return -1;
    count_keys_kernel<<<blocks, threads, 0, q->stream>>>(scratch, keys);
    starts_kernel<<<1, scan_threads, 0, q->stream>>>(scratch, next, keys.count);
    gather_keys_kernel<<<blocks, threads, 0, q->stream>>>(loose, next, keys);
    order_keys_kernel<<<blocks, threads, 0, q->stream>>>(sorted->order, loose,
                                                         scratch, keys);
    return 0;
}

static const int tile = 32, lanes = 8;

/* sum[V] += the values at src of the rows row(k), k = from, from + step, .. <
 * n, each C values behind the one before. */
template <typename T, int V, typename F>
static __device__ inline void add_rows(float *sum, const T *src, size_t C,
                                       size_t from, size_t step, size_t n,
                                       F row)
{
#pragma unroll 4
    for (size_t k = from; k < n; k += step) {
        alignas(16) T v[V];

        copy_values<T, V>(v, src + row(k) * C);
        for (int j = 0; j < V; j++)
            sum[j] += to_float(v[j]);
    }
}

/* dst += the rows given by row(k), k < n, in a fixed order. Thread (x, y) has V
 * columns and the rows y, y + lanes, .. */
template <typename T, int V, typename F>
static __device__ inline void gather_rows(float *dst, const T *src, size_t C,
                                          size_t n, F row)
{
    __shared__ float shared[lanes][tile * V];
    size_t col = ((size_t)blockIdx.y * tile + threadIdx.x) * V;
    float sum[V] = {};

    if (col < C)
        add_rows<T, V>(sum, src + col, C, threadIdx.y, lanes, n, row);
    for (int j = 0; j < V; j++)
        shared[threadIdx.y][threadIdx.x * V + j] = sum[j];
    __syncthreads();
    for (int i = threadIdx.y * tile + threadIdx.x; i < tile * V;
         i += tile * lanes) {
        size_t c = (size_t)blockIdx.y * tile * V + i;
        float total = 0;

        for (int k = 0; k < lanes; k++)
            total += shared[k][i];
        if (c < C)
            dst[c] += total;
    }
    __syncthreads();
}

/* A key of more rows than this has all lanes of a block, others have one. */
static const int32_t many_rows = 64;

/* dst[k] += the rows of key first + k, in their order. Block x has `lanes`
 * keys, one for each y of its threads. */
template <typename T, int V>
static __global__ void key_gradient_kernel(float *dst, const T *src,
                                           struct by_key sorted, int32_t count,
                                           size_t C)
{
    int32_t first = (int32_t)blockIdx.x * lanes, own = first + threadIdx.y;
    size_t col = ((size_t)blockIdx.y * tile + threadIdx.x) * V;
    int32_t begin = own < count ? sorted.starts[own] : 0;
    int32_t n = own < count ? sorted.starts[own + 1] - begin : 0;
    __shared__ int32_t begins[lanes];
    __shared__ int32_t counts[lanes];
    const int32_t *order = sorted.order;
    float sum[V] = {};

    if (threadIdx.x == 0) {
        begins[threadIdx.y] = begin;
        counts[threadIdx.y] = n;
    }
    __syncthreads();
    for (int y = 0; y < lanes; y++)
        if (counts[y] > many_rows)
            gather_rows<T, V>(
                dst + (size_t)(first + y) * C, src, C, (size_t)counts[y],
                [&](size_t i) { return (size_t)order[begins[y] + i]; });
    if (n == 0 || n > many_rows || col >= C)
        return;
    add_rows<T, V>(sum, src + col, C, 0, 1, (size_t)n,
                   [&](size_t i) { return (size_t)order[begin + i]; });
    for (int j = 0; j < V; j++)
        dst[(size_t)own * C + col + j] += sum[j];
}

/* Block x sums position x of all sequences. */
template <typename T, int V>
static __global__ void position_gradient_kernel(float *dwpe, const T *dout,
                                                size_t N, size_t length,
                                                size_t C)
{
    size_t pos = blockIdx.x;

    gather_rows<T, V>(dwpe + pos * C, dout, C, (N - pos + length - 1) / length,
                      [&](size_t k) { return pos + k * length; });
}

static __global__ void positions_kernel(int32_t *positions,
                                        struct plait_positions at, size_t N)
{
    size_t row = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (row < N)
        positions[row] = (int32_t)position_of(at, row);
}

/* Row keys.row(i) of dst += row i of src, in the order of the rows i. */
template <typename T, int V>
static void add_by_key(struct plait_queue *q, float *dst, const T *src,
                       size_t C, const struct keys &keys, int32_t *scratch)
{
    unsigned across = (unsigned)ceil_div(C, tile * V);
    unsigned down = (unsigned)ceil_div((size_t)keys.count, lanes);
    struct by_key sorted;

    if (sort_by_key(q, &sorted, keys, scratch) == 0)
        key_gradient_kernel<T, V>
            <<<dim3(down, across), dim3(tile, lanes), 0, q->stream>>>(
                dst, src, sorted, keys.count, C);
}

/* Elements of scratch memory that sort_by_key() needs. */
static size_t sort_scratch(size_t count, size_t N)
{
    return 2 * count + 1 + 2 * N;
}

template <typename T, int V>
static void embedding_gradient(struct plait_queue *q,
                               const struct plait_embedding_backward *e)
{
    const T *dout = (const T *)e->dout;
    size_t N = e->N, C = e->C, count = (size_t)e->count;
    unsigned across = (unsigned)ceil_div(C, tile * V);
    size_t positions = N < e->at.T ? N : e->at.T;
    size_t most = (size_t)e->at.pos0 + positions;
    size_t need = sort_scratch(count > most ? count : most, N);
    int32_t *scratch =
        (int32_t *)cuda_scratch(q, (need + N) * sizeof(*scratch));

    if (scratch == NULL)
        return;
    /* A rank's shard of the vocabulary may be padding only. */
    if (e->dwte != NULL && count > 0)
        add_by_key<T, V>(q, e->dwte, dout, C,
                         keys{e->tokens, e->first, e->count, N}, scratch);
    if (e->dwpe != NULL && e->at.starts != NULL) {
        int32_t *key = scratch + need;

        positions_kernel<<<(unsigned)ceil_div(N, threads), threads, 0,
                           q->stream>>>(key, e->at, N);
        add_by_key<T, V>(q, e->dwpe, dout, C, keys{key, 0, (int32_t)most, N},
                         scratch);
    } else if (e->dwpe != NULL)
        position_gradient_kernel<T, V><<<dim3((unsigned)positions, across),
                                         dim3(tile, lanes), 0, q->stream>>>(
            e->dwpe + (size_t)e->at.pos0 * C, dout, N, e->at.T, C);
}

static int embedding_backward(struct plait_queue *q,
                              const struct plait_embedding_backward *e)
{
    if (cuda_enter(q) != 0)
        return -1;
    if (e->N * e->C == 0)
        return 0;
    if (e->N > INT32_MAX)
        return plait_queue_fail(&q->head, EINVAL,
                                "embedding_backward: more than 2^31 tokens");
    for_type(e->type, [&](auto zero) {
        typedef decltype(zero) T;

        if (rows_aligned16<T>(e->dout, e->C))
            embedding_gradient<T, pack<T>::n>(q, e);
        else
            embedding_gradient<T, 1>(q, e);
    });
    return cuda_leave(q, "embedding_backward");
}

/* -- rotary positions (Su et al. 2021) ------------------------------------ */

/* plait_rope_angles.pairs, where the kernel reaches it. */
struct rope_pairs {
    double by[PLAIT_ROPE_PAIRS];
};

/* Sine and cosine of the angle of pair d at a position. It is computed in
 * double and reduced to one turn before it becomes fp32, which cannot resolve
 * the angles of far positions. */
static __device__ inline void rope_angle(float *s, float *c, double pos, int d,
                                         const struct plait_rope &rope,
                                         const struct rope_pairs &pairs,
                                         double log2_theta)
{
    const struct plait_rope_angles &a = rope.angles;
    const double two_pi = 6.283185307179586477;
    double f = exp2(-2.0 * d / rope.columns * log2_theta), turns;

    if (a.pairs) {
        f /= pairs.by[d];
    } else if (a.factor > 1) {
        double s01 = a.original ? a.original * f / two_pi : (double)d;

        s01 = (s01 - a.low) / (a.high - a.low);
        s01 = fmin(fmax(s01, 0.0), 1.0);
        f *= (1 - s01) / a.factor + s01;
    }
    turns = pos * f / two_pi;
    sincospif((float)(2 * (turns - rint(turns))), s, c);
}

/* One thread has V neighbouring pairs of every head of a row. */
template <typename T, int V>
static __global__ void rope_kernel(struct plait_rope r, struct rope_pairs pairs,
                                   double log2_theta, float size)
{
    const int half = r.columns / 2, packs = half / V;

    GRID_LOOP(i, r.N * packs)
    {
        size_t row = i / packs;
        int d = (int)(i % packs) * V;
        double pos = (double)position_of(r.at, row);
        T *p = (T *)r.x + row * r.stride + d;
        float s[V], c[V];

        for (int j = 0; j < V; j++) {
            rope_angle(&s[j], &c[j], pos, d + j, r, pairs, log2_theta);
            s[j] *= r.direction * size;
            c[j] *= size;
        }
#pragma unroll 4
        for (int h = 0; h < r.heads; h++) {
            T *head = p + h * r.head_dim;
            float a[V], b[V];

            load_values<T, V>(a, head);
            load_values<T, V>(b, head + half);
            for (int j = 0; j < V; j++) {
                float turned = a[j] * c[j] - b[j] * s[j];

                b[j] = a[j] * s[j] + b[j] * c[j];
                a[j] = turned;
            }
            store_values<T, V>(head, a);
            store_values<T, V>(head + half, b);
        }
    }
}

static int rope(struct plait_queue *q, const struct plait_rope *r)
{
    struct plait_rope known = *r;
    struct rope_pairs by = {};
    int half = (r->columns ? r->columns : r->head_dim) / 2;
    size_t pairs = r->N * (size_t)half;

    known.columns = 2 * half;
    if (r->angles.pairs)
        memcpy(by.by, r->angles.pairs, (size_t)half * sizeof(by.by[0]));

    return cuda_launch(q, "rope", r->type, pairs, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(r->x, r->stride) &&
                     half % pack<T>::n == 0 && r->head_dim % pack<T>::n == 0;

        for_width<T>(packs, [&](auto width) {
            constexpr int V = width.value;

            rope_kernel<T, V>
                <<<grid_for(q, pairs / V, threads), threads, 0, q->stream>>>(
                    known, by, log2(r->angles.theta),
                    (float)plait_rope_size(&r->angles));
        });
    });
}

void cuda_embedding_ops(struct plait_ops *ops)
{
    ops->embedding_forward = embedding_forward;
    ops->embedding_backward = embedding_backward;
    ops->rope = rope;
}

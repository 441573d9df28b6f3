/* SPDX-License-Identifier: Apache-2.0 */
/* Token and position embedding, and rotary positions. */
#include "kernels/cuda/common.cuh"

static const unsigned threads = 256;

/* The position of a row within its document. */
static __device__ inline int64_t
position_of(const int32_t *starts, int64_t pos0, size_t row, size_t length)
{
    return pos0 + (int64_t)(row % length) - (starts != NULL ? starts[row] : 0);
}

/* -- forward ------------------------------------------------------------- */

/* A thread has V columns of a row. */
template <typename T, int V>
static __global__ void
embedding_kernel(T *out, const int32_t *tokens, const T *wte, const T *wpe,
                 int32_t first, int32_t count, int64_t pos0,
                 const int32_t *starts, size_t N, size_t length, size_t C)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
         i < N * (C / V); i += (size_t)gridDim.x * blockDim.x) {
        size_t row = i / (C / V), c = i % (C / V) * V;
        int64_t token = (int64_t)tokens[row] - first;
        float x[V] = {}, position[V] = {};

        if (token >= 0 && token < count)
            load_values<T, V>(x, wte + (size_t)token * C + c);
        if (wpe != NULL)
            load_values<T, V>(
                position,
                wpe + (size_t)position_of(starts, pos0, row, length) * C + c);
        for (int j = 0; j < V; j++)
            x[j] += position[j];
        store_values<T, V>(out + row * C + c, x);
    }
}

static int embedding_forward(struct plait_queue *q, enum plait_dtype type,
                             void *out, const int32_t *tokens, const void *wte,
                             const void *wpe, int32_t first, int32_t count,
                             int64_t pos0, const int32_t *starts, size_t N,
                             size_t T, size_t C)
{
    return cuda_launch(q, "embedding_forward", type, N * C, [&](auto zero) {
        typedef decltype(zero) E;
        bool packs =
            rows_aligned16<E>(out, C) && aligned16(wte) && aligned16(wpe);

        for_width<E>(packs, [&](auto width) {
            constexpr int V = width.value;

            embedding_kernel<E, V>
                <<<grid_for(q, N * C / V, threads), threads, 0, q->stream>>>(
                    (E *)out, tokens, (const E *)wte, (const E *)wpe, first,
                    count, pos0, starts, N, T, C);
        });
    });
}

/* -- backward ------------------------------------------------------------ */

/* The rows sorted by key, in scratch memory: order[starts[k]] up to
 * order[starts[k + 1]] are those of key first + k, ascending. Rows of keys
 * outside first .. first + count - 1 are in none. */
struct by_key {
    int32_t *starts, *order;
};

/* counts[k] = how many of the keys are first + k; counts is 0 before. */
static __global__ void count_keys_kernel(int32_t *counts, const int32_t *keys,
                                         int32_t first, int32_t count, size_t N)
{
    GRID_LOOP(i, N)
    {
        int64_t k = (int64_t)keys[i] - first;

        if (k >= 0 && k < count)
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
                                          const int32_t *keys, int32_t first,
                                          int32_t count, size_t N)
{
    GRID_LOOP(i, N)
    {
        int64_t k = (int64_t)keys[i] - first;

        if (k >= 0 && k < count)
            loose[atomicAdd(&next[k], 1)] = (int32_t)i;
    }
}

/* order[] = loose[], the rows of each key ascending. */
static __global__ void order_keys_kernel(int32_t *order, const int32_t *loose,
                                         const int32_t *starts,
                                         const int32_t *keys, int32_t first,
                                         int32_t count)
{
    GRID_LOOP(at, (size_t)starts[count])
    {
        int32_t row = loose[at], k = keys[row] - first;
        int32_t from = starts[k], to = starts[k + 1], place = from;

        for (int32_t j = from; j < to; j++)
            place += loose[j] < row;
        order[place] = row;
    }
}

static int sort_by_key(struct plait_queue *q, struct by_key *sorted,
                       const int32_t *keys, int32_t *scratch, int32_t first,
                       int32_t count, size_t N)
{
    int32_t *next = scratch + count + 1, *loose = next + count;
    unsigned blocks = grid_for(q, N, threads);

    sorted->starts = scratch;
    sorted->order = loose + N;
    if (cuda_check(q, "embedding_backward",
                   cudaMemsetAsync(scratch, 0, (size_t)count * sizeof(*scratch),
                                   q->stream)) != 0)
        return -1;
    count_keys_kernel<<<blocks, threads, 0, q->stream>>>(scratch, keys, first,
                                                         count, N);
    starts_kernel<<<1, scan_threads, 0, q->stream>>>(scratch, next, count);
    gather_keys_kernel<<<blocks, threads, 0, q->stream>>>(loose, next, keys,
                                                          first, count, N);
    order_keys_kernel<<<blocks, threads, 0, q->stream>>>(
        sorted->order, loose, scratch, keys, first, count);
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
                                        const int32_t *starts, int64_t pos0,
                                        size_t N, size_t length)
{
    size_t row = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (row < N)
        positions[row] = (int32_t)position_of(starts, pos0, row, length);
}

/* dst[keys[i] - first] += row i of src, in the order of the rows; keys outside
 * first .. first + count - 1 are ignored. */
template <typename T, int V>
static void add_by_key(struct plait_queue *q, float *dst, const T *src,
                       const int32_t *keys, int32_t *scratch, int32_t first,
                       int32_t count, size_t N, size_t C)
{
    unsigned across = (unsigned)ceil_div(C, tile * V);
    struct by_key sorted;

    if (sort_by_key(q, &sorted, keys, scratch, first, count, N) == 0)
        key_gradient_kernel<T, V>
            <<<dim3((unsigned)ceil_div((size_t)count, lanes), across),
               dim3(tile, lanes), 0, q->stream>>>(dst, src, sorted, count, C);
}

/* Elements of scratch memory that sort_by_key() needs. */
static size_t sort_scratch(size_t count, size_t N)
{
    return 2 * count + 1 + 2 * N;
}

template <typename T, int V>
static void embedding_gradient(struct plait_queue *q, float *dwte, float *dwpe,
                               const int32_t *tokens, const T *dout,
                               int32_t first, int32_t count, int64_t pos0,
                               const int32_t *starts, size_t N, size_t length,
                               size_t C)
{
    unsigned across = (unsigned)ceil_div(C, tile * V);
    size_t positions = N < length ? N : length, most = (size_t)pos0 + positions;
    size_t need = sort_scratch((size_t)count > most ? (size_t)count : most, N);
    int32_t *scratch =
        (int32_t *)cuda_scratch(q, (need + N) * sizeof(*scratch));

    if (scratch == NULL)
        return;
    /* A rank's shard of the vocabulary may be padding only. */
    if (dwte != NULL && count > 0)
        add_by_key<T, V>(q, dwte, dout, tokens, scratch, first, count, N, C);
    if (dwpe != NULL && starts != NULL) {
        int32_t *keys = scratch + need;

        positions_kernel<<<(unsigned)ceil_div(N, threads), threads, 0,
                           q->stream>>>(keys, starts, pos0, N, length);
        add_by_key<T, V>(q, dwpe, dout, keys, scratch, 0, (int32_t)most, N, C);
    } else if (dwpe != NULL)
        position_gradient_kernel<T, V>
            <<<dim3((unsigned)positions, across), dim3(tile, lanes), 0,
               q->stream>>>(dwpe + (size_t)pos0 * C, dout, N, length, C);
}

static int embedding_backward(struct plait_queue *q, enum plait_dtype type,
                              float *dwte, float *dwpe, const int32_t *tokens,
                              const void *dout, int32_t first, int32_t count,
                              int64_t pos0, const int32_t *starts, size_t N,
                              size_t T, size_t C)
{
    if (cuda_enter(q) != 0)
        return -1;
    if (N * C == 0)
        return 0;
    if (N > INT32_MAX)
        return plait_queue_fail(&q->head, EINVAL,
                                "embedding_backward: more than 2^31 tokens");
    for_type(type, [&](auto zero) {
        typedef decltype(zero) E;

        if (rows_aligned16<E>(dout, C))
            embedding_gradient<E, pack<E>::n>(q, dwte, dwpe, tokens,
                                              (const E *)dout, first, count,
                                              pos0, starts, N, T, C);
        else
            embedding_gradient<E, 1>(q, dwte, dwpe, tokens, (const E *)dout,
                                     first, count, pos0, starts, N, T, C);
    });
    return cuda_leave(q, "embedding_backward");
}

/* -- rotary positions (Su et al. 2021) ------------------------------------ */

/* Sine and cosine of the angle of pair d at a position. It is computed in
 * double and reduced to one turn before it becomes fp32, which cannot resolve
 * the angles of far positions. */
static __device__ inline void rope_angle(float *s, float *c, double pos, int d,
                                         int head_dim, double log2_theta,
                                         const struct plait_rope *rope)
{
    const double two_pi = 6.283185307179586477;
    double f = exp2(-2.0 * d / head_dim * log2_theta), turns;

    if (rope->factor > 1) {
        double s01 = (rope->original * f / two_pi - rope->low) /
                     (rope->high - rope->low);

        s01 = fmin(fmax(s01, 0.0), 1.0);
        f *= (1 - s01) / rope->factor + s01;
    }
    turns = pos * f / two_pi;
    sincospif((float)(2 * (turns - rint(turns))), s, c);
}

/* One thread has V neighbouring pairs of every head of a row. */
template <typename T, int V>
static __global__ void rope_kernel(T *x, size_t stride, int heads, int head_dim,
                                   double log2_theta, struct plait_rope rope,
                                   int64_t pos0, const int32_t *starts,
                                   int direction, size_t N, size_t length)
{
    int half = head_dim / 2, packs = half / V;

    GRID_LOOP(i, N * packs)
    {
        size_t row = i / packs;
        int d = (int)(i % packs) * V;
        double pos = (double)position_of(starts, pos0, row, length);
        T *p = x + row * stride + d;
        float s[V], c[V];

        for (int j = 0; j < V; j++) {
            rope_angle(&s[j], &c[j], pos, d + j, head_dim, log2_theta, &rope);
            s[j] *= direction;
        }
#pragma unroll 4
        for (int h = 0; h < heads; h++) {
            float a[V], b[V];

            load_values<T, V>(a, p + h * head_dim);
            load_values<T, V>(b, p + h * head_dim + half);
            for (int j = 0; j < V; j++) {
                float turned = a[j] * c[j] - b[j] * s[j];

                b[j] = a[j] * s[j] + b[j] * c[j];
                a[j] = turned;
            }
            store_values<T, V>(p + h * head_dim, a);
            store_values<T, V>(p + h * head_dim + half, b);
        }
    }
}

static int rope(struct plait_queue *q, enum plait_dtype type, void *x,
                size_t stride, int heads, int head_dim,
                const struct plait_rope *how, int64_t pos0,
                const int32_t *starts, int direction, size_t N, size_t T)
{
    size_t pairs = N * (size_t)(head_dim / 2);

    return cuda_launch(q, "rope", type, pairs, [&](auto zero) {
        typedef decltype(zero) E;
        bool packs =
            rows_aligned16<E>(x, stride) && head_dim / 2 % pack<E>::n == 0;

        for_width<E>(packs, [&](auto width) {
            constexpr int V = width.value;

            rope_kernel<E, V>
                <<<grid_for(q, pairs / V, threads), threads, 0, q->stream>>>(
                    (E *)x, stride, heads, head_dim, log2(how->theta), *how,
                    pos0, starts, direction < 0 ? -1 : 1, N, T);
        });
    });
}

void cuda_embedding_ops(struct plait_ops *ops)
{
    ops->embedding_forward = embedding_forward;
    ops->embedding_backward = embedding_backward;
    ops->rope = rope;
}

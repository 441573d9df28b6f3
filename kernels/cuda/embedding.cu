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

/* order[] = the rows sorted by token, equal tokens by row. */
static __global__ void rank_sort_kernel(int32_t *order, const int32_t *tokens,
                                        int N)
{
    alignas(16) __shared__ int32_t other[threads];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int place = rank_of<threads>(tokens, i, N, other);

    if (i < N)
        order[place] = i;
}

static const int tile = 32, lanes = 4;

/* dst += the rows given by row(k), k < n, in a fixed order. Thread (x, y) has V
 * columns and the rows y, y + lanes, .. */
template <typename T, int V, typename F>
static __device__ inline void gather_rows(float *dst, const T *src, size_t C,
                                          size_t n, F row)
{
    __shared__ float shared[lanes][tile * V];
    size_t col = ((size_t)blockIdx.y * tile + threadIdx.x) * V;
    float sum[V] = {};

    if (col < C) {
        for (size_t k = threadIdx.y; k < n; k += lanes) {
            alignas(16) T v[V];
            const T *p = src + row(k) * C + col;

            if (V > 1)
                *(uint4 *)v = *(const uint4 *)p;
            else
                v[0] = *p;
            for (int j = 0; j < V; j++)
                sum[j] += to_float(v[j]);
        }
    }
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
}

/* Block x sums the run of equal tokens that begins at place x of the order; it
 * returns if none begins there. */
template <typename T, int V>
static __global__ void
token_gradient_kernel(float *dwte, const T *dout, const int32_t *order,
                      const int32_t *tokens, int32_t first, int32_t count,
                      size_t N, size_t C)
{
    size_t place = blockIdx.x, n = 1, end = N;
    int32_t token = tokens[order[place]];

    if (token < first || token - first >= count)
        return;
    if (place > 0 && tokens[order[place - 1]] == token)
        return;
    while (place + n < end) {
        size_t middle = (place + n + end) / 2;

        if (tokens[order[middle]] == token)
            n = middle + 1 - place;
        else
            end = middle;
    }
    gather_rows<T, V>(dwte + (size_t)(token - first) * C, dout, C, n,
                      [&](size_t k) { return (size_t)order[place + k]; });
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
 * first .. first + count - 1 are ignored. order [N] is scratch memory. */
template <typename T, int V>
static void add_by_key(struct plait_queue *q, float *dst, const T *src,
                       int32_t *order, const int32_t *keys, int32_t first,
                       int32_t count, size_t N, size_t C)
{
    unsigned across = (unsigned)ceil_div(C, tile * V);

    rank_sort_kernel<<<(unsigned)ceil_div(N, threads), threads, 0, q->stream>>>(
        order, keys, (int)N);
    token_gradient_kernel<T, V>
        <<<dim3((unsigned)N, across), dim3(tile, lanes), 0, q->stream>>>(
            dst, src, order, keys, first, count, N, C);
}

template <typename T, int V>
static void embedding_gradient(struct plait_queue *q, float *dwte, float *dwpe,
                               const int32_t *tokens, const T *dout,
                               int32_t first, int32_t count, int64_t pos0,
                               const int32_t *starts, size_t N, size_t length,
                               size_t C)
{
    unsigned across = (unsigned)ceil_div(C, tile * V);
    size_t positions = N < length ? N : length;
    int32_t *order = (int32_t *)cuda_scratch(q, 2 * N * sizeof(*order));

    if (order == NULL)
        return;
    if (dwte != NULL)
        add_by_key<T, V>(q, dwte, dout, order, tokens, first, count, N, C);
    if (dwpe != NULL && starts != NULL) {
        int32_t *keys = order + N;

        positions_kernel<<<(unsigned)ceil_div(N, threads), threads, 0,
                           q->stream>>>(keys, starts, pos0, N, length);
        add_by_key<T, V>(q, dwpe, dout, order, keys, 0, INT32_MAX, N, C);
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

/* One thread has one pair of every head of a row. The angle is computed in
 * double and reduced to one turn before it becomes fp32, which cannot resolve
 * the angles of far positions. */
template <typename T>
static __global__ void rope_kernel(T *x, size_t stride, int heads, int head_dim,
                                   double log2_theta, struct plait_rope rope,
                                   int64_t pos0, const int32_t *starts,
                                   int direction, size_t N, size_t length)
{
    const double two_pi = 6.283185307179586477;
    int half = head_dim / 2;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < N * half;
         i += (size_t)gridDim.x * blockDim.x) {
        size_t row = i / half;
        int d = (int)(i % half);
        double pos = (double)position_of(starts, pos0, row, length);
        double f = exp2(-2.0 * d / head_dim * log2_theta), angle;
        T *p = x + row * stride + d;
        float s, c;

        if (rope.factor > 1) {
            double s01 = (rope.original * f / two_pi - rope.low) /
                         (rope.high - rope.low);

            s01 = fmin(fmax(s01, 0.0), 1.0);
            f *= (1 - s01) / rope.factor + s01;
        }
        angle = pos * f;
        sincosf((float)(angle - two_pi * rint(angle / two_pi)), &s, &c);
        s *= direction;
        for (int h = 0; h < heads; h++, p += head_dim) {
            float a = to_float(p[0]), b = to_float(p[half]);

            p[0] = from_float<T>(a * c - b * s);
            p[half] = from_float<T>(a * s + b * c);
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

        rope_kernel<<<grid_for(q, pairs, threads), threads, 0, q->stream>>>(
            (E *)x, stride, heads, head_dim, log2(how->theta), *how, pos0,
            starts, direction < 0 ? -1 : 1, N, T);
    });
}

void cuda_embedding_ops(struct plait_ops *ops)
{
    ops->embedding_forward = embedding_forward;
    ops->embedding_backward = embedding_backward;
    ops->rope = rope;
}

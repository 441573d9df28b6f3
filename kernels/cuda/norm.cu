/* SPDX-License-Identifier: Apache-2.0 */
/* LayerNorm (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019). The
 * threads of one y of a block, whole warps, have a row at a time: each has the
 * columns of packs threadIdx.x, threadIdx.x + blockDim.x, .. of every row, so
 * that values kept per column need no barrier. Rows that are not too wide are
 * `held` in registers, others are read twice. */
#include "kernels/cuda/common.cuh"
#include "kernels/norm.h"

static const int threads = 256; /* of a block */

/* Most values of a row that a thread holds. */
template <typename T> static constexpr int most_held()
{
    return 4 * pack<T>::n;
}

/* The threads of a block for rows of C values of T. */
template <typename T> static dim3 block_for(size_t C)
{
    unsigned n = 32;

    while (n < (unsigned)threads && (size_t)n * most_held<T>() < C)
        n *= 2;
    return dim3(n, threads / n);
}

/* f(at, c) for each pack of this thread in a row of C values: its column c of
 * the row is value `at` of those that the thread holds, at = 0 if it holds one
 * pack at a time. */
template <int V, int HELD, typename F>
static __device__ inline void for_packs(int C, F f)
{
    int c = (int)threadIdx.x * V, step = (int)blockDim.x * V;

    if (HELD > V) {
#pragma unroll
        for (int at = 0; at < HELD; at += V)
            if (c + at / V * step < C)
                f(at, c + at / V * step);
    } else {
        for (; c < C; c += step)
            f(0, c);
    }
}

/* The sum over the threads of a row, to all of them, in a fixed order. All
 * threads of the block call it; `shared` has an element for each warp and may
 * be used again at once. */
static __device__ inline float row_sum(float x, float *shared)
{
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    float *own = shared + threadIdx.y * warps;

    x = warp_sum(x);
    if (warps == 1)
        return x;
    if (lane == 0)
        own[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_sum(lane < warps ? own[lane] : 0.0f);
    __syncthreads();
    return x;
}

/* Calls f(V, HELD) with how many values of T a thread moves at once and holds
 * of a row of C values, as constants. */
template <typename T, typename F>
static void for_shape(bool packs, size_t C, F f)
{
    constexpr int V = pack<T>::n, held = most_held<T>();

    if (!packs)
        f(std::integral_constant<int, 1>(), std::integral_constant<int, 1>());
    else if (C > (size_t)threads * held)
        f(std::integral_constant<int, V>(), std::integral_constant<int, V>());
    else
        f(std::integral_constant<int, V>(),
          std::integral_constant<int, held>());
}

/* -- forward ------------------------------------------------------------- */

/* Where one row begins in each array, and its statistics once they are known.
 * `sum` and `residual` are not used where there is no residual. */
template <typename T> struct norm_row {
    T *out, *sum;
    const T *inp, *residual;
    int width; /* C, or 0 for a thread that has no row */
    float mean = 0, rstd = 0;
};

/* Normalises one row of n, and sets its mean and rstd. The normalised values
 * are those of the sum as it was rounded. Returns the maximum of `most` and the
 * magnitudes of the output, if n.amax is wanted. */
template <typename T, int V, int HELD, bool rms>
static __device__ inline unsigned
normalize_row(norm_row<T> &row, const struct plait_norm_forward &n,
              unsigned most, float *shared)
{
    const T *whole = row.residual != NULL ? row.sum : row.inp;
    const T *gamma = (const T *)n.gamma, *beta = (const T *)n.beta;
    const int C = (int)n.C, width = row.width;
    float mean, rstd;
    alignas(16) T x[HELD], y[HELD];
    float total = 0, square = 0;
    auto load = [&](int at, int c) {
        copy_values<T, V>(x + at, row.inp + c);
        if (row.residual != NULL)
            copy_values<T, V>(y + at, row.residual + c);
    };

    if (HELD > V)
        for_packs<V, HELD>(width, load);
    for_packs<V, HELD>(width, [&](int at, int c) {
        if (HELD == V)
            load(at, c);
        if (row.residual != NULL) {
            for (int j = at; j < at + V; j++)
                x[j] = from_float<T>(to_float(x[j]) + to_float(y[j]));
            copy_values<T, V>(row.sum + c, x + at);
        }
        for (int j = at; j < at + V; j++)
            total += to_float(x[j]);
    });
    mean = rms ? 0 : row_sum(total, shared) / C;
    for_packs<V, HELD>(width, [&](int at, int c) {
        if (HELD == V)
            copy_values<T, V>(x, whole + c);
        for (int j = at; j < at + V; j++)
            square += (to_float(x[j]) - mean) * (to_float(x[j]) - mean);
    });
    rstd = 1 / sqrtf(row_sum(square, shared) / C + n.eps);
    for_packs<V, HELD>(width, [&](int at, int c) {
        float g[V], b[V] = {};

        if (HELD == V)
            copy_values<T, V>(x, whole + c);
        load_values<T, V>(g, gamma + c);
        if (!rms)
            load_values<T, V>(b, beta + c);
        for (int j = 0; j < V; j++)
            g[j] = (to_float(x[at + j]) - mean) * rstd * (g[j] + n.plus) + b[j];
        store_values<T, V>(row.out + c, g);
        if (n.amax != NULL)
            most = larger<T, V>(most, g);
    });
    row.mean = mean;
    row.rstd = rstd;
    return most;
}

/* rms: n.mean is NULL. */
template <typename T, int V, int HELD, bool rms>
static __global__ void __launch_bounds__(threads, 3)
    norm_kernel(struct plait_norm_forward n)
{
    __shared__ float shared[threads / 32];
    __shared__ unsigned mosts[32];
    const int C = (int)n.C;
    unsigned most = 0;

    for (size_t first = (size_t)blockIdx.x * blockDim.y; first < n.N;
         first += (size_t)gridDim.x * blockDim.y) {
        size_t i = first + threadIdx.y, at = i * C;
        const T *residual = (const T *)n.residual;
        norm_row<T> row = {
            (T *)n.out + at, (T *)n.sum + at, (const T *)n.inp + at,
            residual != NULL ? residual + at : NULL, i < n.N ? C : 0};

        most = normalize_row<T, V, HELD, rms>(row, n, most, shared);
        if (threadIdx.x == 0 && i < n.N) {
            n.rstd[i] = row.rstd;
            if (!rms)
                n.mean[i] = row.mean;
        }
    }
    if (n.amax != NULL)
        block_amax(n.amax, most, mosts);
}

template <typename T, bool rms>
static void norm_launch(struct plait_queue *q,
                        const struct plait_norm_forward *n)
{
    bool packs = rows_aligned16<T>(n->out, n->C) && aligned16(n->inp) &&
                 aligned16(n->sum) && aligned16(n->residual) &&
                 aligned16(n->gamma) && aligned16(n->beta);
    dim3 block = block_for<T>(n->C);
    size_t blocks = ceil_div(n->N, block.y);

    for_shape<T>(packs, n->C, [&](auto width, auto held) {
        norm_kernel<T, width.value, held.value, rms>
            <<<(unsigned)(blocks < 1 << 20 ? blocks : 1 << 20), block, 0,
               q->stream>>>(*n);
    });
}

static int norm_forward(struct plait_queue *q,
                        const struct plait_norm_forward *n)
{
    const char *op = "norm_forward";

    return cuda_launch(q, op, n->type, n->N * n->C, [&](auto zero) {
        typedef decltype(zero) T;

        clear_amax(q, op, n->amax);
        if (n->mean != NULL)
            norm_launch<T, false>(q, n);
        else
            norm_launch<T, true>(q, n);
    });
}

/* -- backward ------------------------------------------------------------ */

/* Index in shared memory of column c + j, of the pack at c: all packs' first
 * numbers, then all second ones, .. A warp's threads access the same number of
 * their packs at a time and so use different banks. */
template <int V> static __device__ inline int place(int c, int j, int C)
{
    return j * (C / V) + c / V;
}

/* Asks for row i of x to be brought into the L2 cache. */
template <typename T>
static __device__ inline void prefetch_row(const T *x, size_t i, int C)
{
    const int line = 128 / sizeof(T);

    for (int c = (int)threadIdx.x * line; c < C; c += (int)blockDim.x * line)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(x + i * C + c));
}

/* Stores the sums over a block to its row of part [gridDim.x, C]. `sums` has
 * those of the threads with y = 0; those of each further y begin `stride`
 * numbers later. */
template <int V>
static __device__ inline void leave_part(float *part, const float *sums,
                                         size_t stride, int C)
{
    for (int c = threadIdx.y * blockDim.x + threadIdx.x; c < C;
         c += blockDim.x * blockDim.y) {
        float total = 0;

        for (unsigned y = 0; y < blockDim.y; y++)
            total += sums[y * stride + place<V>(c / V * V, c % V, C)];
        part[(size_t)blockIdx.x * C + c] = total;
    }
}

#ifdef __CUDA_ARCH__
#define CAPABILITY (__CUDA_ARCH__ / 10)
#else
#define CAPABILITY 0 /* of the host's pass */
#endif

/* How many blocks of norm_gradient_kernel() a multiprocessor is to run at a
 * time: the most for which nvcc 13.0 spills no registers. */
static constexpr int resident(bool rms, int capability)
{
    return rms || capability >= 100 ? 2 : 3;
}

/* Where one row begins in each array, its statistics, and where the sums of
 * these threads are in shared memory. */
template <typename T> struct gradient_row {
    T *dx;
    const T *dout, *x;
    int width; /* C, or 0 for a thread that has no row */
    float mean, rstd;
    float *dgamma, *dbeta;
};

/* The gradient dx of one row of n, with h = (x - mean) * rstd and
 * d = dout * gamma:
 *   dx = rstd * (d - avg(d) - h * avg(d h))   (RMSNorm: without avg(d))
 * Adds dout * h to dgamma and dout to dbeta. Returns the maximum of `most` and
 * the magnitudes of dx, if n.amax is wanted. */
template <typename T, int V, int HELD, bool rms>
static __device__ inline unsigned
row_gradient(const gradient_row<T> &row, const struct plait_norm_backward &n,
             unsigned most, float *shared)
{
    const int C = (int)n.C, width = row.width;
    const T *gamma = (const T *)n.gamma;
    const float mean = row.mean, rstd = row.rstd;
    alignas(16) T xs[HELD], ds[HELD];
    float m1 = 0, m2 = 0;
    auto load = [&](int at, int c) {
        copy_values<T, V>(xs + at, row.x + c);
        copy_values<T, V>(ds + at, row.dout + c);
    };

    if (HELD > V)
        for_packs<V, HELD>(width, load);
    for_packs<V, HELD>(width, [&](int at, int c) {
        float g[V];

        if (HELD == V)
            load(at, c);
        load_values<T, V>(g, gamma + c);
        for (int j = 0; j < V; j++) {
            float h = (to_float(xs[at + j]) - mean) * rstd;
            float d = to_float(ds[at + j]);

            row.dgamma[place<V>(c, j, C)] += d * h;
            if (!rms)
                row.dbeta[place<V>(c, j, C)] += d;
            m1 += d * (g[j] + n.plus);
            m2 += d * (g[j] + n.plus) * h;
        }
    });
    m1 = rms ? 0 : row_sum(m1, shared) / C;
    m2 = row_sum(m2, shared) / C;
    for_packs<V, HELD>(width, [&](int at, int c) {
        float g[V], old[V] = {};

        if (HELD == V)
            load(at, c);
        load_values<T, V>(g, gamma + c);
        if (n.accumulate)
            load_values<T, V>(old, row.dx + c);
        for (int j = 0; j < V; j++) {
            float h = (to_float(xs[at + j]) - mean) * rstd;

            old[j] +=
                rstd * (to_float(ds[at + j]) * (g[j] + n.plus) - m1 - h * m2);
        }
        store_values<T, V>(row.dx + c, old);
        if (n.amax != NULL)
            most = larger<T, V>(most, old);
    });
    return most;
}

/* rms: n.mean is NULL.
 * dgamma = sum of dout * h, dbeta = sum of dout over the rows: each y of a
 * block has the sums of its rows in shared memory, of dgamma [C] and, but for
 * RMSNorm, dbeta [C]. */
template <typename T, int V, int HELD, bool rms>
static __global__ void __launch_bounds__(threads, resident(rms, CAPABILITY))
    norm_gradient_kernel(struct plait_norm_backward n, float *part)
{
    extern __shared__ __align__(16) float sums[];
    __shared__ float shared[threads / 32];
    __shared__ unsigned mosts[32];
    const int C = (int)n.C;
    size_t stride = (rms ? 1 : 2) * (size_t)C; /* of a y to the next */
    float *dgamma = sums + threadIdx.y * stride, *dbeta = dgamma + C;
    size_t step = (size_t)gridDim.x * blockDim.y;
    const T *dout = (const T *)n.dout, *x = (const T *)n.x;
    T *dx = (T *)n.dx;
    unsigned most = 0;

    for (int c = threadIdx.x; c < (int)stride; c += blockDim.x)
        dgamma[c] = 0; /* and dbeta, which follows */
    __syncthreads();
    for (size_t first = (size_t)blockIdx.x * blockDim.y; first < n.N;
         first += step) {
        size_t i = first + threadIdx.y, at = i * C;
        bool there = i < n.N;
        gradient_row<T> row = {dx + at,
                               dout + at,
                               x + at,
                               there ? C : 0,
                               rms || !there ? 0 : n.mean[i],
                               there ? n.rstd[i] : 0,
                               dgamma,
                               dbeta};

        if (i + step < n.N) {
            prefetch_row(x, i + step, C);
            prefetch_row(dout, i + step, C);
            if (n.accumulate)
                prefetch_row(dx, i + step, C);
        }
        most = row_gradient<T, V, HELD, rms>(row, n, most, shared);
    }
    if (n.amax != NULL)
        block_amax(n.amax, most, mosts);
    __syncthreads();
    leave_part<V>(part, sums, stride, C);
    if (!rms)
        leave_part<V>(part + (size_t)gridDim.x * C, sums + C, stride, C);
}

/* As many blocks as run at a time, since each leaves a row of partial sums. */
static size_t blocks_at_once(const struct plait_queue *q, size_t smem, int most)
{
    size_t room = blocks_by_shared(q, smem);

    if (room > (size_t)most)
        room = (size_t)most;
    return (size_t)q->dev->sms * (room > 0 ? room : 1);
}

template <typename T, int V, int HELD, bool rms>
static void norm_gradient_launch(struct plait_queue *q, const char *op,
                                 const struct plait_norm_backward *n)
{
    dim3 block = block_for<T>(n->C);
    size_t smem = plait_norm_sums_bytes(block.y, n->C, rms);
    size_t most = blocks_at_once(q, smem, resident(rms, q->dev->capability));
    size_t all = ceil_div(n->N, block.y);
    unsigned blocks = (unsigned)(all < most ? all : most);
    float *part;

    if (cuda_allow_shared(q, op,
                          (const void *)norm_gradient_kernel<T, V, HELD, rms>,
                          smem + PLAIT_NORM_BYTES_BESIDE) != 0)
        return;
    part = (float *)cuda_scratch(q, 2 * blocks * n->C * sizeof(*part));
    if (part == NULL)
        return;
    norm_gradient_kernel<T, V, HELD, rms>
        <<<blocks, block, smem, q->stream>>>(*n, part);
    cuda_sum_rows(q, n->dgamma, rms ? NULL : n->dbeta, part, blocks, n->C);
}

static int norm_backward(struct plait_queue *q,
                         const struct plait_norm_backward *n)
{
    const char *op = "norm_backward";

    return cuda_launch(q, op, n->type, n->N * n->C, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(n->dx, n->C) && aligned16(n->dout) &&
                     aligned16(n->x) && aligned16(n->gamma);

        clear_amax(q, op, n->amax);
        for_shape<T>(packs, n->C, [&](auto width, auto held) {
            if (n->mean != NULL)
                norm_gradient_launch<T, width.value, held.value, false>(q, op,
                                                                        n);
            else
                norm_gradient_launch<T, width.value, held.value, true>(q, op,
                                                                       n);
        });
    });
}

void cuda_norm_ops(struct plait_ops *ops)
{
    ops->norm_forward = norm_forward;
    ops->norm_backward = norm_backward;
}

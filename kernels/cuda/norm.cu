/* SPDX-License-Identifier: Apache-2.0 */
/* LayerNorm (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019). The
 * threads of one y of a block, whole warps, have a row at a time: each has the
 * columns of packs threadIdx.x, threadIdx.x + blockDim.x, .. of every row, so
 * that values kept per column need no barrier. Rows that are not too wide are
 * `held` in registers, others are read twice. */
#include "kernels/cuda/common.cuh"

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

/* What a row is made of and what is made of it; `sum` and `residual` may be
 * NULL. What is stored as the sum, rounded, is normalised. */
template <typename T> struct norm_row {
    T *out, *sum;
    const T *inp, *residual;
};

/* Normalises one row, of `width` values here, and sets its mean and 1 /
 * standard deviation. Returns the maximum of `most` and the magnitudes of the
 * output if amax is wanted. */
template <typename T, int V, int HELD, bool rms>
static __device__ inline unsigned
normalize_row(float *mu, float *r, const norm_row<T> &row, const T *gamma,
              const T *beta, float eps, bool amax, unsigned most, int width,
              int C, float *shared)
{
    const T *whole = row.residual != NULL ? row.sum : row.inp;
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
    *mu = rms ? 0 : row_sum(total, shared) / C;
    for_packs<V, HELD>(width, [&](int at, int c) {
        if (HELD == V)
            copy_values<T, V>(x, whole + c);
        for (int j = at; j < at + V; j++)
            square += (to_float(x[j]) - *mu) * (to_float(x[j]) - *mu);
    });
    *r = 1 / sqrtf(row_sum(square, shared) / C + eps);
    for_packs<V, HELD>(width, [&](int at, int c) {
        float g[V], b[V] = {};

        if (HELD == V)
            copy_values<T, V>(x, whole + c);
        load_values<T, V>(g, gamma + c);
        if (!rms)
            load_values<T, V>(b, beta + c);
        for (int j = 0; j < V; j++)
            g[j] = (to_float(x[at + j]) - *mu) * *r * g[j] + b[j];
        store_values<T, V>(row.out + c, g);
        if (amax)
            most = larger<T, V>(most, g);
    });
    return most;
}

/* beta and mean are NULL for RMSNorm, amax if it is not wanted. */
template <typename T, int V, int HELD, bool rms>
static __global__ void __launch_bounds__(threads, 3)
    norm_kernel(T *out, float *mean, float *rstd, T *sum, const T *inp,
                const T *residual, const T *gamma, const T *beta, float eps,
                unsigned *amax, size_t N, int C)
{
    __shared__ float shared[threads / 32];
    __shared__ unsigned mosts[32];
    unsigned most = 0;

    for (size_t first = (size_t)blockIdx.x * blockDim.y; first < N;
         first += (size_t)gridDim.x * blockDim.y) {
        size_t i = first + threadIdx.y;
        norm_row<T> row = {out + i * C, sum + i * C, inp + i * C,
                           residual != NULL ? residual + i * C : NULL};
        float mu, r;

        most = normalize_row<T, V, HELD, rms>(&mu, &r, row, gamma, beta, eps,
                                              amax != NULL, most, i < N ? C : 0,
                                              C, shared);
        if (threadIdx.x == 0 && i < N) {
            rstd[i] = r;
            if (!rms)
                mean[i] = mu;
        }
    }
    if (amax != NULL)
        block_amax(amax, most, mosts);
}

template <typename T, int V, int HELD, bool rms>
static void
norm_launch(struct plait_queue *q, void *out, float *mean, float *rstd,
            void *sum, const void *inp, const void *residual, const void *gamma,
            const void *beta, float eps, size_t N, size_t C, unsigned *amax)
{
    dim3 block = block_for<T>(C);
    size_t blocks = ceil_div(N, block.y);

    norm_kernel<T, V, HELD, rms>
        <<<(unsigned)(blocks < 1 << 20 ? blocks : 1 << 20), block, 0,
           q->stream>>>((T *)out, mean, rstd, (T *)sum, (const T *)inp,
                        (const T *)residual, (const T *)gamma, (const T *)beta,
                        eps, amax, N, (int)C);
}

template <bool rms>
static int
norm_forward(struct plait_queue *q, const char *op, enum plait_dtype type,
             void *out, float *mean, float *rstd, void *sum, const void *inp,
             const void *residual, const void *gamma, const void *beta,
             float eps, size_t N, size_t C, unsigned *amax)
{
    return cuda_launch(q, op, type, N * C, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(out, C) && aligned16(inp) &&
                     aligned16(sum) && aligned16(residual) &&
                     aligned16(gamma) && aligned16(beta);

        clear_amax(q, op, amax);
        for_shape<T>(packs, C, [&](auto width, auto held) {
            norm_launch<T, width.value, held.value, rms>(
                q, out, mean, rstd, sum, inp, residual, gamma, beta, eps, N, C,
                amax);
        });
    });
}

static int layernorm_forward(struct plait_queue *q, enum plait_dtype type,
                             void *out, float *mean, float *rstd, void *sum,
                             const void *inp, const void *residual,
                             const void *gamma, const void *beta, float eps,
                             size_t N, size_t C, uint32_t *amax)
{
    return norm_forward<false>(q, "layernorm_forward", type, out, mean, rstd,
                               sum, inp, residual, gamma, beta, eps, N, C,
                               amax);
}

static int rmsnorm_forward(struct plait_queue *q, enum plait_dtype type,
                           void *out, float *rstd, void *sum, const void *inp,
                           const void *residual, const void *gamma, float eps,
                           size_t N, size_t C, uint32_t *amax)
{
    return norm_forward<true>(q, "rmsnorm_forward", type, out, NULL, rstd, sum,
                              inp, residual, gamma, NULL, eps, N, C, amax);
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

/* Stores a block's sums to its row of part [gridDim.x, C]: the threads of each
 * y have theirs `apart` numbers behind those of the y before. */
template <int V>
static __device__ inline void leave_part(float *part, const float *sums,
                                         size_t apart, int C)
{
    for (int c = threadIdx.y * blockDim.x + threadIdx.x; c < C;
         c += blockDim.x * blockDim.y) {
        float total = 0;

        for (unsigned y = 0; y < blockDim.y; y++)
            total += sums[y * apart + place<V>(c / V * V, c % V, C)];
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

/* The gradient dx of one row, of `width` values here, with h = (x - mu) * r and
 * d = dout * gamma:
 *   dx = r * (d - mean(d) - h * mean(d h))   (RMSNorm: without mean(d))
 * Adds dout * h to dgamma and dout to dbeta, and returns the maximum of `most`
 * and the magnitudes of dx if amax is wanted. */
template <typename T, int V, int HELD, bool rms>
static __device__ inline unsigned
row_gradient(T *dx, float *dgamma, float *dbeta, const T *dout, const T *x,
             const T *gamma, float mu, float r, bool accumulate, bool amax,
             unsigned most, int width, int C, float *shared)
{
    alignas(16) T xs[HELD], ds[HELD];
    float m1 = 0, m2 = 0;
    auto load = [&](int at, int c) {
        copy_values<T, V>(xs + at, x + c);
        copy_values<T, V>(ds + at, dout + c);
    };

    if (HELD > V)
        for_packs<V, HELD>(width, load);
    for_packs<V, HELD>(width, [&](int at, int c) {
        float g[V];

        if (HELD == V)
            load(at, c);
        load_values<T, V>(g, gamma + c);
        for (int j = 0; j < V; j++) {
            float h = (to_float(xs[at + j]) - mu) * r;
            float d = to_float(ds[at + j]);

            dgamma[place<V>(c, j, C)] += d * h;
            if (!rms)
                dbeta[place<V>(c, j, C)] += d;
            m1 += d * g[j];
            m2 += d * g[j] * h;
        }
    });
    m1 = rms ? 0 : row_sum(m1, shared) / C;
    m2 = row_sum(m2, shared) / C;
    for_packs<V, HELD>(width, [&](int at, int c) {
        float g[V], old[V] = {};

        if (HELD == V)
            load(at, c);
        load_values<T, V>(g, gamma + c);
        if (accumulate)
            load_values<T, V>(old, dx + c);
        for (int j = 0; j < V; j++) {
            float h = (to_float(xs[at + j]) - mu) * r;

            old[j] += r * (to_float(ds[at + j]) * g[j] - m1 - h * m2);
        }
        store_values<T, V>(dx + c, old);
        if (amax)
            most = larger<T, V>(most, old);
    });
    return most;
}

/* dgamma = sum of dout * h, dbeta = sum of dout over the rows: each y of a
 * block has the sums of its rows in shared memory, of dgamma [C] and, but for
 * RMSNorm, dbeta [C]. */
template <typename T, int V, int HELD, bool rms>
static __global__ void __launch_bounds__(threads, resident(rms, CAPABILITY))
    norm_gradient_kernel(T *dx, float *part, const T *dout, const T *x,
                         const T *gamma, const float *mean, const float *rstd,
                         bool accumulate, unsigned *amax, size_t N, int C)
{
    extern __shared__ __align__(16) float sums[];
    __shared__ float shared[threads / 32];
    __shared__ unsigned mosts[32];
    size_t apart = (rms ? 1 : 2) * (size_t)C;
    float *dgamma = sums + threadIdx.y * apart, *dbeta = dgamma + C;
    size_t step = (size_t)gridDim.x * blockDim.y;
    unsigned most = 0;

    for (int c = threadIdx.x; c < (int)apart; c += blockDim.x)
        dgamma[c] = 0; /* and dbeta, which follows */
    __syncthreads();
    for (size_t first = (size_t)blockIdx.x * blockDim.y; first < N;
         first += step) {
        size_t i = first + threadIdx.y;
        bool there = i < N;

        if (i + step < N) {
            prefetch_row(x, i + step, C);
            prefetch_row(dout, i + step, C);
            if (accumulate)
                prefetch_row(dx, i + step, C);
        }
        most = row_gradient<T, V, HELD, rms>(
            dx + i * C, dgamma, dbeta, dout + i * C, x + i * C, gamma,
            rms || !there ? 0 : mean[i], there ? rstd[i] : 0, accumulate,
            amax != NULL, most, there ? C : 0, C, shared);
    }
    if (amax != NULL)
        block_amax(amax, most, mosts);
    __syncthreads();
    leave_part<V>(part, sums, apart, C);
    if (!rms)
        leave_part<V>(part + (size_t)gridDim.x * C, sums + C, apart, C);
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
                                 void *dx, float *dgamma, float *dbeta,
                                 const void *dout, const void *x,
                                 const void *gamma, const float *mean,
                                 const float *rstd, int accumulate, size_t N,
                                 size_t C, unsigned *amax)
{
    dim3 block = block_for<T>(C);
    size_t smem = (rms ? 1 : 2) * block.y * C * sizeof(float);
    size_t most = blocks_at_once(q, smem, resident(rms, q->dev->capability));
    size_t all = ceil_div(N, block.y);
    unsigned blocks = (unsigned)(all < most ? all : most);
    float *part;

    /* The kernel's arrays `shared` and `mosts` take less than 256 bytes more.
     */
    if (cuda_allow_shared(q, op,
                          (const void *)norm_gradient_kernel<T, V, HELD, rms>,
                          smem + 256) != 0)
        return;
    part = (float *)cuda_scratch(q, 2 * blocks * C * sizeof(*part));
    if (part == NULL)
        return;
    norm_gradient_kernel<T, V, HELD, rms><<<blocks, block, smem, q->stream>>>(
        (T *)dx, part, (const T *)dout, (const T *)x, (const T *)gamma, mean,
        rstd, accumulate != 0, amax, N, (int)C);
    cuda_sum_rows(q, dgamma, rms ? NULL : dbeta, part, blocks, C);
}

template <bool rms>
static int norm_backward(struct plait_queue *q, const char *op,
                         enum plait_dtype type, void *dx, float *dgamma,
                         float *dbeta, const void *dout, const void *x,
                         const void *gamma, const float *mean,
                         const float *rstd, int accumulate, size_t N, size_t C,
                         unsigned *amax)
{
    return cuda_launch(q, op, type, N * C, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(dx, C) && aligned16(dout) &&
                     aligned16(x) && aligned16(gamma);

        clear_amax(q, op, amax);
        for_shape<T>(packs, C, [&](auto width, auto held) {
            norm_gradient_launch<T, width.value, held.value, rms>(
                q, op, dx, dgamma, dbeta, dout, x, gamma, mean, rstd,
                accumulate, N, C, amax);
        });
    });
}

static int layernorm_backward(struct plait_queue *q, enum plait_dtype type,
                              void *dx, float *dgamma, float *dbeta,
                              const void *dout, const void *x,
                              const void *gamma, const float *mean,
                              const float *rstd, int accumulate, size_t N,
                              size_t C, uint32_t *amax)
{
    return norm_backward<false>(q, "layernorm_backward", type, dx, dgamma,
                                dbeta, dout, x, gamma, mean, rstd, accumulate,
                                N, C, amax);
}

static int rmsnorm_backward(struct plait_queue *q, enum plait_dtype type,
                            void *dx, float *dgamma, const void *dout,
                            const void *x, const void *gamma, const float *rstd,
                            int accumulate, size_t N, size_t C, uint32_t *amax)
{
    return norm_backward<true>(q, "rmsnorm_backward", type, dx, dgamma, NULL,
                               dout, x, gamma, NULL, rstd, accumulate, N, C,
                               amax);
}

void cuda_norm_ops(struct plait_ops *ops)
{
    ops->layernorm_forward = layernorm_forward;
    ops->layernorm_backward = layernorm_backward;
    ops->rmsnorm_forward = rmsnorm_forward;
    ops->rmsnorm_backward = rmsnorm_backward;
}

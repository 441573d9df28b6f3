/* SPDX-License-Identifier: Apache-2.0 */
/* LayerNorm (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019). A
 * block processes one row at a time; thread t has the columns of packs t, t +
 * blockDim.x, .. of every row, so that values kept per column in shared memory
 * need no barrier. */
#include "kernels/cuda/common.cuh"

static unsigned threads_for(size_t C)
{
    return C <= 1024 ? 128 : C <= 4096 ? 256 : 512;
}

/* Index in shared memory of column c + j, of the pack at c: all packs' first
 * numbers, then all second ones, .. A warp's threads access the same number of
 * their packs at a time and so use different banks. */
template <int V> static __device__ inline int place(int c, int j, int C)
{
    return j * (C / V) + c / V;
}

/* -- forward ------------------------------------------------------------- */

/* beta and mean are NULL for RMSNorm, amax if it is not wanted. The row is kept
 * in shared memory. */
template <typename T, int V, bool rms>
static __global__ void norm_kernel(T *out, float *mean, float *rstd, T *sum,
                                   const T *inp, const T *residual,
                                   const T *gamma, const T *beta, float eps,
                                   unsigned *amax, size_t N, int C)
{
    extern __shared__ __align__(16) float row[];
    __shared__ float shared[32];
    __shared__ unsigned mosts[32];
    unsigned most = 0;

    for (size_t i = blockIdx.x; i < N; i += gridDim.x) {
        float total = 0, square = 0, mu, r;

        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            float x[V], y[V];

            load_values<T, V>(x, inp + i * C + c);
            if (residual != NULL) {
                load_values<T, V>(y, residual + i * C + c);
                /* Normalise the rounded value that was stored. */
                for (int j = 0; j < V; j++)
                    x[j] = to_float(from_float<T>(x[j] + y[j]));
                store_values<T, V>(sum + i * C + c, x);
            }
            for (int j = 0; j < V; j++) {
                row[place<V>(c, j, C)] = x[j];
                total += x[j];
            }
        }
        mu = rms ? 0 : block_sum(total, shared) / C;
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V)
            for (int j = 0; j < V; j++)
                square += (row[place<V>(c, j, C)] - mu) *
                          (row[place<V>(c, j, C)] - mu);
        r = 1 / sqrtf(block_sum(square, shared) / C + eps);
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            float g[V], b[V] = {};

            load_values<T, V>(g, gamma + c);
            if (!rms)
                load_values<T, V>(b, beta + c);
            for (int j = 0; j < V; j++)
                g[j] = (row[place<V>(c, j, C)] - mu) * r * g[j] + b[j];
            store_values<T, V>(out + i * C + c, g);
            if (amax != NULL)
                most = larger<T, V>(most, g);
        }
        if (threadIdx.x == 0) {
            rstd[i] = r;
            if (!rms)
                mean[i] = mu;
        }
    }
    if (amax != NULL)
        block_amax(amax, most, mosts);
}

template <typename T, int V, bool rms>
static void norm_launch(struct plait_queue *q, const char *op, void *out,
                        float *mean, float *rstd, void *sum, const void *inp,
                        const void *residual, const void *gamma,
                        const void *beta, float eps, size_t N, size_t C,
                        unsigned *amax)
{
    size_t smem = C * sizeof(float);

    /* The statistics and block sums need a little more. */
    if (cuda_allow_shared(q, op, (const void *)norm_kernel<T, V, rms>,
                          smem + 256) != 0)
        return;
    norm_kernel<T, V, rms><<<(unsigned)(N < 1 << 20 ? N : 1 << 20),
                             threads_for(C), smem, q->stream>>>(
        (T *)out, mean, rstd, (T *)sum, (const T *)inp, (const T *)residual,
        (const T *)gamma, (const T *)beta, eps, amax, N, (int)C);
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
        for_width<T>(packs, [&](auto width) {
            norm_launch<T, width.value, rms>(q, op, out, mean, rstd, sum, inp,
                                             residual, gamma, beta, eps, N, C,
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

/* Stores a block's sums to its row of part [gridDim.x, C]; those of dbeta are
 * gridDim.x * C further. */
template <int V, bool rms>
static __device__ inline void leave_part(float *part, const float *dgamma,
                                         const float *dbeta, int C)
{
    for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
        for (int j = 0; j < V; j++) {
            part[(size_t)blockIdx.x * C + c + j] = dgamma[place<V>(c, j, C)];
            if (!rms)
                part[((size_t)gridDim.x + blockIdx.x) * C + c + j] =
                    dbeta[place<V>(c, j, C)];
        }
    }
}

/* With h = (x - mean) * rstd and d = dout * gamma:
 *   dx = rstd * (d - mean(d) - h * mean(d h))   (RMSNorm: without mean(d))
 *   dgamma = sum of dout * h, dbeta = sum of dout over the rows
 * Every block sums the parameter gradients of its rows in shared memory. */
template <typename T, int V, bool rms>
static __global__ void
norm_gradient_kernel(T *dx, float *part, const T *dout, const T *x,
                     const T *gamma, const float *mean, const float *rstd,
                     bool accumulate, unsigned *amax, size_t N, int C)
{
    extern __shared__ __align__(16) float sums[]; /* dgamma [C], dbeta [C] */
    __shared__ float shared[32];
    __shared__ unsigned mosts[32];
    float *dgamma = sums, *dbeta = sums + C;
    unsigned most = 0;

    for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
        for (int j = 0; j < V; j++) {
            dgamma[place<V>(c, j, C)] = 0;
            if (!rms)
                dbeta[place<V>(c, j, C)] = 0;
        }
    }
    for (size_t i = blockIdx.x; i < N; i += gridDim.x) {
        float mu = rms ? 0 : mean[i], r = rstd[i], m1 = 0, m2 = 0;
        const T *xi = x + i * C, *di = dout + i * C;

        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            float h[V], d[V], g[V];

            load_values<T, V>(h, xi + c);
            load_values<T, V>(d, di + c);
            load_values<T, V>(g, gamma + c);
            for (int j = 0; j < V; j++) {
                h[j] = (h[j] - mu) * r;
                dgamma[place<V>(c, j, C)] += d[j] * h[j];
                if (!rms)
                    dbeta[place<V>(c, j, C)] += d[j];
                m1 += d[j] * g[j];
                m2 += d[j] * g[j] * h[j];
            }
        }
        m1 = rms ? 0 : block_sum(m1, shared) / C;
        m2 = block_sum(m2, shared) / C;
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            float h[V], d[V], g[V], old[V] = {};

            load_values<T, V>(h, xi + c);
            load_values<T, V>(d, di + c);
            load_values<T, V>(g, gamma + c);
            if (accumulate)
                load_values<T, V>(old, dx + i * C + c);
            for (int j = 0; j < V; j++)
                old[j] += r * (d[j] * g[j] - m1 - (h[j] - mu) * r * m2);
            store_values<T, V>(dx + i * C + c, old);
            if (amax != NULL)
                most = larger<T, V>(most, old);
        }
    }
    if (amax != NULL)
        block_amax(amax, most, mosts);
    leave_part<V, rms>(part, dgamma, dbeta, C);
}

template <typename T, int V, bool rms>
static void norm_gradient_launch(struct plait_queue *q, const char *op,
                                 void *dx, float *dgamma, float *dbeta,
                                 const void *dout, const void *x,
                                 const void *gamma, const float *mean,
                                 const float *rstd, int accumulate, size_t N,
                                 size_t C, unsigned *amax)
{
    size_t smem = (rms ? 1 : 2) * C * sizeof(float);
    size_t most = (size_t)q->dev->sms * 2048 / threads_for(C);
    unsigned blocks = (unsigned)(N < most ? N : most);
    float *part;

    if (cuda_allow_shared(q, op, (const void *)norm_gradient_kernel<T, V, rms>,
                          smem + 256) != 0)
        return;
    part = (float *)cuda_scratch(q, 2 * blocks * C * sizeof(*part));
    if (part == NULL)
        return;
    norm_gradient_kernel<T, V, rms>
        <<<blocks, threads_for(C), smem, q->stream>>>(
            (T *)dx, part, (const T *)dout, (const T *)x, (const T *)gamma,
            mean, rstd, accumulate != 0, amax, N, (int)C);
    cuda_sum_rows(q, dgamma, part, blocks, C);
    if (!rms)
        cuda_sum_rows(q, dbeta, part + blocks * C, blocks, C);
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
        for_width<T>(packs, [&](auto width) {
            norm_gradient_launch<T, width.value, rms>(
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

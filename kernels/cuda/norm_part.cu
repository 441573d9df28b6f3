/* SPDX-License-Identifier: Apache-2.0 */
/* An RMS norm of rows whose columns are on several GPUs: what each computes
 * before and after the sums of its rows are added up over them. */
#include "kernels/cuda/common.cuh"

static const int threads = 256; /* of a block, which has a row at a time */

template <typename T>
static __global__ void sums_kernel(struct plait_norm_part p)
{
    __shared__ float shared[32];
    const T *gamma = (const T *)p.gamma;

    for (size_t i = blockIdx.x; i < p.N; i += gridDim.x) {
        const T *x = (const T *)p.x + i * p.C;
        const T *dout = (const T *)p.dout + i * p.C;
        float sum = 0;

        for (size_t c = threadIdx.x; c < p.C; c += blockDim.x) {
            float by = to_float(x[c]);

            if (p.dout != NULL)
                by = to_float(dout[c]) * to_float(gamma[c]);
            sum += to_float(x[c]) * by;
        }
        sum = block_sum(sum, shared);
        if (threadIdx.x == 0)
            p.sums[i] = sum;
    }
}

template <typename T>
static __global__ void forward_kernel(struct plait_norm_part p)
{
    const T *gamma = (const T *)p.gamma;

    for (size_t i = blockIdx.x; i < p.N; i += gridDim.x) {
        const T *x = (const T *)p.x + i * p.C;
        T *out = (T *)p.out + i * p.C;
        float rstd = 1 / sqrtf(p.sums[i] * p.mean + p.eps);

        for (size_t c = threadIdx.x; c < p.C; c += blockDim.x)
            out[c] = from_float<T>(to_float(x[c]) * rstd * to_float(gamma[c]));
        if (threadIdx.x == 0)
            p.rstd[i] = rstd;
    }
}

/* A thread has the same columns of all rows of its block, and leaves the sums
 * of their gradients of gamma in part [gridDim.x, C]. */
template <typename T>
static __global__ void backward_kernel(struct plait_norm_part p, float *part)
{
    const T *gamma = (const T *)p.gamma, *x = (const T *)p.x;
    const T *dout = (const T *)p.dout;
    T *out = (T *)p.out;

    for (size_t c = threadIdx.x; c < p.C; c += blockDim.x) {
        float g = to_float(gamma[c]), sum = 0;

        for (size_t i = blockIdx.x; i < p.N; i += gridDim.x) {
            float rstd = p.rstd[i], d = to_float(dout[i * p.C + c]);
            float h = to_float(x[i * p.C + c]) * rstd;

            sum += d * h;
            out[i * p.C + c] =
                from_float<T>(rstd * (d * g - h * rstd * p.sums[i] * p.mean));
        }
        part[(size_t)blockIdx.x * p.C + c] = sum;
    }
}

static unsigned blocks_for(const struct plait_queue *q, size_t N)
{
    return grid_for(q, N * threads, threads);
}

static int part_sums(struct plait_queue *q, const struct plait_norm_part *p)
{
    return cuda_launch(
        q, "norm_part_sums", p->type, p->N * p->C, [&](auto zero) {
            sums_kernel<decltype(zero)>
                <<<blocks_for(q, p->N), threads, 0, q->stream>>>(*p);
        });
}

static int part_forward(struct plait_queue *q, const struct plait_norm_part *p)
{
    return cuda_launch(
        q, "norm_part_forward", p->type, p->N * p->C, [&](auto zero) {
            forward_kernel<decltype(zero)>
                <<<blocks_for(q, p->N), threads, 0, q->stream>>>(*p);
        });
}

static int part_backward(struct plait_queue *q, const struct plait_norm_part *p)
{
    return cuda_launch(
        q, "norm_part_backward", p->type, p->N * p->C, [&](auto zero) {
            unsigned blocks = blocks_for(q, p->N);
            float *part =
                (float *)cuda_scratch(q, blocks * p->C * sizeof(*part));

            if (part == NULL)
                return;
            backward_kernel<decltype(zero)>
                <<<blocks, threads, 0, q->stream>>>(*p, part);
            cuda_sum_rows(q, p->dgamma, NULL, part, blocks, p->C);
        });
}

void cuda_norm_part_ops(struct plait_ops *ops)
{
    ops->norm_part_sums = part_sums;
    ops->norm_part_forward = part_forward;
    ops->norm_part_backward = part_backward;
}

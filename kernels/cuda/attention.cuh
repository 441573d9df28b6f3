/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_ATTENTION_CUH
#define PLAIT_KERNELS_CUDA_ATTENTION_CUH

#include <errno.h>
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/attention_seen.cuh"
#include "kernels/cuda/common.cuh"

/* Shared by the forward and the backward of the plain attention: tiles in fp32
 * arithmetic for any type, any head dimension up to 256. */

/* A block has 32 rows (queries or keys) with 8 threads each, and loops over the
 * other side 32 at a time. Thread x of a row has columns x, x + 8, .. */
static const int tile = PLAIT_ATTENTION_TILE, lanes = 8, threads = tile * lanes;
static const int head_dim_max = PLAIT_ATTENTION_HEAD_MOST;

/* Loads rows first .. first + tile of src, `stride` elements apart, to dst
 * [tile, D + 1]; rows from `end` on are 0. */
template <typename T>
static __device__ inline void load_tile(float *dst, const T *src, size_t stride,
                                        int first, int end, int D)
{
    for (int i = threadIdx.x; i < tile * D; i += threads) {
        int row = i / D, d = i % D;

        dst[row * (D + 1) + d] =
            first + row < end
                ? to_float(src[(size_t)(first + row) * stride + d])
                : 0.0f;
    }
}

static __device__ inline float dot(const float *a, const float *b, int D)
{
    float sum = 0;

    for (int d = 0; d < D; d++)
        sum += a[d] * b[d];
    return sum;
}

/* The score of a product of a query and a key. */
static __device__ inline float score_of(const struct capped_attention &a,
                                        float product)
{
    float s = a.scale * product;

    return a.cap > 0 ? a.cap * tanhf(s * a.inverse) : s;
}

/* The derivative of a score by the product. */
static __device__ inline float slope_of(const struct capped_attention &a,
                                        float score)
{
    float t = score * a.inverse;

    return a.scale * (1 - t * t);
}

/* acc[j] += sum over c of p[c] * x[c][lane + 8 j] */
template <int J>
static __device__ inline void add_rows(float *acc, const float *p,
                                       const float *x, int D)
{
    int lane = threadIdx.x % lanes;

    for (int c = 0; c < tile; c++) {
#pragma unroll
        for (int j = 0; j < J; j++)
            if (lane + lanes * j < D)
                acc[j] += p[c] * x[c * (D + 1) + lane + lanes * j];
    }
}

static __device__ inline float lanes_sum(float x)
{
    for (int i = lanes / 2; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffff, x, i);
    return x;
}

static __device__ inline float lanes_max(float x)
{
    for (int i = lanes / 2; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, i));
    return x;
}

/* -- launches -------------------------------------------------------------- */

static inline bool has_work(const struct plait_attention *a)
{
    return a->batch > 0 && a->q_len > 0 && a->q_heads > 0;
}

/* Calls f(T(), J, a) for the type, for D <= 8 J and for the parameter with or
 * without dropout of an op. fp32 has kernels for heads up to 64, 128 and 256;
 * the 16-bit types only the last, since attention_mma.cu has their usual
 * shapes. */
template <typename Op, typename F>
static inline void for_head_dim(const Op *op, F f)
{
    enum plait_dtype type = op->type;
    int D = op->a.head_dim;
    auto call = [&](auto zero, auto j) {
        if (op->drops.keys != NULL)
            f(zero, j, dropped_attention(op->a, op->drops));
        else
            f(zero, j, capped_attention(op->a));
    };

    if (type == PLAIT_BF16_T)
        call(bf16(), std::integral_constant<int, 32>());
    else if (type == PLAIT_FP16_T)
        call(fp16(), std::integral_constant<int, 32>());
    else if (D <= 64)
        call(float(), std::integral_constant<int, 8>());
    else if (D <= 128)
        call(float(), std::integral_constant<int, 16>());
    else
        call(float(), std::integral_constant<int, 32>());
}

/* Bytes of shared memory for `tiles` tiles and `squares` tiles of scores, which
 * `kernel` is allowed to use; 0: the queue has failed. */
static inline size_t shared_bytes(struct plait_queue *q, const void *kernel,
                                  const char *op, int D, int tiles, int squares)
{
    size_t bytes = plait_attention_bytes(D, tiles, squares);

    if (cuda_allow_shared(q, op, kernel, bytes) != 0)
        return 0;
    return bytes;
}

static inline int check_head_dim(struct plait_queue *q,
                                 const struct plait_attention *a)
{
    if (a->head_dim > head_dim_max)
        return plait_queue_fail(&q->head, EINVAL,
                                "attention: heads of %d, the most is %d",
                                a->head_dim, head_dim_max);
    return 0;
}

static inline uintptr_t addresses(std::initializer_list<const void *> list)
{
    uintptr_t all = 0;

    for (const void *p : list)
        all |= (uintptr_t)p;
    return all;
}

#endif

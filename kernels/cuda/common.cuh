/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_COMMON_CUH
#define PLAIT_KERNELS_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>
#include <type_traits>

#include "kernels/cuda/cuda.h"

typedef __nv_bfloat16 bf16;
typedef __half fp16;

static __device__ inline float to_float(float x)
{
    return x;
}

static __device__ inline float to_float(bf16 x)
{
    return __bfloat162float(x);
}

static __device__ inline float to_float(fp16 x)
{
    return __half2float(x);
}

template <typename T> static __device__ inline T from_float(float x);

template <> __device__ inline float from_float<float>(float x)
{
    return x;
}

template <> __device__ inline bf16 from_float<bf16>(float x)
{
    return __float2bfloat16_rn(x);
}

template <> __device__ inline fp16 from_float<fp16>(float x)
{
    return __float2half_rn(x);
}

/* Sixteen bytes of T, which one thread moves at once. */
template <typename T> struct alignas(16) pack {
    static constexpr int n = 16 / sizeof(T);
    T v[n];
};

template <typename T> static __device__ inline pack<T> load_pack(const T *p)
{
    pack<T> x;

    *reinterpret_cast<uint4 *>(&x) = *reinterpret_cast<const uint4 *>(p);
    return x;
}

template <typename T>
static __device__ inline void store_pack(T *p, const pack<T> &x)
{
    *reinterpret_cast<uint4 *>(p) = *reinterpret_cast<const uint4 *>(&x);
}

/* Copies V values of T. V > 1: these are 16 bytes, copied at once, and both
 * addresses are multiples of 16. */
template <typename T, int V>
static __device__ inline void copy_values(T *dst, const T *src)
{
    if (V > 1)
        *(uint4 *)dst = *(const uint4 *)src;
    else
        *dst = *src;
}

template <typename T, int V>
static __device__ inline void load_values(float *x, const T *p)
{
    alignas(16) T v[V];

    copy_values<T, V>(v, p);
    for (int j = 0; j < V; j++)
        x[j] = to_float(v[j]);
}

template <typename T, int V>
static __device__ inline void store_values(T *p, const float *x)
{
    alignas(16) T v[V];

    for (int j = 0; j < V; j++)
        v[j] = from_float<T>(x[j]);
    copy_values<T, V>(p, v);
}

static __device__ inline float warp_sum(float x)
{
    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffff, x, i);
    return x;
}

static __device__ inline double warp_sum(double x)
{
    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffff, x, i);
    return x;
}

static __device__ inline float warp_max(float x)
{
    for (int i = 16; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, i));
    return x;
}

/* The sum over a block of whole warps, returned to all its threads, in a fixed
 * order. `shared` has 32 elements and may be used again at once. */
template <typename F> static __device__ inline F block_sum(F x, F *shared)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int warps = blockDim.x / 32;

    x = warp_sum(x);
    if (lane == 0)
        shared[warp] = x;
    __syncthreads();
    x = warp_sum(lane < warps ? shared[lane] : F(0));
    __syncthreads();
    return x;
}

/* The bits of |x|, which are ordered as |x| is, NaN being the largest. Their
 * maximum does not depend on the order of the comparisons. */
template <typename T> static __device__ inline unsigned magnitude(T x)
{
    return __float_as_uint(to_float(x)) & 0x7fffffff;
}

/* The maximum of `most` and the magnitudes that store_values() stores of x. */
template <typename T, int V>
static __device__ inline unsigned larger(unsigned most, const float *x)
{
    for (int j = 0; j < V; j++)
        most = max(most, magnitude(from_float<T>(x[j])));
    return most;
}

/* *amax = the maximum of *amax and every thread's `most`, with one atomic
 * operation per block of whole warps. `shared` has 32 elements. */
static __device__ inline void block_amax(unsigned *amax, unsigned most,
                                         unsigned *shared)
{
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    int warps = blockDim.x * blockDim.y / 32;

    for (int i = 16; i > 0; i /= 2)
        most = max(most, __shfl_xor_sync(0xffffffff, most, i));
    if (thread % 32 == 0)
        shared[thread / 32] = most;
    __syncthreads();
    for (int i = 1; thread == 0 && i < warps; i++)
        most = max(most, shared[i]);
    if (thread == 0)
        atomicMax(amax, most);
}

static inline size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* Number of blocks for n independent items: at most enough to fill the GPU; the
 * blocks loop over the rest. */
static inline unsigned grid_for(const struct plait_queue *q, size_t n,
                                unsigned threads)
{
    size_t blocks = ceil_div(n, threads);
    size_t most = (size_t)q->dev->sms * (2048 / threads) * 4;

    return (unsigned)(blocks < most ? blocks : most);
}

/* How many blocks with so many bytes of shared memory a multiprocessor has room
 * for: each takes 1 KiB more. */
static inline size_t blocks_by_shared(const struct plait_queue *q, size_t bytes)
{
    return (q->dev->smem_max + 1024) / (bytes + 1024);
}

static inline bool aligned16(const void *p)
{
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/* Call before kernels that use block_amax(); amax NULL: not wanted. */
static inline void clear_amax(struct plait_queue *q, const char *op,
                              unsigned *amax)
{
    if (amax != NULL)
        cuda_check(q, op, cudaMemsetAsync(amax, 0, sizeof(*amax), q->stream));
}

/* Whether rows of `stride` elements, from p on, all begin at multiples of 16
 * bytes. */
template <typename T>
static inline bool rows_aligned16(const void *p, size_t stride)
{
    return aligned16(p) && stride * sizeof(T) % 16 == 0;
}

/* Calls f(T()) with the C++ type of `type`. */
template <typename F> static inline void for_type(enum plait_dtype type, F f)
{
    if (type == PLAIT_F32)
        f(float());
    else if (type == PLAIT_BF16_T)
        f(bf16());
    else
        f(fp16());
}

/* Calls f(V) with the number of values of T that a thread moves at once, as a
 * constant: 16 bytes of them, or 1. */
template <typename T, typename F> static inline void for_width(bool packs, F f)
{
    if (packs)
        f(std::integral_constant<int, pack<T>::n>());
    else
        f(std::integral_constant<int, 1>());
}

/* i from 0 to n - 1, distributed over all threads of the grid. */
#define GRID_LOOP(i, n)                                                     \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (size_t)gridDim.x * blockDim.x)

/* Runs an op of n items, whose kernels f(T()) launches; nothing if n is 0. */
template <typename F>
static inline int cuda_launch(struct plait_queue *q, const char *op,
                              enum plait_dtype type, size_t n, F f)
{
    if (cuda_enter(q) != 0)
        return -1;
    if (n == 0)
        return 0;
    for_type(type, f);
    return cuda_leave(q, op);
}

#endif

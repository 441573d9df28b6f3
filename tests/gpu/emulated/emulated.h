/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_EMULATED_H
#define PLAIT_TESTS_GPU_EMULATED_EMULATED_H

/* What nvcc declares for every .cu file; included before its first line. */

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <math.h>
#include <tuple>
#include <type_traits>
#include <utility>

#include "emulated_calls.h"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline
#define __align__(n) alignas(n)

struct dim3 {
    unsigned x, y, z;

    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};

/* Accessed by one instruction of 16 bytes, as on a GPU. */
typedef unsigned uint4 __attribute__((vector_size(16)));

#define threadIdx (emu_indices()[0])
#define blockIdx (emu_indices()[1])
#define blockDim (emu_indices()[2])
#define gridDim (emu_indices()[3])

/* -- waiting for each other -------------------------------------------------
 */

static inline void __syncthreads(int line = __builtin_LINE())
{
    emu_barrier(line);
}

static inline void __syncwarp(unsigned mask = 0xffffffff,
                              int line = __builtin_LINE())
{
    emu_warp_barrier(mask, line);
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T x, int lanes,
                                int line = __builtin_LINE())
{
    uint64_t bits = 0;

    memcpy(&bits, &x, sizeof(x));
    bits = emu_shuffle_xor(mask, bits, lanes, line);
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline unsigned __ballot_sync(unsigned mask, int vote,
                                     int line = __builtin_LINE())
{
    return emu_ballot(mask, vote, line);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline float atomicAdd(float *p, float x)
{
    return emu_atomic_add_float(p, x);
}

static inline int atomicAdd(int *p, int x)
{
    return emu_atomic_add_int(p, x);
}

static inline unsigned atomicMax(unsigned *p, unsigned x)
{
    return emu_atomic_max(p, x);
}

static inline int atomicMax(int *p, int x)
{
    return emu_atomic_max_int(p, x);
}

static inline unsigned atomicMin(unsigned *p, unsigned x)
{
    return emu_atomic_min(p, x);
}

static inline long long clock64(void)
{
    return emu_clock();
}

static inline void __nanosleep(unsigned ns)
{
    (void)ns;
}

/* -- arithmetic --------------------------------------------------------------
 */

template <typename A, typename B>
static inline std::common_type_t<A, B> min(A a, B b)
{
    return b < a ? b : a;
}

template <typename A, typename B>
static inline std::common_type_t<A, B> max(A a, B b)
{
    return a < b ? b : a;
}

/* glibc has a function of this name. */
#define __expf expf
#define __fdividef(x, y) ((x) / (y))

static inline void sincospif(float x, float *s, float *c)
{
    *s = (float)sin(M_PI * x);
    *c = (float)cos(M_PI * x);
}

static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}

static inline unsigned __float_as_uint(float x)
{
    unsigned bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline int __float_as_int(float x)
{
    int bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline size_t __cvta_generic_to_global(const void *p)
{
    return (size_t)p;
}

static inline size_t __cvta_generic_to_shared(const void *p)
{
    return emu_shared_address(p);
}

/* -- what rewrite.py leaves of asm and of launches ----------------------------
 */

namespace emu
{
template <typename T> static inline uint64_t operand(T x)
{
    uint64_t bits = 0;

    static_assert(sizeof(x) <= sizeof(bits), "an operand of a register");
    memcpy(&bits, &x, sizeof(x));
    return bits;
}

/* Launches K, which is a kernel or calls one. */
template <typename K, typename... A>
static inline void launch(const char *name, const void *key, dim3 grid,
                          dim3 block, size_t shared, cudaStream_t stream,
                          K kernel, A... args)
{
    typedef std::pair<K, std::tuple<A...>> closure;
    unsigned g[3] = {grid.x, grid.y, grid.z};
    unsigned b[3] = {block.x, block.y, block.z};

    static_assert(sizeof(std::tuple<A...>) <= 4096,
                  "a kernel's parameters have 4 KiB");
    emu_launch_kernel(
        name, key, g, b, shared, stream, sizeof(closure),
        [](void *p) {
            closure *c = static_cast<closure *>(p);

            std::apply(c->first, c->second);
        },
        [](void *p) { delete static_cast<closure *>(p); },
        new closure(kernel, std::tuple<A...>(args...)));
}
} // namespace emu

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_MMA_CUH
#define PLAIT_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/common.cuh"

/* The tensor cores' instructions (PTX ISA, "Warp-level matrix instructions")
 * for 16-bit types. Elements of lane l of a warp, g = l / 4, t = l % 4:
 *   A [16,16] a[0] (g, 2t), a[1] (g+8, 2t), a[2] (g, 2t+8), a[3] (g+8, 2t+8)
 *   B [16,8]  b[0] (2t, g), b[1] (2t+8, g)
 *   C [16,8]  c[0], c[1] (g, 2t), (g, 2t+1); c[2], c[3] (g+8, ..)
 * where a[i] and b[i] hold two neighbours along the summed dimension. */

/* Four 8x8 matrices from shared memory. Lanes 8i .. 8i+7 give the addresses
 * of the rows of matrix i; lane l gets elements 2t, 2t+1 of row g in r[i]. */
static __device__ inline void ldmatrix(uint32_t r[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each matrix transposed: lane l gets rows 2t, 2t+1 of column g. */
static __device__ inline void ldmatrix_trans(uint32_t r[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* c += a b */
static __device__ inline void mma(bf16, float c[4], const uint32_t a[4],
                                  const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
                   "r"(b[1]));
}

static __device__ inline void mma(fp16, float c[4], const uint32_t a[4],
                                  const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
                   "r"(b[1]));
}

/* fp32 rounded to 10 bits of mantissa, as mma_tf32() needs it. */
static __device__ inline float to_tf32(float x)
{
    uint32_t y;

    asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}

/* c += a b with 8 terms per sum: A [16,8] a[0] (g, t), a[1] (g+8, t), a[2] (g,
 * t+4), a[3] (g+8, t+4); B [8,8] b[0] (t, g), b[1] (t+4, g) */
static __device__ inline void mma_tf32(float c[4], const float a[4],
                                       const float b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
                   "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
                   "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

static __device__ inline uint32_t pair(bf16, float low, float high)
{
    __nv_bfloat162 x = __floats2bfloat162_rn(low, high);

    return *reinterpret_cast<uint32_t *>(&x);
}

static __device__ inline uint32_t pair(fp16, float low, float high)
{
    __half2 x = __floats2half2_rn(low, high);

    return *reinterpret_cast<uint32_t *>(&x);
}

/* 2^x by one instruction; 0 if that is below 2^-126. */
static __device__ inline float power_of_two(float x)
{
    float y;

    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Copies 16 bytes to shared memory asynchronously; zeros if not `valid`, then
 * src is not read. */
static __device__ inline void copy_async(unsigned address, const void *src,
                                         bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(__cvta_generic_to_global(src)),
                   "r"(valid ? 16 : 0)
                 : "memory");
}

static __device__ inline void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most n of this thread's groups of copies are pending. */
template <int n> static __device__ inline void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

static __device__ inline unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_TILE_CUH
#define PLAIT_KERNELS_CUDA_TILE_CUH

#include "kernels/cuda/mma.cuh"

/* Tiles in shared memory, and the tensor cores' operands loaded from them. */

/* The address of a 16-byte piece of a tile [n, D] of 16-bit values. The pieces
 * of a row are permuted by the row's number, so that the eight rows of an 8x8
 * matrix are in different banks (NVIDIA, CUTLASS documentation, "swizzle"). */
template <int D>
static __device__ inline unsigned place(unsigned tile, int row, int piece)
{
    return tile + row * (D * 2) + ((piece ^ (row & 7)) << 4);
}

/* A operand: rows row .. row + 16, columns 16 k .. of a tile. */
template <int D>
static __device__ inline void load_a(uint32_t a[4], unsigned tile, int row,
                                     int k)
{
    int l = threadIdx.x % 32;

    ldmatrix(a, place<D>(tile, row + l % 16, k * 2 + l / 16));
}

/* Two B operands of x . tile^T: tile rows row .. row + 8 (b[0], b[1]) and
 * row + 8 .. row + 16 (b[2], b[3]), columns 16 k .. */
template <int D>
static __device__ inline void load_b(uint32_t b[4], unsigned tile, int row,
                                     int k)
{
    int l = threadIdx.x % 32;

    ldmatrix(b, place<D>(tile, row + l % 8 + l / 16 * 8, k * 2 + l / 8 % 2));
}

/* Two B operands of x . tile: tile rows row .. row + 16, columns 16 k ..
 * 16 k + 8 (b[0], b[1]) and 16 k + 8 .. 16 k + 16 (b[2], b[3]). */
template <int D>
static __device__ inline void load_b_trans(uint32_t b[4], unsigned tile,
                                           int row, int k)
{
    int l = threadIdx.x % 32;

    ldmatrix_trans(b, place<D>(tile, row + l % 16, k * 2 + l / 16));
}

/* A operand of tile^T: tile rows row .. row + 16, columns 16 k .. */
template <int D>
static __device__ inline void load_a_trans(uint32_t a[4], unsigned tile,
                                           int row, int k)
{
    int l = threadIdx.x % 32;

    ldmatrix_trans(a,
                   place<D>(tile, row + l % 8 + l / 16 * 8, k * 2 + l / 8 % 2));
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of products in fp8: the largest magnitude of a tensor, then its
 * codes, transposed where the product needs them so. */
#include <cuda_fp8.h>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/fp8.h"

enum { THREADS = 256, TILE = 64, PAD = 4 };

/* The bits of |x| grow with |x|, NaN's are the largest: their maximum is the
 * same in any order. */
static __device__ inline unsigned magnitude(bf16 x)
{
    return __float_as_uint(to_float(x)) & 0x7fffffff;
}

static __global__ void amax_kernel(unsigned *amax, const bf16 *x, size_t packed,
                                   size_t n)
{
    constexpr int V = pack<bf16>::n;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t stride = (size_t)gridDim.x * blockDim.x;
    unsigned most = 0;

    for (size_t i = first; i < packed / V; i += stride) {
        pack<bf16> p = load_pack(x + i * V);

        for (int j = 0; j < V; j++)
            most = max(most, magnitude(p.v[j]));
    }
    for (size_t i = packed + first; i < n; i += stride)
        most = max(most, magnitude(x[i]));
    for (int i = 16; i > 0; i /= 2)
        most = max(most, __shfl_xor_sync(0xffffffff, most, i));
    if (threadIdx.x % 32 == 0)
        atomicMax(amax, most);
}

/* plait_fp8_scale() of kernels/dtype.h: both formats' largest number is
 * 1.75 2^top. */
static __device__ inline float scale_of(unsigned amax, int top)
{
    int k = top - ((int)(amax >> 23) - 127) - ((amax & 0x7fffff) > 0x600000);

    if (amax >= 0x7f800000)
        return __uint_as_float(0x7fc00000);
    if (amax == 0)
        return 1;
    return __uint_as_float((unsigned)(min(k, 126) + 127) << 23);
}

/* x [rows, cols] to codes [out_rows, out_cols], or with `transpose`
 * transposed;
 * what is beyond x is 0. One block makes a tile of codes at a time. */
template <bool E4M3>
static __global__ void round_kernel(unsigned char *out, float *inverse,
                                    const unsigned *amax, const bf16 *x,
                                    size_t rows, size_t cols, size_t out_rows,
                                    size_t out_cols, bool transpose)
{
    __shared__ __align__(4) unsigned char tile[TILE][TILE + PAD];
    float scale = scale_of(*amax, E4M3 ? 8 : 15);
    size_t wide = (out_cols + TILE - 1) / TILE;
    size_t tiles = wide * ((out_rows + TILE - 1) / TILE);

    if (blockIdx.x == 0 && threadIdx.x == 0)
        *inverse = 1 / scale;
    for (size_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        size_t r0 = t / wide * TILE, c0 = t % wide * TILE;

        for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
            size_t r = (transpose ? c0 : r0) + i / TILE;
            size_t c = (transpose ? r0 : c0) + i % TILE;
            float v = r < rows && c < cols ? to_float(x[r * cols + c]) : 0;
            unsigned char code = __nv_cvt_float_to_fp8(
                v * scale, __NV_SATFINITE, E4M3 ? __NV_E4M3 : __NV_E5M2);

            tile[transpose ? i % TILE : i / TILE]
                [transpose ? i / TILE : i % TILE] =
                    r < rows && c < cols ? code : 0;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * TILE / 4; i += THREADS) {
            int r = i / (TILE / 4), c = i % (TILE / 4) * 4;

            if (r0 + r < out_rows && c0 + c < out_cols)
                *reinterpret_cast<unsigned *>(out + (r0 + r) * out_cols + c0 +
                                              c) =
                    *reinterpret_cast<unsigned *>(&tile[r][c]);
        }
        __syncthreads();
    }
}

void cuda_fp8_round(struct plait_queue *q, const struct fp8_tensor *t)
{
    const bf16 *x = (const bf16 *)t->data;
    size_t n = t->rows * t->cols, tiles;
    size_t packed = aligned16(x) ? n / 8 * 8 : 0;
    size_t out_rows = fp8_padded(t->transpose ? t->cols : t->rows);
    size_t out_cols = fp8_padded(t->transpose ? t->rows : t->cols);
    unsigned blocks = grid_for(q, packed > 0 ? packed / 8 : n, THREADS);

    cuda_check(q, "fp8",
               cudaMemsetAsync(t->amax, 0, sizeof(*t->amax), q->stream));
    amax_kernel<<<blocks, THREADS, 0, q->stream>>>(t->amax, x, packed, n);
    tiles = ceil_div(out_rows, TILE) * ceil_div(out_cols, TILE);
    blocks = grid_for(q, tiles * THREADS, THREADS);
    if (t->e4m3)
        round_kernel<true><<<blocks, THREADS, 0, q->stream>>>(
            t->codes, t->inverse, t->amax, x, t->rows, t->cols, out_rows,
            out_cols, t->transpose);
    else
        round_kernel<false><<<blocks, THREADS, 0, q->stream>>>(
            t->codes, t->inverse, t->amax, x, t->rows, t->cols, out_rows,
            out_cols, t->transpose);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of products in fp8: the largest magnitude of a tensor, and its
 * codes, in the order of the data and transposed. */
#include <cuda_fp8.h>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/fp8.h"

enum { THREADS = 256, TILE = 64, PAD = 4 };

static __global__ void amax_kernel(unsigned *amax, const bf16 *x, size_t packed,
                                   size_t n)
{
    constexpr int V = pack<bf16>::n;
    __shared__ unsigned mosts[32];
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
    block_amax(amax, most, mosts);
}

/* plait_fp8_scale() of kernels/dtype.h: the largest number of both formats is
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

/* Rounds the tensor to its codes [out_rows, out_cols], and to those transposed
 * [out_cols, out_rows]. its amax is known. A block computes one tile at a
 * time. */
template <bool E4M3>
static __global__ void round_kernel(struct fp8_tensor tensor, size_t out_rows,
                                    size_t out_cols)
{
    __shared__ __align__(4) unsigned char tile[TILE][TILE + PAD];
    const bf16 *x = (const bf16 *)tensor.data;
    unsigned char *codes = tensor.codes, *turned = tensor.turned;
    size_t rows = tensor.rows, cols = tensor.cols;
    float scale = scale_of(*tensor.amax, E4M3 ? 8 : 15);
    size_t wide = (out_cols + TILE - 1) / TILE;
    size_t tiles = wide * ((out_rows + TILE - 1) / TILE);

    if (blockIdx.x == 0 && threadIdx.x == 0)
        *tensor.inverse = 1 / scale;
    for (size_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        size_t r0 = t / wide * TILE, c0 = t % wide * TILE;

        for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
            size_t r = r0 + i / TILE, c = c0 + i % TILE;
            unsigned char code = 0;

            if (r < rows && c < cols)
                code = __nv_cvt_float_to_fp8(to_float(x[r * cols + c]) * scale,
                                             __NV_SATFINITE,
                                             E4M3 ? __NV_E4M3 : __NV_E5M2);
            tile[i / TILE][i % TILE] = code;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * TILE / 4; i += THREADS) {
            int r = i / (TILE / 4), c = i % (TILE / 4) * 4;

            if (codes != NULL && r0 + r < out_rows && c0 + c < out_cols)
                *reinterpret_cast<unsigned *>(codes + (r0 + r) * out_cols + c0 +
                                              c) =
                    *reinterpret_cast<unsigned *>(&tile[r][c]);
            if (turned != NULL && c0 + r < out_cols && r0 + c < out_rows)
                *reinterpret_cast<unsigned *>(turned + (c0 + r) * out_rows +
                                              r0 + c) =
                    tile[c][r] | tile[c + 1][r] << 8 | tile[c + 2][r] << 16 |
                    (unsigned)tile[c + 3][r] << 24;
        }
        __syncthreads();
    }
}

void cuda_fp8_amax(struct plait_queue *q, unsigned *amax, const void *data,
                   size_t n)
{
    const bf16 *x = (const bf16 *)data;
    size_t packed = aligned16(x) ? n / 8 * 8 : 0;
    unsigned blocks = grid_for(q, packed > 0 ? packed / 8 : n, THREADS);

    clear_amax(q, "fp8", amax);
    if (n > 0)
        amax_kernel<<<blocks, THREADS, 0, q->stream>>>(amax, x, packed, n);
}

void cuda_fp8_round(struct plait_queue *q, const struct fp8_tensor *t)
{
    struct fp8_tensor known = *t;
    size_t out_rows = fp8_padded(t->rows), out_cols = fp8_padded(t->cols);
    size_t tiles = ceil_div(out_rows, TILE) * ceil_div(out_cols, TILE);
    unsigned blocks = grid_for(q, tiles * THREADS, THREADS);

    if (t->amax == NULL) {
        cuda_fp8_amax(q, t->found, t->data, t->rows * t->cols);
        known.amax = t->found;
    }
    if (t->e4m3)
        round_kernel<true>
            <<<blocks, THREADS, 0, q->stream>>>(known, out_rows, out_cols);
    else
        round_kernel<false>
            <<<blocks, THREADS, 0, q->stream>>>(known, out_rows, out_cols);
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_ATTENTION_MMA_CUH
#define PLAIT_KERNELS_CUDA_ATTENTION_MMA_CUH

#include "kernels/cuda/attention_seen.cuh"
#include "kernels/cuda/tile.cuh"

/* Shared by the forward and the backward of the tensor-core attention. A block
 * has 128 rows (queries or keys), 16 for each of its 8 warps, and loops over
 * the other side `step` rows at a time while the next ones are copied to shared
 * memory. A warp's scores become the operand of the next product in registers,
 * without passing through memory. */

static const int rows = 128, warps = 8, threads = 32 * warps;

/* -- tiles in shared memory ------------------------------------------------ */

/* Copies rows first .. first + n of src to a tile; rows from `end` on are 0. */
template <int D, int n, typename T>
static __device__ inline void fetch(unsigned tile, const T *src, size_t stride,
                                    int first, int end)
{
    constexpr int pieces = D / 8;

#pragma unroll
    for (int i = threadIdx.x; i < n * pieces; i += threads) {
        int row = i / pieces, piece = i % pieces;
        bool valid = first + row < end;

        copy_async(place<D>(tile, row, piece),
                   src + (size_t)(valid ? first + row : 0) * stride + piece * 8,
                   valid);
    }
}

/* s [16, n] = rows row .. row + 16 of the a-tile times b-tile [n, D]^T */
template <typename T, int D, int n>
static __device__ inline void scores(float s[n / 8][4], unsigned a_tile,
                                     int row, unsigned b_tile)
{
#pragma unroll
    for (int j = 0; j < n / 8; j++)
        for (int i = 0; i < 4; i++)
            s[j][i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4], b[4];

        load_a<D>(a, a_tile, row, k);
#pragma unroll
        for (int j = 0; j < n / 16; j++) {
            load_b<D>(b, b_tile, j * 16, k);
            mma(T(), s[2 * j], a, b);
            mma(T(), s[2 * j + 1], a, b + 2);
        }
    }
}

/* Whether scores have a cap. Kernels without dropout have it as a constant, so
 * that those without a cap are as fast as if there were none; those with
 * dropout look it up. */
template <bool capped>
static __device__ __forceinline__ bool
is_capped(const struct capped_attention &)
{
    return capped;
}

template <bool>
static __device__ __forceinline__ bool
is_capped(const struct dropped_attention &a)
{
    return a.cap > 0;
}

/* tanh of the score of a product by the cap, with an error of about 1e-7. */
static __device__ inline float capped_part(const struct capped_attention &a,
                                           float product)
{
    return 1 - __fdividef(2, power_of_two(a.in * product) + 1);
}

/* acc [16, D] += p [16, n] times tile [n, D] */
template <typename T, int D, int n>
static __device__ inline void
add_product(float acc[D / 8][4], const float p[n / 8][4], unsigned tile)
{
#pragma unroll
    for (int k = 0; k < n / 16; k++) {
        uint32_t a[4], b[4];

        for (int i = 0; i < 2; i++) {
            a[2 * i] = pair(T(), p[2 * k + i][0], p[2 * k + i][1]);
            a[2 * i + 1] = pair(T(), p[2 * k + i][2], p[2 * k + i][3]);
        }
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            load_b_trans<D>(b, tile, k * 16, j);
            mma(T(), acc[2 * j], a, b);
            mma(T(), acc[2 * j + 1], a, b + 2);
        }
    }
}

/* Adds acc to dst [16, D], or overwrites it: the lane's two rows, if they are
 * before `end`. */
template <typename T, int D>
static __device__ inline void add_to_rows(T *dst, size_t stride, int first,
                                          int end, const float acc[D / 8][4],
                                          bool overwrite)
{
    int lane = threadIdx.x % 32;

    for (int half = 0; half < 2; half++) {
        int row = first + lane / 4 + half * 8;
        uint32_t *p = (uint32_t *)(dst + (size_t)row * stride) + lane % 4;

        if (row >= end)
            continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            uint32_t old = overwrite ? 0 : p[j * 4];
            const T *x = (const T *)&old;

            p[j * 4] = pair(T(), to_float(x[0]) + acc[j][half * 2],
                            to_float(x[1]) + acc[j][half * 2 + 1]);
        }
    }
}

/* The keys that the lane's two rows see: from[half] .. limit[half] - 1; and
 * the rows' dropout, if there is one. */
struct row_keys {
    int limit[2], from[2];
    struct plait_drop_row dropped[2];
};

/* -- launches -------------------------------------------------------------- */

/* Calls f(T(), D, capped, a) for the type, the head dimension and whether there
 * is a cap, as constants, and for the parameter with or without dropout of an
 * op. */
template <typename Op, typename F>
static inline void for_shape(const Op *op, F f)
{
    enum plait_dtype type = op->type;
    int D = op->a.head_dim;
    auto call = [&](auto zero, auto d) {
        if (op->drops.keys != NULL)
            f(zero, d, std::false_type(), dropped_attention(op->a, op->drops));
        else if (op->a.cap > 0)
            f(zero, d, std::true_type(), capped_attention(op->a));
        else
            f(zero, d, std::false_type(), capped_attention(op->a));
    };
    typedef std::integral_constant<int, 64> d64;
    typedef std::integral_constant<int, 128> d128;

    if (type == PLAIT_BF16_T && D == 64)
        call(bf16(), d64());
    else if (type == PLAIT_BF16_T)
        call(bf16(), d128());
    else if (D == 64)
        call(fp16(), d64());
    else
        call(fp16(), d128());
}

#endif

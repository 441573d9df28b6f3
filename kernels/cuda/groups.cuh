/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_GROUPS_CUH
#define PLAIT_KERNELS_CUDA_GROUPS_CUH

#include "kernels/cuda/common.cuh"

/* Products of grouped rows: the arguments of a launch, and how each block finds
 * its own part. */

/* This many neighbouring block rows run together along the columns, so that the
 * blocks that run at once read a nearly square part of both operands, which
 * fits the L2 cache. */
static const unsigned band = 16;

enum form { FORWARD, INPUT, WEIGHT };

struct work {
    const int32_t *count;
    int n; /* groups */
    size_t rows;
    size_t stride; /* of w, bias, dw, dbias */
    int O, C;
    const void *x;       /* the input: inp, or dout */
    const void *w;       /* not WEIGHT */
    const void *bias;    /* FORWARD; NULL: none */
    const void *inp;     /* WEIGHT */
    void *out, *pre;     /* not WEIGHT; pre NULL: none */
    bool gelu;           /* FORWARD */
    float *dw, *dbias;   /* WEIGHT; dbias NULL: none */
    bool accumulate;     /* WEIGHT */
    unsigned row_blocks; /* not WEIGHT: upper bound of the block rows */
    int stages;          /* of shared memory; on tensor cores */
};

/* -- which rows ------------------------------------------------------------ */

/* Indexes in shared memory of one group's rows. */
enum { GROUP, FIRST, ROWS, SPAN };

struct span {
    int group; /* n: no group; their results are 0 */
    size_t row;
    int rows; /* 0: nothing to do */
};

/* Run by the first warp: finds the rows of group `which`, or, with tall > 0,
 * those of block `which` when each group is cut into blocks of `tall` rows.
 * Each lane has a group and adds up the rows and blocks before it. */
static __device__ inline void search(int32_t found[SPAN], const work &w,
                                     int which, int tall)
{
    int lane = threadIdx.x, blocks_before = 0, rows_before = 0;

    for (int first = 0; first < w.n; first += 32) {
        int i = first + lane, count = i < w.n ? w.count[i] : 0;
        int blocks = tall > 0 ? (count + tall - 1) / tall : i < w.n;
        int block = blocks_before, row = rows_before;
        int all_blocks = blocks, all_rows = count;

        for (int d = 1; d < 32; d *= 2) {
            int b = __shfl_xor_sync(0xffffffff, all_blocks, d);
            int r = __shfl_xor_sync(0xffffffff, all_rows, d);

            block += lane & d ? b : 0;
            row += lane & d ? r : 0;
            all_blocks += b;
            all_rows += r;
        }
        if (which >= block && which < block + blocks) {
            int at = (which - block) * tall;

            found[GROUP] = i;
            found[FIRST] = row + at;
            found[ROWS] = tall > 0 ? min(tall, count - at) : count;
        }
        blocks_before += all_blocks;
        rows_before += all_rows;
    }
    if (lane == 0 && which >= blocks_before) {
        int at = rows_before + (which - blocks_before) * tall;

        found[GROUP] = w.n;
        found[FIRST] = at;
        found[ROWS] = max(0, min(tall, (int)w.rows - at));
    }
}

static __device__ inline span find_span(const work &w, int which, int tall)
{
    __shared__ int32_t found[SPAN];

    if (threadIdx.x < 32)
        search(found, w, which, tall);
    __syncthreads();
    return span{found[GROUP], (size_t)found[FIRST], found[ROWS]};
}

/* A block's task: rows and columns of a result, and the number of terms of its
 * sums. */
struct task {
    span s;
    int row, rows; /* within the span; with WEIGHT: of the result */
    int col, cols;
    int depth;
};

template <int F>
static __device__ inline task find_task(const work &w, int tall)
{
    int cols = F == FORWARD ? w.O : w.C;
    unsigned high =
        F == WEIGHT ? (unsigned)((w.O + tall - 1) / tall) : w.row_blocks;
    unsigned wide = (unsigned)((cols + tall - 1) / tall);
    unsigned base = blockIdx.x / (band * wide) * band;
    unsigned within = blockIdx.x % (band * wide);
    unsigned height = min(band, high - base);
    int block = (int)(base + within % height);
    task t;

    t.col = (int)(within / height) * tall;
    t.cols = cols;
    if (F == WEIGHT) {
        t.s = find_span(w, (int)blockIdx.y, 0);
        t.row = block * tall;
        t.rows = w.O;
        t.depth = t.s.rows;
    } else {
        t.s = find_span(w, block, tall);
        t.row = 0;
        t.rows = t.s.rows;
        t.depth = t.s.group == w.n ? 0 : F == FORWARD ? w.C : w.O;
    }
    return t;
}

/* Whether the result stays as it is. */
template <int F>
static __device__ inline bool is_idle(const work &w, const task &t)
{
    return F == WEIGHT ? w.accumulate && t.depth == 0 : t.rows == 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of grouped rows, when only the device knows how many rows a
 * group has: one launch for all, whose blocks find their own part. 16-bit
 * operands aligned to 16 bytes use the tensor cores, and fp32 does if it may be
 * rounded to TF32. */
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tile.cuh"

/* A block computes side x side elements of a result on tensor cores, `deep`
 * terms of their sums at a time, by four warps with part x part each: with less
 * of them, shared memory is slower than the tensor cores. Otherwise it computes
 * flat x flat, `thin` terms at a time. */
static const int tensor_threads = 128, side = 128, part = 64, deep = 64;
static const int threads = 256, flat = 64, thin = 16;
static const unsigned tile_bytes = side * deep * 2,
                      stage_bytes = 2 * tile_bytes;

/* -- results --------------------------------------------------------------- */

/* n neighbouring elements, moved by one access. */
template <typename T, int n> struct alignas(n * sizeof(T)) few {
    T v[n];
};

template <typename T, int n>
static __device__ inline few<T, n> load_few(const T *p)
{
    return *reinterpret_cast<const few<T, n> *>(p);
}

template <typename T, int n>
static __device__ inline void store_few(T *p, const float *x)
{
    few<T, n> y;

    for (int i = 0; i < n; i++)
        y.v[i] = from_float<T>(x[i]);
    *reinterpret_cast<few<T, n> *>(p) = y;
}

/* Stores n sums: row r, columns from c on of the task's result. */
template <typename T, int F, int n>
static __device__ inline void store(const work &w, const task &t, int r, int c,
                                    const float *sum)
{
    size_t at = (F == WEIGHT ? (size_t)r : t.s.row + r) * t.cols + c;
    size_t group = t.s.group * w.stride;
    float x[n];

    for (int i = 0; i < n; i++)
        x[i] = sum[i];
    if (F == WEIGHT && w.accumulate) {
        few<float, n> old = load_few<float, n>(w.dw + group + at);

        for (int i = 0; i < n; i++)
            x[i] += old.v[i];
    }
    if (F == FORWARD && w.bias != NULL && t.s.group < w.n) {
        few<T, n> bias = load_few<T, n>((const T *)w.bias + group + c);

        for (int i = 0; i < n; i++)
            x[i] += to_float(bias.v[i]);
    }
    if (F == INPUT && w.pre != NULL && t.s.group < w.n) {
        few<T, n> pre = load_few<T, n>((const T *)w.pre + at);

        for (int i = 0; i < n; i++)
            x[i] *= gelu_slope(to_float(pre.v[i]));
    }
    if (F == FORWARD && w.gelu && w.pre != NULL)
        store_few<T, n>((T *)w.pre + at, x);
    for (int i = 0; F == FORWARD && w.gelu && i < n; i++)
        x[i] = gelu(x[i]);
    if (F == WEIGHT)
        store_few<float, n>(w.dw + group + at, x);
    else
        store_few<T, n>((T *)w.out + at, x);
}

/* -- tensor cores ---------------------------------------------------------- */

/* Copies a tile [n, D] of src, from (row, col) on; 0 from end_row and end_col
 * on. */
template <int D, int n, typename T>
static __device__ inline void fetch(unsigned tile, const T *src, int stride,
                                    int row, int end_row, int col, int end_col)
{
    /* Offsets within a tile fit 32 bits; registers are scarce. */
    src += (size_t)row * stride + col;
    end_row -= row;
    end_col -= col;
#pragma unroll
    for (int i = threadIdx.x; i < n * D / 8; i += tensor_threads) {
        int r = i / (D / 8), piece = i % (D / 8);
        bool valid = r < end_row && piece * 8 < end_col;

        copy_async(place<D>(tile, r, piece),
                   src + (valid ? r * stride + piece * 8 : 0), valid);
    }
}

/* Copies the terms from k on of both operands to shared memory. a: rows of the
 * result by terms, with WEIGHT terms by rows; b: with FORWARD columns by terms,
 * else terms by columns. */
template <typename T, int F>
static __device__ inline void fetch_terms(unsigned a, unsigned b, const work &w,
                                          const task &t, int k)
{
    const T *x = (const T *)w.x, *y;

    if (k >= t.depth)
        return;
    if (F == WEIGHT) {
        y = (const T *)w.inp + t.s.row * w.C;
        x += t.s.row * w.O;
        fetch<side, deep>(a, x, w.O, k, t.depth, t.row, w.O);
        fetch<side, deep>(b, y, w.C, k, t.depth, t.col, w.C);
        return;
    }
    y = (const T *)w.w + t.s.group * w.stride;
    fetch<deep, side>(a, x + t.s.row * t.depth, t.depth, 0, t.rows, k, t.depth);
    if (F == FORWARD)
        fetch<deep, side>(b, y, w.C, t.col, w.O, k, w.C);
    else
        fetch<side, deep>(b, y, w.C, k, w.O, t.col, w.C);
}

/* acc [part, part] of the warp += the products of terms in shared memory. */
template <typename T, int F>
static __device__ inline void add_terms(float acc[part / 16][part / 8][4],
                                        unsigned a, unsigned b, int row,
                                        int col)
{
#pragma unroll
    for (int k = 0; k < deep / 16; k++) {
        uint32_t x[part / 16][4], y[4];

#pragma unroll
        for (int m = 0; m < part / 16; m++) {
            if (F == WEIGHT)
                load_a_trans<side>(x[m], a, k * 16, row / 16 + m);
            else
                load_a<deep>(x[m], a, row + m * 16, k);
        }
#pragma unroll
        for (int j = 0; j < part / 16; j++) {
            if (F == FORWARD)
                load_b<deep>(y, b, col + j * 16, k);
            else
                load_b_trans<side>(y, b, k * 16, col / 16 + j);
#pragma unroll
            for (int m = 0; m < part / 16; m++) {
                mma(T(), acc[m][2 * j], x[m], y);
                mma(T(), acc[m][2 * j + 1], x[m], y + 2);
            }
        }
    }
}

/* Shared memory has w.stages pairs of tiles in turn: one is multiplied while
 * the others are filled. */
template <typename T, int F>
static __global__ void __launch_bounds__(tensor_threads, 2)
    tensor_kernel(work w)
{
    extern __shared__ __align__(128) char shared[];
    task t = find_task<F>(w, side);
    unsigned tiles = shared_address(shared);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = warp / 2 * part, col = warp % 2 * part;
    int ahead = w.stages - 1, now = 0;
    float acc[part / 16][part / 8][4] = {};

    if (is_idle<F>(w, t))
        return;
    for (int i = 0; i < ahead; i++) {
        unsigned a = tiles + i * stage_bytes;

        fetch_terms<T, F>(a, a + tile_bytes, w, t, i * deep);
        copy_commit();
    }
    for (int k = 0; k < t.depth; k += deep) {
        unsigned a = tiles + now * stage_bytes;
        unsigned next = tiles + (now > 0 ? now - 1 : ahead) * stage_bytes;

        if (ahead > 1)
            copy_wait<1>();
        else
            copy_wait<0>();
        __syncthreads();
        fetch_terms<T, F>(next, next + tile_bytes, w, t, k + ahead * deep);
        copy_commit();
        add_terms<T, F>(acc, a, a + tile_bytes, row, col);
        now = now < ahead ? now + 1 : 0;
    }
    copy_wait<0>();
#pragma unroll
    for (int i = 0; i < part / 16 * part / 8 * 2; i++) {
        int m = i / (part / 4), j = i / 2 % (part / 8), lower = i % 2;
        int r = t.row + row + m * 16 + lane / 4 + lower * 8;
        int at = t.col + col + j * 8 + lane % 4 * 2;

        if (r < t.rows && at < t.cols)
            store<T, F, 2>(w, t, r, at, &acc[m][j][lower * 2]);
    }
}

/* -- any type and alignment ----------------------------------------------- */

/* One operand: element (i, k) at p[i * of_i + k * of_k]. */
template <typename T> struct operand {
    const T *p;
    size_t of_i, of_k;
};

/* Row length of the terms in shared memory: eight more avoid bank conflicts
 * within a warp. */
static const int padded = flat + 8;

/* Loads the terms from k on of one operand; neighbouring threads read
 * neighbouring elements. */
template <typename T, bool tf32>
static __device__ inline void take(float (*to)[padded], const operand<T> &o,
                                   int i, int end_i, int k, int end_k)
{
    for (int e = threadIdx.x; e < thin * flat; e += threads) {
        int x = o.of_k == 1 ? e / thin : e % flat;
        int y = o.of_k == 1 ? e % thin : e / flat;
        bool valid = i + x < end_i && k + y < end_k;
        float value =
            valid ? to_float(o.p[(i + x) * o.of_i + (k + y) * o.of_k]) : 0;

        to[y][x] = tf32 ? to_tf32(value) : value;
    }
}

/* The row of a thread's sum i of 16: 4 x 4 neighbours, or with tf32 its part of
 * the warp's 16 x 32. */
template <bool tf32> static __device__ inline int row_of(int i)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    return tf32 ? warp / 2 * 16 + lane / 4 + i / 2 % 2 * 8
                : threadIdx.x / 16 * 4 + i / 4;
}

template <bool tf32> static __device__ inline int column_of(int i)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    return tf32 ? warp % 2 * 32 + i / 4 * 8 + lane % 4 * 2 + i % 2
                : threadIdx.x % 16 * 4 + i % 4;
}

/* acc += a . b, for the terms in shared memory. */
static __device__ inline void add_flat(float acc[4][4], float (*a)[padded],
                                       float (*b)[padded])
{
    int row = row_of<false>(0), col = column_of<false>(0);

#pragma unroll
    for (int e = 0; e < thin; e++) {
        pack<float> x = load_pack(&a[e][row]), y = load_pack(&b[e][col]);

#pragma unroll
        for (int i = 0; i < 16; i++)
            acc[i / 4][i % 4] += x.v[i / 4] * y.v[i % 4];
    }
}

static __device__ inline void add_tf32(float acc[4][4], float (*a)[padded],
                                       float (*b)[padded])
{
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int row = warp / 2 * 16 + g, col = warp % 2 * 32 + g;

#pragma unroll
    for (int k = 0; k < thin; k += 8) {
        int e = k + t;
        float x[4] = {a[e][row], a[e][row + 8], a[e + 4][row],
                      a[e + 4][row + 8]};

#pragma unroll
        for (int j = 0; j < 4; j++) {
            float y[2] = {b[e][col + j * 8], b[e + 4][col + j * 8]};

            mma_tf32(acc[j], x, y);
        }
    }
}

template <typename T, int F, bool tf32>
static __global__ void __launch_bounds__(threads) plain_kernel(work w)
{
    alignas(16) __shared__ float a[thin][padded];
    alignas(16) __shared__ float b[thin][padded];
    task t = find_task<F>(w, flat);
    float acc[4][4] = {};
    operand<T> x, y;

    if (is_idle<F>(w, t))
        return;
    x.p = (const T *)w.x + t.s.row * (F == FORWARD ? w.C : w.O);
    y.p = F == WEIGHT ? (const T *)w.inp + t.s.row * w.C
                      : (const T *)w.w + t.s.group * w.stride;
    x.of_i = F == WEIGHT ? 1 : t.depth;
    x.of_k = F == WEIGHT ? w.O : 1;
    y.of_i = F == FORWARD ? w.C : 1;
    y.of_k = F == FORWARD ? 1 : w.C;
    for (int k = 0; k < t.depth; k += thin) {
        take<T, tf32>(a, x, t.row, t.rows, k, t.depth);
        take<T, tf32>(b, y, t.col, t.cols, k, t.depth);
        __syncthreads();
        if (tf32)
            add_tf32(acc, a, b);
        else
            add_flat(acc, a, b);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        int r = t.row + row_of<tf32>(i), c = t.col + column_of<tf32>(i);

        if (r < t.rows && c < t.cols)
            store<T, F, 1>(w, t, r, c, &acc[i / 4][i % 4]);
    }
}

/* dbias of group blockIdx.y, 32 columns per block: each warp sums every eighth
 * row, then the warps' sums are added in order. */
template <typename T> static __global__ void bias_kernel(work w)
{
    __shared__ float sums[threads / 32][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int c = (int)blockIdx.x * 32 + lane;
    span s = find_span(w, (int)blockIdx.y, 0);
    float *dbias = w.dbias + s.group * w.stride, sum = 0;

    for (int r = warp; r < s.rows && c < w.O; r += threads / 32)
        sum += to_float(((const T *)w.x)[(s.row + r) * w.O + c]);
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || c >= w.O)
        return;
    for (int i = 1; i < threads / 32; i++)
        sum += sums[i][lane];
    dbias[c] = w.accumulate ? dbias[c] + sum : sum;
}

/* -- launches -------------------------------------------------------------- */

/* How a kernel is launched: blocks of n threads, with `bytes` of shared memory,
 * compute `tall` rows and columns of the form's result. */
struct blocks {
    int n, tall;
    size_t bytes;
};

/* Launches plain_kernel or tensor_kernel. */
template <int F, typename K>
static void launch_kernel(struct plait_queue *q, const char *op, K kernel,
                          blocks b, work w)
{
    size_t wide = ceil_div(F == FORWARD ? w.O : w.C, b.tall);
    size_t high = ceil_div(w.O, b.tall);

    /* An upper bound: each group, and the rows after the last group, fills all
     * its blocks but one. */
    if (F != WEIGHT)
        high = w.row_blocks = (unsigned)(ceil_div(w.rows, b.tall) + w.n + 1);
    if (cuda_allow_shared(q, op, (const void *)kernel, b.bytes) == 0)
        kernel<<<dim3((unsigned)(high * wide), F == WEIGHT ? w.n : 1), b.n,
                 b.bytes, q->stream>>>(w);
}

static uintptr_t address(const void *p)
{
    return reinterpret_cast<uintptr_t>(p);
}

/* Whether the operands fit the tensor cores. */
static bool has_tensors(enum plait_dtype type, const work &w)
{
    uintptr_t all = address(w.x) | address(w.w) | address(w.bias) |
                    address(w.inp) | address(w.out) | address(w.pre) |
                    address(w.dw);

    return type != PLAIT_F32 && w.O % 8 == 0 && w.C % 8 == 0 &&
           w.stride % 8 == 0 && all % 16 == 0;
}

template <int F>
static int launch_form(struct plait_queue *q, const char *op,
                       enum plait_dtype type, work w)
{
    blocks tensor = {tensor_threads, side, 0}, plain = {threads, flat, 0};

    /* Three if a multiprocessor has room for two such blocks. */
    w.stages = blocks_by_shared(q, 3 * stage_bytes) >= 2 ? 3 : 2;
    tensor.bytes = (size_t)w.stages * stage_bytes;
    if (has_tensors(type, w) && type == PLAIT_BF16_T)
        launch_kernel<F>(q, op, tensor_kernel<bf16, F>, tensor, w);
    else if (has_tensors(type, w))
        launch_kernel<F>(q, op, tensor_kernel<fp16, F>, tensor, w);
    else if (type == PLAIT_F32 && q->dev->tf32)
        launch_kernel<F>(q, op, plain_kernel<float, F, true>, plain, w);
    else
        for_type(type, [&](auto zero) {
            typedef decltype(zero) T;

            launch_kernel<F>(q, op, plain_kernel<T, F, false>, plain, w);
        });
    return cuda_leave(q, op);
}

static work begin(const struct plait_groups *g, const void *x, size_t O,
                  size_t C)
{
    work w = {};

    w.count = g->count;
    w.n = g->n;
    w.rows = g->rows;
    w.stride = g->stride;
    w.x = x;
    w.O = (int)O;
    w.C = (int)C;
    return w;
}

static int grouped_forward(struct plait_queue *q, const struct plait_groups *g,
                           const struct plait_linear *l)
{
    work w = begin(g, l->inp.x, l->w->O, l->w->C);

    if (cuda_enter(q) != 0)
        return -1;
    if (g->rows == 0)
        return 0;
    w.w = l->w->data;
    w.bias = l->bias;
    w.out = l->out;
    w.gelu = l->act == PLAIT_ACT_GELU;
    w.pre = w.gelu ? l->pre : NULL;
    return launch_form<FORWARD>(q, "grouped_forward", l->w->type, w);
}

static int grouped_backward_input(struct plait_queue *q,
                                  const struct plait_groups *g,
                                  const struct plait_linear_dinp *l)
{
    work w = begin(g, l->dout.x, l->w->O, l->w->C);

    if (cuda_enter(q) != 0)
        return -1;
    if (g->rows == 0)
        return 0;
    w.w = l->w->data;
    w.out = l->dinp;
    w.pre = l->act == PLAIT_ACT_GELU ? const_cast<void *>(l->pre) : NULL;
    return launch_form<INPUT>(q, "grouped_backward_input", l->w->type, w);
}

static int grouped_backward_weight(struct plait_queue *q,
                                   const struct plait_groups *g,
                                   const struct plait_linear_dw *l)
{
    work w = begin(g, l->dout.x, l->O, l->C);

    if (cuda_enter(q) != 0)
        return -1;
    w.inp = l->inp.x;
    w.dw = l->dw;
    w.dbias = l->dbias;
    w.accumulate = l->accumulate != 0;
    if (l->dbias != NULL)
        for_type(l->type, [&](auto zero) {
            typedef decltype(zero) T;

            bias_kernel<T><<<dim3((unsigned)ceil_div(l->O, 32), g->n), threads,
                             0, q->stream>>>(w);
        });
    return launch_form<WEIGHT>(q, "grouped_backward_weight", l->type, w);
}

void cuda_grouped_ops(struct plait_ops *ops)
{
    ops->grouped_forward = grouped_forward;
    ops->grouped_backward_input = grouped_backward_input;
    ops->grouped_backward_weight = grouped_backward_weight;
}

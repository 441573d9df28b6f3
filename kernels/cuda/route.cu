/* SPDX-License-Identifier: Apache-2.0 */
/* Routing: which expert processes which token, and the rows of tokens in the
 * experts' order and back. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/route.cuh"

static const unsigned threads = 256;

/* -- routing -------------------------------------------------------------- */

/* One thread per token, a few numbers each, in double: a choice between two
 * experts must not depend on the order of a sum, and the gradient of the
 * balance term is a small difference of large numbers. */

/* Experts are chosen by logits: close to 1/2, probabilities cannot tell apart
 * logits that differ near 0. */
template <typename T>
static __global__ void route_kernel(struct plait_route r, const T *logits)
{
    int E = r.E, k = r.k;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < r.N;
         i += (size_t)gridDim.x * blockDim.x) {
        const T *x = logits + i * E;
        float *p = r.prob + i * E, max = -CUDART_INF_F;
        double sum = 0;

        for (int e = 0; e < E; e++)
            max = fmaxf(max, to_float(x[e]));
        for (int e = 0; e < E; e++)
            sum += exp((double)to_float(x[e]) - max);
        for (int e = 0; e < E; e++)
            p[e] = (float)(exp((double)to_float(x[e]) - max) / sum);
        choose(
            r, [&](int e) { return to_float(x[e]); }, p, r.expert + i * k,
            r.gate + i * k, 0);
        for (size_t j = i * k; r.each && j < (i + 1) * k; j++)
            r.gate[j] =
                (float)(1 / (1 + exp(-(double)to_float(x[r.expert[j]]))));
    }
}

static int route_forward(struct plait_queue *q, const struct plait_route *r,
                         const void *logits)
{
    if (r->bias != NULL)
        return cuda_sigmoid_route(q, r, logits);
    return cuda_launch(q, "route_forward", r->type, r->N, [&](auto zero) {
        typedef decltype(zero) T;

        route_kernel<<<grid_for(q, r->N, threads), threads, 0, q->stream>>>(
            *r, (const T *)logits);
    });
}

/* Counts in fp32 are exact (sums of ones), so that their order does not
 * matter. */
static __global__ void load_kernel(float *load, struct plait_route r)
{
    size_t n = r.N * r.k;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        atomicAdd(&load[i / r.k / r.run % r.sequences * r.E + r.expert[i]],
                  1.0f);
}

static int route_load(struct plait_queue *q, const struct plait_route *r,
                      float *load)
{
    size_t n = r->N * r->k;

    if (cuda_enter(q) != 0)
        return -1;
    if (n == 0)
        return 0;
    load_kernel<<<grid_for(q, n, threads), threads, 0, q->stream>>>(load, *r);
    return cuda_leave(q, "route_load");
}

/* Of the gates and the balance loss, then the softmax's backward. */
template <typename T>
static __global__ void route_gradient_kernel(struct plait_route r,
                                             struct plait_route_gradient g)
{
    T *dlogits = (T *)g.dlogits;
    double balance = balance_of(g);
    int E = r.E;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < r.N;
         i += (size_t)gridDim.x * blockDim.x) {
        const float *p = r.prob + i * E;
        const float *l = g.load + i / r.run % r.sequences * E;
        struct gates gates = gates_of(r, g, i, p, 0);
        double dot = 0;

        for (int pass = 0; pass < 2; pass++)
            for (int e = 0; e < E; e++) {
                double dp = add_gates(balance != 0 ? balance * l[e] : 0, r, g,
                                      gates, i, e);

                if (pass == 0)
                    dot += dp * p[e];
                else
                    dlogits[i * E + e] =
                        from_float<T>((float)(p[e] * (dp - dot)));
            }
    }
}

/* Of weights that are sigmoids of the chosen logits, and of the balance loss of
 * the softmax. */
template <typename T>
static __global__ void each_gradient_kernel(struct plait_route r,
                                            struct plait_route_gradient g)
{
    T *dlogits = (T *)g.dlogits;
    double balance = balance_of(g);

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < r.N;
         i += (size_t)gridDim.x * blockDim.x) {
        const float *p = r.prob + i * r.E;
        const float *l = g.load + i / r.run % r.sequences * r.E;
        double dot = 0;

        for (int e = 0; e < r.E; e++)
            dot += balance != 0 ? balance * l[e] * p[e] : 0;
        for (int e = 0; e < r.E; e++) {
            double d = balance != 0 ? p[e] * (balance * l[e] - dot) : 0;

            for (size_t j = i * r.k; j < (i + 1) * r.k; j++)
                if (r.expert[j] == e)
                    d += (double)g.dgate[j] * r.gate[j] *
                         (1 - (double)r.gate[j]);
            dlogits[i * r.E + e] = from_float<T>((float)d);
        }
    }
}

static int route_backward(struct plait_queue *q, const struct plait_route *r,
                          const struct plait_route_gradient *g)
{
    if (r->bias != NULL)
        return cuda_sigmoid_gradient(q, r, g);
    return cuda_launch(q, "route_backward", r->type, r->N, [&](auto zero) {
        typedef decltype(zero) T;

        if (r->each)
            each_gradient_kernel<T>
                <<<grid_for(q, r->N, threads), threads, 0, q->stream>>>(*r, *g);
        else
            route_gradient_kernel<T>
                <<<grid_for(q, r->N, threads), threads, 0, q->stream>>>(*r, *g);
    });
}

/* One warp per expert and run of tokens. The first choices are kept, so that
 * each lane also counts those of the lanes before it. */
static __global__ void limit_kernel(struct plait_route r,
                                    struct plait_route_limit limit, size_t runs)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    size_t first = i / r.E * r.run * r.k, end = first + r.run * r.k;
    unsigned lane = threadIdx.x % 32;
    int e = (int)(i % r.E), count;

    if (i >= runs * r.E)
        return;
    count = limit.before ? (int)limit.before[i] : 0;
    for (size_t j = first + lane; j - lane < end; j += 32) {
        bool mine = j < end && r.expert[j] == e;
        unsigned all = __ballot_sync(0xffffffff, mine);
        int place = count + __popc(all & ((1u << lane) - 1));

        if (mine) {
            limit.kept[j] = place < limit.most ? e : r.E;
            if (place >= limit.most)
                r.gate[j] = 0;
        }
        count += __popc(all);
    }
}

static int route_limit(struct plait_queue *q, const struct plait_route *r,
                       const struct plait_route_limit *limit)
{
    size_t runs = r->N / r->run;

    if (cuda_enter(q) != 0)
        return -1;
    if (runs == 0)
        return 0;
    limit_kernel<<<(unsigned)ceil_div(runs * r->E * 32, threads), threads, 0,
                   q->stream>>>(*r, *limit, runs);
    return cuda_leave(q, "route_limit");
}

/* A stable sort by counting, in tiles of `threads` choices, one a thread:
 * how often each tile has each expert, where the tile's choices of an expert
 * begin in the sorted order, and behind that the choices before it in the tile.
 * Sums of integers are the same in any order. tiles[e * ntiles + tile] */
static __global__ void tile_kernel(int32_t *tiles, const int32_t *expert, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        atomicAdd(&tiles[(size_t)expert[i] * gridDim.x + blockIdx.x], 1);
}

static const unsigned scanning = 1024;

/* The sum of the values before each of tiles[E * ntiles]; by one block, whose
 * threads have as many consecutive values each. */
static __global__ void __launch_bounds__(scanning)
    scan_kernel(int32_t *tiles, int32_t *count, int n, size_t ntiles, int E)
{
    __shared__ int32_t sums[scanning];
    size_t all = ntiles * E, each = (all + scanning - 1) / scanning;
    size_t from = min(threadIdx.x * each, all), to = min(from + each, all);
    int32_t before = 0, sum = 0;

    for (size_t i = from; i < to; i++)
        sum += tiles[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned step = 1; step < scanning; step *= 2) {
        before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    before = sums[threadIdx.x] - sum;
    for (size_t i = from; i < to; i++) {
        int32_t here = tiles[i];

        tiles[i] = before;
        before += here;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < E; e += scanning)
        count[e] =
            (e + 1 < E ? tiles[(e + 1) * ntiles] : n) - tiles[e * ntiles];
}

static __global__ void place_kernel(int32_t *place, const int32_t *tiles,
                                    const int32_t *expert, int n)
{
    __shared__ int32_t tile[threads];
    int i = blockIdx.x * blockDim.x + threadIdx.x, at = 0;
    int32_t mine = i < n ? expert[i] : 0;

    tile[threadIdx.x] = mine;
    __syncthreads();
    if (i >= n)
        return;
    for (unsigned j = 0; j < threadIdx.x; j++)
        at += tile[j] == mine;
    place[i] = tiles[(size_t)mine * gridDim.x + blockIdx.x] + at;
}

static int route_sort(struct plait_queue *q, const struct plait_route_sort *s)
{
    static const char op[] = "route_sort";
    unsigned ntiles = (unsigned)ceil_div(s->n, threads);
    size_t bytes = (size_t)ntiles * s->E * sizeof(int32_t);
    int32_t *tiles;
    int n = (int)s->n;

    if (cuda_enter(q) != 0)
        return -1;
    if (n == 0)
        return cuda_check(
            q, op,
            cudaMemsetAsync(s->count, 0, s->E * sizeof(*s->count), q->stream));
    tiles = (int32_t *)cuda_scratch(q, bytes);
    if (tiles == NULL ||
        cuda_check(q, op, cudaMemsetAsync(tiles, 0, bytes, q->stream)) != 0)
        return -1;
    tile_kernel<<<ntiles, threads, 0, q->stream>>>(tiles, s->expert, n);
    scan_kernel<<<1, scanning, 0, q->stream>>>(tiles, s->count, n, ntiles,
                                               s->E);
    place_kernel<<<ntiles, threads, 0, q->stream>>>(s->place, tiles, s->expert,
                                                    n);
    return cuda_leave(q, op);
}

/* -- rows ------------------------------------------------------------------ */

/* A thread has V columns of a row. */
template <typename T, int V>
static __global__ void spread_kernel(struct plait_rows r)
{
    const T *x = (const T *)r.x;
    T *out = (T *)r.out;
    size_t n = r.N * r.k, C = r.C;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
         i < n * (C / V); i += (size_t)gridDim.x * blockDim.x) {
        size_t row = i / (C / V), c = i % (C / V) * V;
        float by = r.gate != NULL ? r.gate[row] : 1, v[V];

        load_values<T, V>(v, x + row / r.k * C + c);
        for (int j = 0; j < V; j++)
            v[j] *= by;
        store_values<T, V>(out + (size_t)r.place[row] * C + c, v);
    }
}

static int rows_spread(struct plait_queue *q, const struct plait_rows *r)
{
    size_t n = r->N * r->k * r->C;

    return cuda_launch(q, "rows_spread", r->type, n, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(r->out, r->C) && aligned16(r->x);

        for_width<T>(packs, [&](auto width) {
            constexpr int V = width.value;

            spread_kernel<T, V>
                <<<grid_for(q, n / V, threads), threads, 0, q->stream>>>(*r);
        });
    });
}

template <typename T, int V>
static __global__ void join_kernel(struct plait_rows r)
{
    const T *rows = (const T *)r.rows;
    T *out = (T *)r.out;
    size_t C = r.C, k = r.k;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
         i < r.N * (C / V); i += (size_t)gridDim.x * blockDim.x) {
        size_t row = i / (C / V), c = i % (C / V) * V;
        float sum[V] = {}, v[V];

        if (r.accumulate)
            load_values<T, V>(sum, out + row * C + c);
        for (size_t at = row * k; at < (row + 1) * k; at++) {
            load_values<T, V>(v, rows + (size_t)r.place[at] * C + c);
            for (int j = 0; j < V; j++)
                sum[j] += v[j] * (r.gate != NULL ? r.gate[at] : 1);
        }
        store_values<T, V>(out + row * C + c, sum);
    }
}

static int rows_join(struct plait_queue *q, const struct plait_rows *r)
{
    size_t n = r->N * r->C;

    return cuda_launch(q, "rows_join", r->type, n, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(r->out, r->C) && aligned16(r->rows);

        for_width<T>(packs, [&](auto width) {
            constexpr int V = width.value;

            join_kernel<T, V>
                <<<grid_for(q, n / V, threads), threads, 0, q->stream>>>(*r);
        });
    });
}

/* One warp per choice. */
template <typename T, int V>
static __global__ void dot_kernel(struct plait_rows r)
{
    const T *dout = (const T *)r.dout, *rows = (const T *)r.rows;
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32, C = r.C;
    float sum = 0, x[V], y[V];

    if (i >= r.N * r.k)
        return;
    for (size_t c = threadIdx.x % 32 * V; c < C; c += 32 * V) {
        load_values<T, V>(x, dout + i / r.k * C + c);
        load_values<T, V>(y, rows + (size_t)r.place[i] * C + c);
        for (int j = 0; j < V; j++)
            sum += x[j] * y[j];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        r.dgate[i] = sum;
}

static int rows_dot(struct plait_queue *q, const struct plait_rows *r)
{
    size_t n = r->N * r->k;

    return cuda_launch(q, "rows_dot", r->type, n, [&](auto zero) {
        typedef decltype(zero) T;
        bool packs = rows_aligned16<T>(r->dout, r->C) && aligned16(r->rows);

        for_width<T>(packs, [&](auto width) {
            dot_kernel<T, width.value><<<(unsigned)ceil_div(n * 32, threads),
                                         threads, 0, q->stream>>>(*r);
        });
    });
}

void cuda_route_ops(struct plait_ops *ops)
{
    ops->route_forward = route_forward;
    ops->route_load = route_load;
    ops->route_backward = route_backward;
    ops->route_limit = route_limit;
    ops->route_sort = route_sort;
    ops->rows_spread = rows_spread;
    ops->rows_join = rows_join;
    ops->rows_dot = rows_dot;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Routing by sigmoids and a bias, in the steps of kernels/ref/route.c; as for
 * softmax in double, with one thread per token. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/route.cuh"

static const unsigned threads = 256;

/* What the scores of a token's experts are added to. */
static __device__ inline double begin_sum(const float *prob, int E)
{
    double sum = PLAIT_ROUTE_TINY;

    for (int e = 0; e < E; e++)
        if (isnan(prob[e]))
            sum = prob[e];
    return sum;
}

template <typename T>
static __global__ void sigmoid_route_kernel(struct plait_route r,
                                            const T *logits)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < r.N;
         i += (size_t)gridDim.x * blockDim.x) {
        const T *x = logits + i * r.E;
        float *p = r.prob + i * r.E;

        for (int e = 0; e < r.E; e++)
            p[e] = (float)(1 / (1 + exp(-(double)to_float(x[e]))));
        choose(
            r, [&](int e) { return p[e] + r.bias[e]; }, p, r.expert + i * r.k,
            r.gate + i * r.k, begin_sum(p, r.E));
    }
}

/* Of gates scale p_j / S, and of a balance loss of shares of the sum A of all
 * p. */
template <typename T>
static __global__ void sigmoid_gradient_kernel(struct plait_route r,
                                               struct plait_route_gradient g)
{
    T *dlogits = (T *)g.dlogits;
    double balance = balance_of(g);

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < r.N;
         i += (size_t)gridDim.x * blockDim.x) {
        const float *p = r.prob + i * r.E;
        const float *l = g.load + i / r.run % r.sequences * r.E;
        struct gates gates = gates_of(r, g, i, p, PLAIT_ROUTE_TINY);
        double A = PLAIT_ROUTE_TINY, dot = 0;

        for (int e = 0; e < r.E; e++) {
            A += p[e];
            dot += balance != 0 ? balance * l[e] * p[e] : 0;
        }
        for (int e = 0; e < r.E; e++) {
            double dp = balance != 0 ? (balance * l[e] - dot / A) / A : 0;

            dp = add_gates(dp, r, g, gates, i, e);
            dlogits[i * r.E + e] =
                from_float<T>((float)(p[e] * (1 - (double)p[e]) * dp));
        }
    }
}

int cuda_sigmoid_route(struct plait_queue *q, const struct plait_route *r,
                       const void *logits)
{
    return cuda_launch(q, "route_forward", r->type, r->N, [&](auto zero) {
        typedef decltype(zero) T;

        sigmoid_route_kernel<<<grid_for(q, r->N, threads), threads, 0,
                               q->stream>>>(*r, (const T *)logits);
    });
}

int cuda_sigmoid_gradient(struct plait_queue *q, const struct plait_route *r,
                          const struct plait_route_gradient *g)
{
    return cuda_launch(q, "route_backward", r->type, r->N, [&](auto zero) {
        typedef decltype(zero) T;

        sigmoid_gradient_kernel<T>
            <<<grid_for(q, r->N, threads), threads, 0, q->stream>>>(*r, *g);
    });
}

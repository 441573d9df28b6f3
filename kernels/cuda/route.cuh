/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_ROUTE_CUH
#define PLAIT_KERNELS_CUDA_ROUTE_CUH

#include "kernels/route.h"

/* What softmax and sigmoids share: one thread per token, a few numbers each. */

/* Whether expert e is among the first n of a token. */
static __device__ inline bool chosen(const int32_t *expert, int n, int e)
{
    for (int j = 0; j < n; j++)
        if (expert[j] == e)
            return true;
    return false;
}

/* The best of group g of n experts by `rank` or, with a bias, the sum of its
 * two best. rank(e): what expert e is chosen by. */
template <typename Rank>
static __device__ inline double rank_group(const struct plait_route &r,
                                           const Rank &rank, int g, int n)
{
    float first = -CUDART_INF_F, second = -CUDART_INF_F;

    for (int e = g * n; e < (g + 1) * n; e++) {
        float x = rank(e);

        second = fmaxf(second, fminf(first, x));
        first = fmaxf(first, x);
    }
    return r.bias != NULL ? (double)first + second : first;
}

/* A bit of each group that the token may choose from. */
template <typename Rank>
static __device__ inline uint64_t choose_groups(const struct plait_route &r,
                                                const Rank &rank)
{
    uint64_t set = 0;

    if (r.groups < 2)
        return ~(uint64_t)0;
    for (int j = 0; j < r.top_groups; j++) {
        double most = 0;
        int best = -1;

        for (int g = 0; g < r.groups; g++) {
            double x = rank_group(r, rank, g, r.E / r.groups);

            if (!(set >> g & 1) && (best < 0 || x > most)) {
                best = g;
                most = x;
            }
        }
        set |= (uint64_t)1 << best;
    }
    return set;
}

/* Sets the token's experts and gates. sum: what the scores of the chosen are
 * added to. */
template <typename Rank>
static __device__ inline void choose(const struct plait_route &r,
                                     const Rank &rank, const float *prob,
                                     int32_t *expert, float *gate, double sum)
{
    int n = r.groups < 2 ? r.E : r.E / r.groups;
    uint64_t groups = choose_groups(r, rank);

    for (int j = 0; j < r.k; j++) {
        float most = 0;
        int best = -1;

        for (int first = 0; first < r.E; first += n) {
            if (!((groups >> (first / n)) & 1))
                continue;
            for (int e = first; e < first + n; e++) {
                float x = rank(e);

                if ((best < 0 || x > most) && !chosen(expert, j, e)) {
                    best = e;
                    most = x;
                }
            }
        }
        expert[j] = best;
        sum += prob[best];
    }
    if (r.whole && !isnan(sum))
        sum = 1;
    for (int j = 0; j < r.k; j++)
        gate[j] = (float)((double)r.scale * prob[expert[j]] / sum);
}

/* What the balance loss is multiplied by. */
static __device__ inline double balance_of(const struct plait_route_gradient &g)
{
    return g.factor != NULL ? (double)g.balance * *g.factor : g.balance;
}

/* A token's gates are scale p_j / S with S the sum over the chosen, hence dp_j
 * = (scale dgate_j - mean) / S, mean = sum_i dgate_i gate_i; or scale p_j, with
 * an S of 1 and a mean of 0. */
struct gates {
    double S, mean;
};

/* Those of token i, of probabilities p; S begins at `sum`. */
static __device__ inline struct gates
gates_of(const struct plait_route &r, const struct plait_route_gradient &g,
         size_t i, const float *p, double sum)
{
    struct gates gates = {sum, 0};

    if (r.whole)
        return {1, 0};
    for (size_t j = i * r.k; j < (i + 1) * r.k; j++) {
        gates.S += p[r.expert[j]];
        gates.mean += (double)g.dgate[j] * r.gate[j];
    }
    return gates;
}

/* dp of expert e, and what the gates of token i add to it. */
static __device__ inline double add_gates(double dp,
                                          const struct plait_route &r,
                                          const struct plait_route_gradient &g,
                                          const struct gates &gates, size_t i,
                                          int e)
{
    for (size_t j = i * r.k; j < (i + 1) * r.k; j++)
        if (r.expert[j] == e)
            dp += ((double)r.scale * g.dgate[j] - gates.mean) / gates.S;
    return dp;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/plan/cost_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0
/* plait_cost_bucket() */
#define BUCKET_LEAST (25 * MIB)
#define BUCKET_MOST (256 * MIB)
#define BUCKET_STEP (8 * MIB)
#define LATENCY_SHARE 0.05

/* Rounds of a collective whose latency counts: NCCL's trees for many ranks,
 * rings for few. */
static double rounds(int n)
{
    double tree = 2 * ceil(log2(n)), ring = n - 1;

    return tree < ring ? tree : ring;
}

double plait_cost_allreduce(int n, double bytes, double alpha, double bandwidth)
{
    if (n < 2)
        return 0;
    return 2 * rounds(n) * alpha + 2.0 * (n - 1) / n * bytes / bandwidth;
}

static double node_bandwidth(int inside, const struct plait_gpu_type *gpu)
{
    return gpu->nic_bw * (inside < gpu->per_node ? inside : gpu->per_node);
}

static double flat_bandwidth(int inside, const struct plait_gpu_type *gpu)
{
    return fmin(gpu->link_bw, node_bandwidth(inside, gpu));
}

double plait_cost_allreduce_flat(int inside, int across, double bytes,
                                 const struct plait_gpu_type *gpu)
{
    return plait_cost_allreduce(inside * across, bytes, gpu->nic_alpha,
                                flat_bandwidth(inside, gpu));
}

double plait_cost_allreduce_hierarchical(int inside, int across, double bytes,
                                         const struct plait_gpu_type *gpu)
{
    return plait_cost_allreduce(inside, bytes, gpu->link_alpha, gpu->link_bw) +
           plait_cost_allreduce(across, bytes / inside, gpu->nic_alpha,
                                node_bandwidth(inside, gpu) / inside);
}

double plait_cost_bucket(double mib, int inside, int across,
                         const struct plait_gpu_type *gpu)
{
    int n = inside * across;
    double bytes;

    if (mib > 0)
        return mib * MIB;
    if (across < 2)
        return BUCKET_LEAST;
    bytes = (1 - LATENCY_SHARE) / LATENCY_SHARE * rounds(n) * gpu->nic_alpha *
            flat_bandwidth(inside, gpu) * n / (n - 1);
    bytes = ceil(bytes / BUCKET_STEP) * BUCKET_STEP;
    return fmin(fmax(bytes, BUCKET_LEAST), BUCKET_MOST);
}

double plait_cost_message(double bytes, double alpha, double bandwidth)
{
    return alpha + bytes / bandwidth;
}

int plait_cost_plan(const struct plait_plan_request *request,
                    const struct plait_plan *plan, struct plait_cost *cost,
                    struct plait_cost *linear, double *bound)
{
    struct plait_orders *orders = plait_orders_create(request, &plan->layout);
    int *order = malloc((size_t)plan->nnodes * sizeof(*order));
    int rc = -1;

    if (!orders || !order)
        goto out;
    for (int i = 0; i < plan->nnodes; i++)
        order[i] = i;
    if (plait_orders_cost(orders, order, linear) < 0)
        goto out;
    for (int i = 0; i < plan->nnodes; i++)
        order[plan->node_rank[i]] = i;
    if (plait_orders_cost(orders, order, cost) < 0)
        goto out;
    if (bound)
        *bound = plait_orders_bound(orders);
    rc = 0;
out:
    free(order);
    plait_orders_destroy(orders);
    return rc;
}

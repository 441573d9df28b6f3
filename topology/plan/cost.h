/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PLAN_COST_H
#define PLAIT_TOPOLOGY_PLAN_COST_H

#include "topology/job/gpu_types.h"
#include "topology/layout/layout.h"
#include "topology/plan/plan.h"
#include "topology/plan/traffic.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds of communication, by the alpha-beta model: a message of S bytes
 * takes alpha + S / beta, where alpha grows with the switch level that has
 * to be crossed and beta is what the busiest link on the way leaves for it.
 *
 * Along one axis all groups talk at once, each as a ring in rank order. So
 * an edge of the ring gets
 *     inside a node     the GPU's link (NVLink, xGMI), or the host's if the
 *                       group is larger than an island
 *     between nodes     the node's network bandwidth, divided by the edges
 *                       that leave the node
 *     through a switch  the bandwidth of the nodes below it, divided by its
 *                       oversubscription and by the edges that leave it
 * and the slowest edge sets the pace. For n ranks, in units of S / beta:
 *     all-reduce         2 (n-1)/n
 *     all-gather, reduce-scatter   (n-1)/n
 *     ring exchange      1 a step, n-1 steps
 *     message            1
 * and an all-to-all sends S/n from everyone to everyone, so that a node or
 * switch with k of the n members sees k (n-k) S/n. */
struct plait_cost {
    double axis[PLAIT_NAXES]; /* seconds per step */
    double step;              /* their sum */
};

/* What a plan costs: its own order of nodes, and Slurm's. `request` is what
 * the plan was made from. bound (may be NULL) is a time that no order of
 * these nodes can beat in this model. -1: out of memory. */
int plait_cost_plan(const struct plait_plan_request *request,
                    const struct plait_plan *plan, struct plait_cost *cost,
                    struct plait_cost *linear, double *bound);

/* One collective of n ranks over links of one kind, for estimates without a
 * plan: seconds. */
double plait_cost_allreduce(int n, double bytes, double alpha,
                            double bandwidth);
/* A sum of `bytes` over `inside` ranks on each of `across` nodes: as one group,
 * whose rings have all of their NICs (NCCL's channels),
 *     plait_cost_allreduce(inside * across, bytes, nic_alpha, B)
 *     B = min(link_bw, nic_bw * min(inside, per_node))
 * or hierarchically: reduce-scatter and all-gather in the node, between them an
 * all-reduce across nodes of each rank's share over its share of the NICs
 *     plait_cost_allreduce(inside, bytes, link_alpha, link_bw) +
 *     plait_cost_allreduce(across, bytes / inside, nic_alpha,
 *                          nic_bw * min(inside, per_node) / inside)
 * which saves rounds over the network and costs a pass inside the node. */
double plait_cost_allreduce_flat(int inside, int across, double bytes,
                                 const struct plait_gpu_type *gpu);
double plait_cost_allreduce_hierarchical(int inside, int across, double bytes,
                                         const struct plait_gpu_type *gpu);
/* Bytes of the buckets in which gradients of such a group are summed: `mib`
 * where it is above 0 (parallel.bucket_mib). Else, inside a node, 25 MiB, as in
 * PyTorch's DDP (Li et al., arXiv:2006.15704). Across nodes, the least S for
 * which latency is at most a share f = 5 % of its sum as one group: with R
 * rounds (2 R of them in plait_cost_allreduce()), n ranks and B of
 * plait_cost_allreduce_flat()
 *     R nic_alpha = f (R nic_alpha + (n-1)/n S/B)
 *     S = (1-f)/f R nic_alpha B n/(n-1)
 * rounded up to 8 MiB, and 25 to 256 MiB: larger ones leave more to sum after
 * the backward pass, and bf16 copies of two of them are kept. */
double plait_cost_bucket(double mib, int inside, int across,
                         const struct plait_gpu_type *gpu);
double plait_cost_message(double bytes, double alpha, double bandwidth);

#ifdef __cplusplus
}
#endif
#endif

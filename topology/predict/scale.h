/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_SCALE_H
#define PLAIT_TOPOLOGY_PREDICT_SCALE_H

#include "topology/job/gpu_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a step loses on many nodes, beyond the bytes and rounds of its traffic.
 *
 * Congestion and jitter of collectives. One that spans N nodes gets
 *     nic_bw / (1 + crowding log2(N / 2)), N > 2
 * of the network, since paths of many rings meet above the leaf switches and
 * each round waits for its slowest message. On LUMI all-reduces of 2.73 GB by
 * 2, 8 and 32 ranks over 16, 64 and 256 nodes moved 5.5, 5.1 and 5.0 GB/s (logs
 * of spyysalo/lumi-llm-scaling, meg-ds/experiments), which is 0.02 to 0.05. The
 * fitted rows of A100, MI250X, B200, GB200 and GB300 ask for 0.1, those of H100
 * and H200, with Llama 3's on 16,384 among them, for 0 (PLAIT_RECORDS=scale).
 * crowding is 0.05 but for Hopper, where it is 0. A site file's replaces it.
 * Where a site knows the oversubscription of its own switches (plait probe
 * measures it, leaf_gpus says where they are) these count instead.
 *
 * Spread of equal GPUs, of which a step waits for the slowest of n:
 *     0.005 sqrt(2 ln n)
 * Sinha et al., "Not All GPUs Are Created Equal" (SC22), measured 8 % between
 * the ends within a cluster.
 *
 * Slow machines. A share of 0.005 of them is slower, and one is enough:
 *     stragglers (1 - (1 - 0.005)^nodes)
 * The share is MegaScale's (arXiv 2402.15627: about 0.5 % of
 * machines), which took 10 % longer for the same work. stragglers is 0.05,
 * close to the fit, as sites replace such machines; a site file's replaces it.
 *
 * stragglers was fitted to the rows of tests/records that are marked fit, of
 * all sets (PLAIT_RECORDS=scale prints that fit: 0.07 now); the other rows were
 * predicted after it. */
#define PLAIT_SCALE_UNCROWDED 2.0

/* How many times as long a collective over so many nodes takes. */
double plait_scale_crowded(const struct plait_gpu_type *gpu, double nodes);
/* The share by which waiting for the slowest of so many GPUs lengthens a step.
 * CPUs of a node are equally fast. */
double plait_scale_waits(const struct plait_gpu_type *gpu, double gpus);

#ifdef __cplusplus
}
#endif
#endif

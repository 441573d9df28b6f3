/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_NAIVE_H
#define PLAIT_RUNTIME_PARALLEL_NAIVE_H

#include "runtime/mesh/mesh.h"

/* The sum of grad[n] over the group, on all of its ranks, through the first
 * rank: it receives each rank's gradient, adds them one by one and sends the
 * sum to each. The first rank transfers 2 (size - 1) n elements. scratch: [n],
 * on the first rank. The baseline for parallel.grad_sync. */
int plait_naive_sum(struct plait_mesh *mesh, struct plait_comm *comm,
                    float *grad, float *scratch, size_t n);

#endif

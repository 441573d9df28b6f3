/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_NAIVE_H
#define PLAIT_RUNTIME_PARALLEL_NAIVE_H

#include "runtime/mesh/mesh.h"

/* Sums grad[n] over the group through its first rank, which receives every
 * rank's gradient, adds them one by one and sends the sum to each: 2 (size - 1)
 * n elements are transferred there. scratch: [n], on the first rank only. The
 * baseline for parallel.grad_sync. */
int plait_naive_sum(struct plait_mesh *mesh, struct plait_comm *comm,
                    float *grad, float *scratch, size_t n);

#endif

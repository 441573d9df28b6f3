/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_NAIVE_H
#define PLAIT_NAIVE_H

#include "runtime/parallel/parallel.h"

/* The sum of grad[n] over the group in all of its ranks, as data parallelism
 * was first done: the first rank receives everybody's, adds one after the
 * other and sends the sum back to each. It carries 2 (size - 1) n elements,
 * whatever the others do. scratch [n] of the first rank. */
int plait_naive_sum(struct plait_parallel *par, struct plait_comm *comm,
                    float *grad, float *scratch, size_t n);

#endif

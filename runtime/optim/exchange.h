/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_EXCHANGE_H
#define PLAIT_RUNTIME_OPTIM_EXCHANGE_H

#include "runtime/comm/comm.h"
#include "runtime/optim/averaging.h"
#include "topology/job/sync.h"

/* The sum of what replicas send each other when they meet, in the form of
 * sync.gradients. Numbers in fp32 are summed by an all-reduce. In bf16 and fp8
 * each replica's are rounded, to nearest, and gathered; then each rank adds up
 * all of them in fp32, in the order of the ranks, its own rounded ones too. So
 * all ranks have the same bits, and the error is that of one rounding. Each
 * number is rounded by itself, wherever a layout cuts; but what a layout rounds
 * otherwise may be sent as the next code, where it is half way between two.
 *
 * fp8 is e5m2 of 2^12 times the number: relative errors of at most 1/8 from
 * 2^-26 to 14, which is the most that is sent of a larger one; absolute errors
 * of at most 2^-29 below. A change of a weight that small is lost in fp32, too,
 * where the weight is above 2^-5. */
struct plait_exchange;

/* v: operations and queue; n is how many numbers a rank has. `dp` must outlive
 * it. NULL with ENOMEM. */
struct plait_exchange *
plait_exchange_create(const struct plait_sync_config *config,
                      struct plait_comm *dp, const struct plait_vectors *v,
                      struct plait_device *dev);
void plait_exchange_destroy(struct plait_exchange *exchange);

/* x[n] = the sum over the ranks of dp, on the queue. Collective; 0 or -1. */
int plait_exchange_sum(struct plait_exchange *exchange, float *x, size_t n);

/* The same in two halves, with a delay: x[n], at most 2^30 numbers from number
 * `at` of the vector on, is not to be touched in between. Collective; 0 or -1.
 * Where only one is sent at a time `at` may be 0 and req NULL. */
int plait_exchange_send(struct plait_exchange *exchange, float *x, size_t at,
                        size_t n, struct plait_request **req);
int plait_exchange_receive(struct plait_exchange *exchange, float *x, size_t at,
                           size_t n, struct plait_request **req);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TENSOR_H
#define PLAIT_TENSOR_H

#include <stdbool.h>

#include "runtime/comm/comm.h"

/* The two seams of a tensor-parallel block. Between them (column-parallel
 * linear, heads or activation, row-parallel linear) every rank of the group
 * works on all rows; outside of them all ranks hold equal rows, or, with
 * `sequence`, each its own 1/size of them, in rank order.
 * Entering forward and leaving backward is spread(); leaving forward and
 * entering backward is reduce(). */
struct plait_tensor_parallel {
    struct plait_comm *group;
    struct plait_queue *q;
    enum plait_dtype type;
    bool sequence;
};

/* *out = all rows of x: x itself, or with `sequence` gathered into
 * full[n]. n: elements of all rows. With req not NULL they are ready after
 * plait_comm_wait(). */
int plait_tensor_spread(const struct plait_tensor_parallel *tp, const void *x,
                        void *full, size_t n, const void **out,
                        struct plait_request **req);

/* *out = the sum of part[n] over the group: in place, or with `sequence`
 * this rank's rows of it in local[n / size]. With req not NULL the sum is
 * ready after plait_comm_wait(). part == local is fine without `sequence`,
 * and in a group of one. */
int plait_tensor_reduce(const struct plait_tensor_parallel *tp, void *part,
                        void *local, size_t n, void **out,
                        struct plait_request **req);

#endif

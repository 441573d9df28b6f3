/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MESH_TENSOR_PARALLEL_H
#define PLAIT_RUNTIME_MESH_TENSOR_PARALLEL_H

#include <stdbool.h>

#include "runtime/comm/comm.h"

/* The most chunks that rows are cut into for transfers. */
enum { PLAIT_TP_CHUNKS_MOST = 4 };

/* The transfers at the two ends of a tensor-parallel block. Between them
 * (column-parallel linear, heads or activation, row-parallel linear) every
 * rank of the group works on all rows; outside of them all ranks hold equal
 * rows, or, with `sequence`, each its own 1/size of them.
 * Forward begins and backward ends with plait_tp_all_gather(); forward ends
 * and backward begins with plait_tp_reduce().
 *
 * The rows are cut into `chunks` equal runs that are transferred one by one,
 * so that one is under way while the matrix product works on another. With
 * `sequence` a rank's rows are its 1/size of each chunk, in rank order: a
 * chunk is gathered from and scattered to contiguous memory. All ranks and
 * pipeline stages must cut alike. */
struct plait_tensor_parallel {
    struct plait_comm *group;
    struct plait_queue *q;
    enum plait_dtype type;
    bool sequence;
    int chunks; /* at most PLAIT_TP_CHUNKS_MOST; divides the rows, and with
                   `sequence` into equal parts for the ranks */
};

/* *out = all rows of x: x itself, or with `sequence` an all-gather into
 * full[n]. n: elements of all rows. With req not NULL chunk i of them is
 * ready after plait_comm_wait(&req[i]); all of req is set. */
int plait_tp_all_gather(const struct plait_tensor_parallel *tp, const void *x,
                        void *full, size_t n, const void **out,
                        struct plait_request *req[PLAIT_TP_CHUNKS_MOST]);

/* *out = the sum of part[n] over the group: an all-reduce in place, or with
 * `sequence` a reduce-scatter of this rank's rows into local[n / size]. part ==
 * local is fine without `sequence`, and in a group of one. */
int plait_tp_reduce(const struct plait_tensor_parallel *tp, void *part,
                    void *local, size_t n, void **out);

/* The same for chunk i alone, once its rows are in `part`; complete after
 * plait_comm_wait(req). */
int plait_tp_reduce_chunk(const struct plait_tensor_parallel *tp, int i,
                          void *part, void *local, size_t n,
                          struct plait_request **req);
/* Where plait_tp_reduce_chunk() leaves the sum. */
void *plait_tp_reduce_output(const struct plait_tensor_parallel *tp, void *part,
                             void *local);

/* Wait for all chunks' requests. */
int plait_tp_wait(const struct plait_tensor_parallel *tp,
                  struct plait_request *req[PLAIT_TP_CHUNKS_MOST]);

#endif

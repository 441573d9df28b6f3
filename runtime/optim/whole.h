/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_WHOLE_H
#define PLAIT_RUNTIME_OPTIM_WHOLE_H

#include <stddef.h>

#include "runtime/model/model.h"

/* Whole matrices, for optimizers that cannot work on parts of them.
 *
 * The ranks of a pipeline stage hold pieces of its matrices: with tp a shard,
 * with ZeRO a run of a shard's elements, as replicas equal pieces. Every matrix
 * has one owner among the ranks that hold a piece of it, chosen such that the
 * sums of what each owner's matrices cost (plait_optim_matrix_cost) are about
 * equal. The owner receives the elements that it lacks, each from one rank,
 * replaces the matrix by a result of the same shape, and sends every holder its
 * piece of the result. All ranks therefore have the same bits, replicas too.
 *
 * Traffic, in elements of the transferred type: for a matrix of S elements of
 * which the owner holds h and all holders together H, S - h elements are sent
 * to the owner and H - h are sent back. With tp t and dp * cp d that is
 *     ZeRO          h = S / (t d), H = S      2 S (1 - 1 / (t d)) in all
 *     without ZeRO  h = S / t,     H = S d    S (1 - 1 / t) + S (d - 1 / t)
 * so that dp alone sends S (d - 1), as the all-gather of ZeRO 1 does. A single
 * rank transfers nothing.
 *
 * Memory: the largest matrix that this rank owns, twice if tp splits columns;
 * if the type is not fp32, also this rank's pieces of one matrix of each other
 * owner. */
struct plait_whole;

/* A run of elements of this rank's shard of a matrix, without padding. */
struct plait_whole_piece {
    const struct plait_tensor *tensor;
    size_t first, count; /* within the tensor's local elements; count > 0 */
    float *data;         /* [count] fp32, device memory */
    size_t together;     /* rows that compute() takes as a matrix: what it costs
                          * follows from them; 0: all */
};

/* Takes this rank's `pieces`: at most one of each tensor; pieces of a shard on
 * two ranks are equal or do not overlap; n may be 0. They are copied, the
 * tensors must outlive it. `type`: of transfers and computation. Collective
 * over the pipeline stage; the first call for a mesh also over the world. NULL
 * on all ranks with errno: ENOMEM, or EINVAL if pieces of a matrix are
 * missing. */
struct plait_whole *plait_whole_create(struct plait_mesh *mesh,
                                       enum plait_dtype type,
                                       const struct plait_whole_piece *pieces,
                                       int n, struct plait_error *err);
void plait_whole_destroy(struct plait_whole *whole);

/* The matrices that this rank owns, as indices of its pieces, in the order of
 * computation. Returns how many. */
int plait_whole_owned(const struct plait_whole *whole, const int **pieces);

/* Calls compute() for every matrix that this rank owns: `piece` is the index of
 * this rank's piece of it; compute() replaces matrix [rows, cols] of `type`, in
 * device memory, by the result, on mesh->q. Afterwards all pieces hold results.
 * Collective over the pipeline stage. If compute() fails on a rank, it is not
 * called again there, and all ranks of the stage return -1 (ECANCELED on the
 * others); also -1 if a transfer fails. The pieces are then unusable. */
int plait_whole_run(struct plait_whole *whole,
                    int (*compute)(void *arg, int piece, void *matrix),
                    void *arg);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_WHOLE_H
#define PLAIT_RUNTIME_OPTIM_WHOLE_H

#include <stddef.h>

#include "runtime/model/model.h"

/* Whole matrices, for optimizers that cannot work on pieces of them.
 *
 * The ranks of a pipeline stage hold pieces of its matrices: tp a shard, ZeRO
 * a run of a shard's elements, replicas equal pieces. Every matrix has one
 * owner among the ranks that hold a piece of it, chosen so that the sums of
 * rows * cols * min(rows, cols) over the matrices of each owner are about
 * equal. The owner gets the elements that it lacks, each from one rank,
 * replaces the matrix by a result of the same shape, and sends every holder
 * its piece of that. All ranks therefore have the same bits, replicas too.
 *
 * Traffic, in elements of the type that is transferred: for a matrix of S
 * elements of which the owner holds h and all holders together H, S - h come
 * to the owner and H - h leave it. With tp t and dp * cp d that is
 *     ZeRO          h = S / (t d), H = S      2 S (1 - 1 / (t d)) in all
 *     without ZeRO  h = S / t,     H = S d    S (1 - 1 / t) + S (d - 1 / t)
 * so that dp alone sends S (d - 1), as the all-gather of ZeRO 1 does. One rank
 * alone transfers nothing.
 *
 * Memory: the largest matrix that this rank owns, twice if tp splits columns;
 * where the type is not fp32, also this rank's pieces of one matrix of each
 * other owner. */
struct plait_whole;

/* A run of elements of this rank's shard of a matrix without padding. */
struct plait_whole_piece {
    const struct plait_tensor *tensor;
    size_t first, count; /* within the tensor's local elements; count > 0 */
    float *data;         /* [count] fp32, device memory */
};

/* `pieces` of this rank, at most one of each tensor, and no two ranks' pieces
 * of a shard overlap unless they are equal; n may be 0. They are copied, the
 * tensors outlive it. `type`: what is transferred and computed in. Collective
 * over the pipeline stage; the first call in a mesh also over the world. NULL
 * on all ranks with errno: ENOMEM, EINVAL if pieces of a matrix are
 * missing. */
struct plait_whole *plait_whole_create(struct plait_mesh *mesh,
                                       enum plait_dtype type,
                                       const struct plait_whole_piece *pieces,
                                       int n, struct plait_error *err);
void plait_whole_destroy(struct plait_whole *whole);

/* The matrices that this rank owns, as indices of its pieces, in the order in
 * which they are computed. Returns how many. */
int plait_whole_owned(const struct plait_whole *whole, const int **pieces);

/* Calls compute() for every matrix that this rank owns: `piece` is the index
 * of this rank's piece of it, matrix [rows, cols] of `type` in device memory
 * is replaced by the result, on mesh->q. Afterwards all pieces hold results.
 * Collective over the pipeline stage. -1 on all its ranks where compute() fails
 * on one, which does not get any more matrices (ECANCELED on the others), or
 * as a transfer says; what the pieces hold is then of no use. */
int plait_whole_run(struct plait_whole *whole,
                    int (*compute)(void *arg, int piece, void *matrix),
                    void *arg);

#endif

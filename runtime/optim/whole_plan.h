/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_WHOLE_PLAN_H
#define PLAIT_RUNTIME_OPTIM_WHOLE_PLAN_H

#include "runtime/optim/whole.h"

/* Who owns which matrix, and who sends what to whom: the same on all ranks, but
 * each rank stores only its own part. Round r handles the r-th matrix of every
 * owner, so that a rank has only one whole matrix at a time. */

/* A piece of a matrix that this rank owns. */
struct plait_whole_part {
    size_t shard_first;  /* first row or column of its shard, as in
                          * plait_tensor */
    size_t first, count; /* within the shard */
    int source;          /* rank that sends it; may be this rank */
    int holders;         /* number of ranks that get the result, including this
                          * one */
    const int *holder;   /* [holders] their ranks in mesh->stage */
};

struct plait_whole_owned {
    int nparts;
    struct plait_whole_part *part;
};

/* This rank's piece of a matrix that another rank owns. */
struct plait_whole_share {
    int piece, owner, round;
    bool source; /* this rank, as the nearest with that piece, sends it to the
                  * owner */
};

struct plait_whole_plan {
    int nowned; /* in round r: owned[r] */
    int *piece; /* [nowned] index of this rank's piece of each */
    struct plait_whole_owned *owned;
    int nshares; /* in the order of the rounds */
    struct plait_whole_share *share;
    int *holders; /* of all parts */
    struct plait_whole_part *parts;
};

/* Collective over comm, the stage's ranks. -1 with errno. */
int plait_whole_plan_make(struct plait_whole_plan *plan,
                          struct plait_comm *comm,
                          const struct plait_whole_piece *pieces, int n,
                          struct plait_error *err);
/* Frees the members. */
void plait_whole_plan_clear(struct plait_whole_plan *plan);

#endif

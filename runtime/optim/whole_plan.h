/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_WHOLE_PLAN_H
#define PLAIT_RUNTIME_OPTIM_WHOLE_PLAN_H

#include "runtime/optim/whole.h"

/* Who owns which matrix, and who sends what to whom: the same on all ranks. A
 * rank keeps what concerns itself. Round r works on the r-th matrix of every
 * owner, so that a rank has one whole matrix at a time. */

/* A piece of a matrix that this rank owns. */
struct plait_whole_part {
    size_t shard_first;  /* as in plait_tensor: where its shard begins */
    size_t first, count; /* within the shard */
    int source;          /* who sends it; may be this rank */
    int holders;         /* how many get the result, this rank included */
    const int *holder;   /* [holders] their ranks in mesh->stage */
};

struct plait_whole_owned {
    int nparts;
    struct plait_whole_part *part;
};

/* A piece of this rank of a matrix that another rank owns. */
struct plait_whole_share {
    int piece, owner, round;
    bool source; /* sends it to the owner, being the nearest with that piece */
};

struct plait_whole_plan {
    int nowned; /* in round r: owned[r] */
    int *piece; /* [nowned] this rank's piece of each */
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
/* Frees what is in it. */
void plait_whole_plan_clear(struct plait_whole_plan *plan);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_PROOF_H
#define PLAIT_RUNTIME_STUCK_PROOF_H

#include <stdint.h>

#include "runtime/stuck/judge.h"

/* Whether ranks can never go on, whatever the others do: each of them waits in
 * an operation that another of them has not entered, or ranks of a group have
 * entered different collectives under one number. A rank that is stopped, or
 * busy outside of a collective, proves nothing: others may wait for it for as
 * long as it takes.
 *
 * The records are not read at one moment. What is found counts only if it is
 * found again later with the same mark. */
struct plait_stuck_proof {
    int n;                         /* 0: nothing is proved */
    struct plait_stuck_rank *rank; /* [n] the ranks that cannot go on; where
                                      some differ, all that run: what most have
                                      entered tells who is wrong */
    uint64_t mark; /* of who waits in what; the same while nothing moves */
};

/* ranks[n] in ascending order of `rank`. Pure. -1 with errno: out of memory.
 * plait_stuck_proof_clear() in any case. */
int plait_stuck_prove(const struct plait_stuck_rank *ranks, int n,
                      struct plait_stuck_proof *proof);
void plait_stuck_proof_clear(struct plait_stuck_proof *proof);

#endif

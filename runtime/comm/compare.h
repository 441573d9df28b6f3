/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_COMPARE_H
#define PLAIT_RUNTIME_COMM_COMPARE_H

#include "runtime/comm/comm.h"

/* NCCL, and MPI's messages, do not show a rank what its peers have entered:
 * ranks that start different transfers get wrong sums, or wait for ever. So
 * each rank keeps a tally of what it has started in each group (tally.h), and
 * the ranks compare these in a sum that they make anyway. */

/* This rank's part of a number that is 0, summed over all ranks of the world,
 * if in each of the groups all ranks have started the same collectives.
 * comms[n] are this rank's; NULL: it is in no such group. */
double plait_compare_share(struct plait_comm *const *comms, int n);

/* Where that sum is not 0: fails the world, on all ranks, with what two ranks
 * have entered and where (plait_comm_difference()). Each of comms[n] is NULL on
 * all its ranks or on none. Collective. -1. */
int plait_compare_tell(struct plait_comm *world,
                       struct plait_comm *const *comms, int n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_TALLY_H
#define PLAIT_RUNTIME_COMM_TALLY_H

#include <stdbool.h>
#include <stdint.h>

/* How many collectives a rank has started in a group, and a hash of what they
 * were (call.h) and of their order: the same on all ranks of the group. */
struct plait_tally {
    uint64_t n, hash;
};

void plait_tally_add(struct plait_tally *tally, uint64_t what);
/* For work that is recorded once and then repeated. since: what was counted
 * after `before` until `now`. join: the tally as if `then` had followed
 * `first`. Pure. */
struct plait_tally plait_tally_since(struct plait_tally before,
                                     struct plait_tally now);
struct plait_tally plait_tally_join(struct plait_tally first,
                                    struct plait_tally then);

/* A number whose sum over the `size` ranks of a group, of which this is number
 * `rank`, is 0 if all have the same tally, and otherwise is not, but for one
 * case in 2^26. Whole, so that the sum over all groups of 2^16 ranks is
 * exact. */
double plait_tally_share(struct plait_tally tally, int rank, int size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_SCHEDULE_CHECK_H
#define PLAIT_TESTS_UNIT_SCHEDULE_CHECK_H

#include "topology/job/schedule.h"

/* The proof that the action lists of all ranks 0 .. n-1 are right. It knows
 * nothing of how they were made: it follows from the meaning of the actions
 * alone. The lists run to the end together: every receive has its send, in the
 * same order on both sides; no ranks wait for each other in a circle, even if
 * every group of messages blocks until each of them is matched on the peer;
 * each (chunk, micro-batch) goes forward and backward once and in order, and no
 * more than `peak` activations are held. 0, or -1 and what is wrong where. */
int check_schedule(struct plait_schedule *const *ranks, int n,
                   struct plait_error *err);

#endif

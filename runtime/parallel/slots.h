/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_SLOTS_H
#define PLAIT_RUNTIME_PARALLEL_SLOTS_H

#include <stdbool.h>

#include "topology/job/schedule.h"

/* Assigns buffers to the chunks of micro-batches, so that a schedule needs only
 * as many as are in use at once. Both functions fill of[chunks][microbatches]
 * with the buffer's number, -1 where the schedule has no such action. */

/* A tensor is in use from an action of kind `first` to one of kind `last` or
 * `other` (equal to `last` if there is no other), and gets the lowest free
 * number. *n, 0 at first, becomes how many numbers are needed: for each chunk,
 * or for all chunks together where they are `shared`. -1 with ENOMEM. */
int plait_slots_assign(const struct plait_schedule *schedule,
                       enum plait_action_kind first,
                       enum plait_action_kind last,
                       enum plait_action_kind other, bool shared, int *of,
                       int *n);

/* Actions of one kind take turns with up to `most` buffers; *n becomes how many
 * are used. The micro-batch's slot (slot_of, of `slots`) decides which: each
 * slot uses only most / slots buffers, or one where slots > most, so that few
 * combinations need a graph of their own. */
void plait_slots_follow(const struct plait_schedule *schedule,
                        enum plait_action_kind kind, const int *slot_of,
                        int slots, int most, int *of, int *n);

#endif

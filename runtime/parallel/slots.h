/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_SLOTS_H
#define PLAIT_RUNTIME_PARALLEL_SLOTS_H

#include <stdbool.h>

#include "topology/job/schedule.h"

/* Which buffer each chunk of each micro-batch uses, so that a schedule needs
 * only as many as are in use at once. Both fill of[chunks][microbatches], -1
 * where the schedule has no such action. */

/* A tensor is in use from an action of kind `first` to one of kind `last` or
 * `other` (the same where there is no other), and gets the lowest number that
 * is free. *n, 0 before, becomes the count of numbers: of each chunk, or of
 * all chunks together where they are `shared`. -1 with ENOMEM. */
int plait_slots_assign(const struct plait_schedule *schedule,
                       enum plait_action_kind first,
                       enum plait_action_kind last,
                       enum plait_action_kind other, bool shared, int *of,
                       int *n);

/* Actions of one kind use up to `most` buffers in turn, *n in all: which one
 * depends on the slot of the micro-batch (slot_of, of `slots`), so that the
 * work of a slot meets most / slots of them, or one where there are more. */
void plait_slots_follow(const struct plait_schedule *schedule,
                        enum plait_action_kind kind, const int *slot_of,
                        int slots, int most, int *of, int *n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_SLOTS_H
#define PLAIT_RUNTIME_PARALLEL_SLOTS_H

#include <stdbool.h>

#include "topology/job/schedule.h"

/* Assigns buffers to the chunks of micro-batches, so that a schedule needs only
 * as many as are in use at once. */

struct plait_slots {
    int n;   /* how many buffers */
    int *of; /* [chunks][microbatches], the caller's: the buffer's number; -1
              * where the schedule has no such action */
};

/* A tensor is in use from an action of kind `first` to one of kind `last` or
 * `other` (equal to `last` if there is no other). */
struct plait_slot_use {
    enum plait_action_kind first, last, other;
    bool shared; /* numbers are for all chunks together; otherwise for each */
};

/* A tensor gets the lowest free number. -1 with ENOMEM. */
int plait_slots_assign(const struct plait_schedule *schedule,
                       const struct plait_slot_use *use,
                       struct plait_slots *slots);

/* Actions of one kind take turns with up to `most` buffers. The micro-batch's
 * slot decides which: each slot uses only most / slots->n buffers, or one where
 * that is less, so that few combinations need a graph of their own. */
void plait_slots_follow(const struct plait_schedule *schedule,
                        enum plait_action_kind kind,
                        const struct plait_slots *slots, int most,
                        struct plait_slots *buffers);

#endif

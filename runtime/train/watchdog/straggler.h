/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_STRAGGLER_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_STRAGGLER_H

#include <stdbool.h>
#include <stdint.h>

/* Ranks that compute for longer than others with the same work. */

#define PLAIT_STRAGGLER_RATIO 1.3
#define PLAIT_STRAGGLER_STEPS 50

struct plait_rank_times {
    double min, median, max; /* of all ranks; the lower of two medians */
    int slowest;
    /* The rank that is furthest behind the others of its pipeline stage, whose
     * work is equal, and its time over their median. -1: every stage has one
     * rank. */
    int behind;
    double ratio;
};

/* seconds[n], and the stage of each rank. -1: out of memory. Pure. */
int plait_rank_times(const float *seconds, const int *stage, int n,
                     struct plait_rank_times *times);

/* The rank that is behind, and since which step. */
struct plait_straggler {
    int rank; /* -1: nobody */
    int64_t since;
    bool said;
};

/* After `step`, when the last `steps` steps were compared: whether to report
 * now that who->rank has been more than RATIO times behind for STEPS steps.
 * Once for each rank, as long as it stays so. */
bool plait_straggler_update(struct plait_straggler *who,
                            const struct plait_rank_times *times, int64_t step,
                            int steps);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_PREP_PROGRESS_H
#define PLAIT_RUNTIME_DATA_PREP_PREP_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* One line on standard error, if that is a terminal: bytes, speed, time
 * left. */
struct plait_prep_progress {
    bool shown;
    double start, last; /* seconds */
    int64_t begin, all; /* bytes */
};

/* Seconds of a monotonic clock. */

void plait_prep_progress_start(struct plait_prep_progress *p, int64_t done,
                               int64_t all);
/* Prints at most twice a second. */
void plait_prep_progress_show(struct plait_prep_progress *p, int64_t done);
void plait_prep_progress_end(struct plait_prep_progress *p);

#endif

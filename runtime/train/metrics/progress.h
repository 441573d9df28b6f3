/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_METRICS_PROGRESS_H
#define PLAIT_RUNTIME_TRAIN_METRICS_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#include "runtime/train/metrics/metrics.h"

/* One line that follows the run: live where `out` is a terminal, otherwise
 * a line every two seconds, and always for the first and the last step. */
struct plait_progress {
    FILE *out;
    int live;
    bool images;          /* count images, not tokens */
    int64_t first, steps; /* steps done before this run, and to do in all */
    double start, shown;  /* seconds of the monotonic clock */
};

void plait_progress_init(struct plait_progress *p, FILE *out, int64_t first,
                         int64_t steps, bool images);
void plait_progress_show(struct plait_progress *p,
                         const struct plait_metrics *m);
/* End the live line, so that other output starts on a new one. */
void plait_progress_end(struct plait_progress *p);

#endif

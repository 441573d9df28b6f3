/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_METRICS_DIVERGENCE_H
#define PLAIT_RUNTIME_TRAIN_METRICS_DIVERGENCE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a training diverges: for several steps the level of its loss has been
 * above the best by more than half of what it had fallen, and by more than 1.
 * The level is the median of the last losses, which single steps do not move.
 * Pure. */
#define PLAIT_DIVERGENCE_WINDOW 10

struct plait_divergence {
    int64_t seen; /* losses */
    double at[PLAIT_DIVERGENCE_WINDOW];
    double first;      /* loss */
    double best;       /* level */
    int64_t best_step; /* that it was reached after */
    double level;
    int above; /* steps in a row that the level has been too high */
    bool said;
};

/* Add the loss of a step; true once, when the training proves to diverge. */
bool plait_divergence_add(struct plait_divergence *d, int64_t step,
                          double loss);

#endif

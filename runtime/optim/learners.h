/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_LEARNERS_H
#define PLAIT_RUNTIME_OPTIM_LEARNERS_H

#include <stdbool.h>

/* How many learners a rank trains in turn (sync.learners auto): one more is
 * tried as long as it gains more than a tenth in samples per second, as
 * CROSSBOW tunes them (Koliousis et al., arXiv 1901.02244, section 4.4).
 * Pure. */

/* Zeroed for a new search. */
struct plait_learner_search {
    int tried;   /* learners of the last trial */
    int chosen;  /* the last number that gained */
    double best; /* samples per second with these */
};

/* Adds the result of the trial of tried + 1 learners, each with `batch`
 * sequences per step: `rate` samples per second; 0: the trial was not possible.
 * Returns whether to try one more: at most 64, and at most 2^24 sequences per
 * step. */
bool plait_learner_search_add(struct plait_learner_search *search, double rate,
                              int batch);

#endif

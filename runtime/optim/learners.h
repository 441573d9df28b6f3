/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_LEARNERS_H
#define PLAIT_RUNTIME_OPTIM_LEARNERS_H

#include <stdbool.h>

/* How many learners a rank trains in turn, sync.learners auto: one more as long
 * as that gains more than a tenth of the samples a second, as CROSSBOW tunes
 * them (Koliousis et al., arXiv 1901.02244, section 4.4). Pure. */

/* Zeroed: a new search. */
struct plait_learner_search {
    int tried;   /* learners of the last trial */
    int chosen;  /* of those that gained */
    double best; /* their samples a second */
};

/* The trial of tried + 1 learners, each of `batch` sequences a step, made
 * `rate` samples a second; 0: it could not be made. Returns whether to try one
 * more: at most 64, and no step of more than 2^24 sequences. */
bool plait_learner_search_add(struct plait_learner_search *search, double rate,
                              int batch);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/optim/learners.h"

#include <stdint.h>

#define GAIN 1.1
#define LEARNERS_MOST 64
#define BATCH_MOST (1 << 24)

bool plait_learner_search_add(struct plait_learner_search *s, double rate,
                              int batch)
{
    s->tried++;
    if (s->chosen > 0 && !(rate > GAIN * s->best))
        return false;
    s->chosen = s->tried;
    s->best = rate;
    return s->tried < LEARNERS_MOST &&
           (int64_t)batch * (s->tried + 1) <= BATCH_MOST;
}

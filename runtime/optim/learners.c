/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/optim/learners.h"

#include <stdint.h>

#define GAIN 1.1
#define MOST_LEARNERS 64
#define MOST_BATCH (1 << 24)

bool plait_learner_search_add(struct plait_learner_search *s, double rate,
                              int batch)
{
    s->tried++;
    if (s->chosen > 0 && !(rate > GAIN * s->best))
        return false;
    s->chosen = s->tried;
    s->best = rate;
    return s->tried < MOST_LEARNERS &&
           (int64_t)batch * (s->tried + 1) <= MOST_BATCH;
}

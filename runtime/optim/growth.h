/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_GROWTH_H
#define PLAIT_RUNTIME_OPTIM_GROWTH_H

#include <stdint.h>

#include "topology/job/job_config.h"

/* The global batch of each step, batch.growth: growing it where the rate would
 * fall (Smith et al., arXiv 1711.00489), or ramping it up at the start. The
 * rate follows the batch only where lr.base_batch is given. Pure. */

/* The state of `growth: auto`; zeroed: a new run. */
struct plait_growth {
    int batch;    /* sequences; 0: train.global_batch */
    int64_t held; /* steps of this batch */
};

/* Sequences of step `step`, from 0: by the list of pairs, train.global_batch
 * until the first; or with auto growth->batch. */
int plait_growth_batch(const struct plait_growth *growth,
                       const struct plait_job_config *config, int64_t step);

/* After a step, with auto: a batch that was held for 50 steps is doubled while
 * twice of it is not above the noise scale nor batch.max, or halved while half
 * of it is not below the noise scale nor batch.min, and a multiple of
 * `unit`. */
void plait_growth_follow(struct plait_growth *growth,
                         const struct plait_job_config *config, int unit,
                         double noise_scale);

/* The largest batch that the run may come to. */
int plait_growth_most(const struct plait_job_config *config);

#endif

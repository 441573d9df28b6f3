/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_GROWTH_H
#define PLAIT_RUNTIME_OPTIM_GROWTH_H

#include <stdint.h>

#include "topology/job/job_config.h"

/* The global batch of each step (batch.growth): it can grow where the learning
 * rate would fall (Smith et al., arXiv 1711.00489), or ramp up at the start.
 * The rate follows the batch only with lr.base_batch. Pure. */

/* The state of `growth: auto`; zeroed for a new run. */
struct plait_growth {
    int batch;    /* sequences; 0: train.global_batch */
    int64_t held; /* number of steps with this batch */
};

/* Sequences of step `step`, from 0: from the list of pairs, train.global_batch
 * before the first; or with auto growth->batch. */
int plait_growth_batch(const struct plait_growth *growth,
                       const struct plait_job_config *config, int64_t step);

/* What each batch must be a multiple of: a micro-batch on every data-parallel
 * rank and, where stages have several chunks, on every stage too. */
int plait_growth_unit(const struct plait_job_config *config,
                      const struct plait_layout *layout);

/* After a step, with auto. A batch that was held for 50 steps is doubled as
 * long as the double is at most the noise scale and batch.max, or halved as
 * long as the half is at least the noise scale and batch.min, and a multiple of
 * `unit` (plait_growth_unit()). */
void plait_growth_follow(struct plait_growth *growth,
                         const struct plait_job_config *config, int unit,
                         double noise_scale);

/* The largest batch that the run can reach. */
int plait_growth_most(const struct plait_job_config *config);

#endif

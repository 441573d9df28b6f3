/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PLAN_TRAFFIC_H
#define PLAIT_TOPOLOGY_PLAN_TRAFFIC_H

#include "topology/job/job_config.h"
#include "topology/job/model_size.h"
#include "topology/layout/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one rank sends along each axis in one training step:
 *   tp  all-reduces of `bytes` (or as much in reduce-scatter + all-gather)
 *   cp  ring exchanges of `bytes`, size - 1 of them a call
 *   ep  all-to-alls of `bytes`
 *   dp  all-reduces of `bytes` (gradients; or reduce-scatter + all-gather;
 *       or what replicas that train apart exchange when they meet, on average
 *       over the steps)
 *   pp  messages of `bytes` to the next stage, and as many back */
struct plait_traffic {
    double bytes[PLAIT_NAXES]; /* per rank and call */
    double calls[PLAIT_NAXES]; /* per step */
};

/* From a model and how it is trained. `layout` is resolved. */
void plait_traffic_set(struct plait_traffic *traffic,
                       const struct plait_job_config *config,
                       const struct plait_layout *layout);
/* Where no model is named: a 7-billion-parameter GPT, one sequence a
 * micro-batch, eight micro-batches per pipeline stage. */
void plait_traffic_default(struct plait_traffic *traffic,
                           const struct plait_layout *layout);

/* Micro-batches one pipeline works through in a step (at least 1). */
double plait_traffic_microbatches(const struct plait_job_config *config,
                                  const struct plait_layout *layout);

#ifdef __cplusplus
}
#endif
#endif

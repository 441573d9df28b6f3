/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_RECORDED_H
#define PLAIT_TOPOLOGY_JOB_RECORDED_H

#include "topology/job/gpu_types.h"
#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What of a step plait-train records as graphs of a GPU, as far as the job
 * tells. The runtime decides by this, the planner predicts by it. */

/* Why forward and backward cannot be recorded, whatever the device and its
 * transfers; NULL: they can. A graph cannot contain work of the host. */
const char *plait_recorded_not(const struct plait_job_config *config,
                               const struct plait_layout *layout);

struct plait_recorded {
    bool passes; /* graphs hold forward and backward */
    bool whole;  /* and the sums of gradients, hence all of a step */
};

/* Whether ZeRO 1 and 2 gather new weights while the next step's first
 * micro-batch computes, of this many (the first step's, where batch.growth adds
 * some); else the step ends with the gathers. Its passes are then queued and
 * not replayed. */
bool plait_gathers_ahead(const struct plait_job_config *config,
                         const struct plait_layout *layout,
                         const struct plait_gpu_type *gpu, int microbatches,
                         struct plait_recorded recorded);

#ifdef __cplusplus
}
#endif

#endif

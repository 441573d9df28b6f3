/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FITS_STAGES_H
#define PLAIT_TOPOLOGY_JOB_FITS_STAGES_H

#include "topology/job/job_config.h"

/* Part of fits.h: layers to the stages of a pipeline. 0, or -1 and the
 * reason. */

/* parallel.stages by itself. */
int plait_fits_stages(const struct plait_job_config *config,
                      struct plait_error *err);
/* In that layout; of models other than image models. */
int plait_fits_stages_layout(const struct plait_job_config *config,
                             const struct plait_layout *layout,
                             struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FITS_STAGES_H
#define PLAIT_TOPOLOGY_JOB_FITS_STAGES_H

#include "topology/job/job_config.h"

/* The part of fits.h for the layers of pipeline stages. 0, or -1 and the
 * reason. */

/* parallel.stages by itself. */
int plait_fits_stages(const struct plait_job_config *config,
                      struct plait_error *err);
/* parallel.stages in this layout; not for image models. */
int plait_fits_stages_layout(const struct plait_job_config *config,
                             const struct plait_layout *layout,
                             struct plait_error *err);

#endif

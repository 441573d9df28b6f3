/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FITS_IMAGE_H
#define PLAIT_TOPOLOGY_JOB_FITS_IMAGE_H

#include "topology/job/job_config.h"

/* The part of fits.h that is about image models. Both -1 with EINVAL and a
 * sentence. */

/* The keys among each other. */
int plait_fits_image(const struct plait_job_config *config,
                     struct plait_error *err);
/* The model on a layout. */
int plait_fits_image_layout(const struct plait_job_config *config,
                            const struct plait_layout *layout,
                            struct plait_error *err);

#endif

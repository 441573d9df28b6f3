/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FITS_IMAGE_H
#define PLAIT_TOPOLOGY_JOB_FITS_IMAGE_H

#include "topology/job/job_config.h"

/* The part of fits.h for image models. Both return 0, or -1 with EINVAL and the
 * reason in err. */

/* The keys of an image model go together. */
int plait_fits_image(const struct plait_job_config *config,
                     struct plait_error *err);
/* The model can be trained in the layout. */
int plait_fits_image_layout(const struct plait_job_config *config,
                            const struct plait_layout *layout,
                            struct plait_error *err);

#endif

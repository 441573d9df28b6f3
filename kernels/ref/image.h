/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_REF_IMAGE_H
#define PLAIT_KERNELS_REF_IMAGE_H

#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/image.h"

/* The reference table of image ops; sums in double. */

extern const struct plait_image_ops ref_image_ops;

int ref_conv_forward(struct plait_queue *q, const struct plait_conv *c,
                     const struct plait_conv_arrays *a);
int ref_conv_backward_input(struct plait_queue *q, const struct plait_conv *c,
                            const struct plait_conv_arrays *a);
int ref_conv_backward_weight(struct plait_queue *q, const struct plait_conv *c,
                             const struct plait_conv_arrays *a);
int ref_maxpool_forward(struct plait_queue *q, const struct plait_conv *c,
                        const struct plait_conv_arrays *a);
int ref_maxpool_backward(struct plait_queue *q, const struct plait_conv *c,
                         const struct plait_conv_arrays *a);

/* These handle few numbers per image, so that cpu/ uses them too. */
int ref_batchnorm_join(struct plait_queue *q,
                       const struct plait_batchnorm_join *j);
int ref_batchnorm_fold(struct plait_queue *q,
                       const struct plait_batchnorm_fold *f);
int ref_class_loss(struct plait_queue *q, const struct plait_class_loss *l);

#endif

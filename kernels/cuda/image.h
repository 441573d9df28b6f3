/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_IMAGE_H
#define PLAIT_KERNELS_CUDA_IMAGE_H

#include "kernels/cuda/cuda.h"
#include "kernels/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* patches [plait_conv_rows(), plait_conv_patch()] of the images, 0 where they
 * reach beyond; and the other way, the sum of all patches that a place is in.
 */
void cuda_im2col(struct plait_queue *q, const struct plait_conv *c,
                 float *patches, const float *inp);
void cuda_col2im(struct plait_queue *q, const struct plait_conv *c, float *dinp,
                 const float *patches);

/* Each enters its subject into the image table. */
void cuda_batchnorm_ops(struct plait_image_ops *ops);
void cuda_pool_ops(struct plait_image_ops *ops);

#ifdef __cplusplus
}
#endif
#endif

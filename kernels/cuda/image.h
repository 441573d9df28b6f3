/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_IMAGE_H
#define PLAIT_KERNELS_CUDA_IMAGE_H

#include "kernels/cuda/cuda.h"
#include "kernels/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* patches [plait_conv_rows(), plait_conv_patch()] of the images, 0 outside
 * them; and the reverse, the sum of all patches' elements for each pixel. */
void cuda_im2col(struct plait_queue *q, const struct plait_conv *c,
                 float *patches, const float *inp);
void cuda_col2im(struct plait_queue *q, const struct plait_conv *c, float *dinp,
                 const float *patches);

/* A convolution or one of its gradients with cuDNN, if PLAIT_CONVOLUTION leaves
 * them to it. 1: done; 0: cuDNN does not compute this; -1: the queue has
 * failed. */
enum cuda_conv_pass { CUDA_CONV_FORWARD, CUDA_CONV_INPUT, CUDA_CONV_WEIGHT };
int cuda_cudnn_conv(struct plait_queue *q, enum cuda_conv_pass pass,
                    const struct plait_conv *c,
                    const struct plait_conv_arrays *a);

/* Each enters its ops in the image table. */
void cuda_batchnorm_ops(struct plait_image_ops *ops);
void cuda_pool_ops(struct plait_image_ops *ops);

#ifdef __cplusplus
}
#endif
#endif

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

/* A convolution and its gradients by cuDNN, where PLAIT_CONVOLUTION leaves them
 * to it. The image, the weight and the result, or the gradients of them, of
 * which one is written, or the weight's added to. 1: done; 0: not cuDNN's; -1:
 * the queue has failed. */
enum cuda_conv_pass { CUDA_CONV_FORWARD, CUDA_CONV_INPUT, CUDA_CONV_WEIGHT };
int cuda_cudnn_conv(struct plait_queue *q, enum cuda_conv_pass pass,
                    const struct plait_conv *c, const float *image,
                    const float *weight, const float *result, int accumulate);

/* Each enters its subject into the image table. */
void cuda_batchnorm_ops(struct plait_image_ops *ops);
void cuda_pool_ops(struct plait_image_ops *ops);

#ifdef __cplusplus
}
#endif
#endif

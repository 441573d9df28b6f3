/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_REF_IMAGE_H
#define PLAIT_KERNELS_REF_IMAGE_H

#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/image.h"

/* The reference table of image ops; sums in double. */

extern const struct plait_image_ops ref_image_ops;

int ref_conv_forward(struct plait_queue *q, const struct plait_conv *c,
                     float *out, const float *inp, const float *w);
int ref_conv_backward_input(struct plait_queue *q, const struct plait_conv *c,
                            float *dinp, const float *dout, const float *w);
int ref_conv_backward_weight(struct plait_queue *q, const struct plait_conv *c,
                             float *dw, const float *dout, const float *inp,
                             int accumulate);
int ref_maxpool_forward(struct plait_queue *q, const struct plait_conv *c,
                        float *out, const float *x);
int ref_maxpool_backward(struct plait_queue *q, const struct plait_conv *c,
                         float *dx, const float *dout, const float *x);

/* These handle few numbers per image, so that cpu/ uses them too. */
int ref_batchnorm_join(struct plait_queue *q, float *stats, const float *each,
                       size_t n, size_t C);
int ref_batchnorm_fold(struct plait_queue *q, float *delta,
                       const float *running, const float *stats, size_t groups,
                       size_t C, float weight, float keep, float unbias);
int ref_class_loss(struct plait_queue *q, const struct plait_class_loss *l,
                   double *sums, float *logits, const int32_t *labels, size_t N,
                   size_t classes);

#endif

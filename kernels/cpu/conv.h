/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_CONV_H
#define PLAIT_KERNELS_CPU_CONV_H

#include "kernels/cpu/cpu.h"
#include "kernels/ref/image.h"

/* Convolutions with oneDNN; see struct plait_image_ops. */

/* The compiled convolutions of a queue, each created when its shape first
 * occurs. */
struct cpu_convs;
void cpu_convs_destroy(struct cpu_convs *convs);

int cpu_conv_forward(struct plait_queue *q, const struct plait_conv *c,
                     const struct plait_conv_arrays *a);
int cpu_conv_backward_input(struct plait_queue *q, const struct plait_conv *c,
                            const struct plait_conv_arrays *a);
int cpu_conv_backward_weight(struct plait_queue *q, const struct plait_conv *c,
                             const struct plait_conv_arrays *a);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_PEAK_H
#define PLAIT_RUNTIME_TRAIN_PEAK_H

#include "runtime/mesh/mesh.h"

/* Floating-point operations a second that all ranks together reach in a
 * matrix product of `type`: what MFU is measured against. Collective; before
 * there is a trainer, so that its buffers do not add to the run's peak
 * memory. -1: some rank could not multiply. */
int plait_peak_measure(struct plait_mesh *mesh, enum plait_dtype type,
                       double *flops);

#endif

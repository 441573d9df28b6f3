/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_PEAK_H
#define PLAIT_RUNTIME_TRAIN_PEAK_H

#include "runtime/mesh/mesh.h"

/* The most rounds of a measurement. */
enum { PLAIT_PEAK_ROUNDS = 5 };

/* Floating-point operations a second that all ranks together reach in a
 * matrix product of `type`, the best of 1 to PLAIT_PEAK_ROUNDS rounds, the same
 * number on all: what MFU is measured against. Collective; before there is a
 * trainer, so that its buffers do not add to the run's peak memory. -1: some
 * rank could not multiply. */
int plait_peak_measure(struct plait_mesh *mesh, enum plait_dtype type,
                       int rounds, double *flops);

#endif

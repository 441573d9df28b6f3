/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_NORMS_H
#define PLAIT_RUNTIME_OPTIM_NORMS_H

#include <stdbool.h>

#include "runtime/comm/comm.h"
#include "runtime/optim/optim.h"

/* Sums over whole tensors, from sums over each rank's slices. Tensors are
 * identified by their names in the whole model, so that a tied embedding on
 * both pipeline ends is one tensor, and so is an expert wherever it is. */
struct plait_tensor_sums;

enum { PLAIT_SUMS_PER_TENSOR = 2 };

/* counts[nslices]: whether this rank's slice enters the sum; false for a copy
 * of one that does. Collective over `world`, which must outlive it; fails on
 * all ranks together. */
struct plait_tensor_sums *plait_tensor_sums_create(
    struct plait_comm *world, const struct plait_optim_slice *slices,
    const bool *counts, int nslices, struct plait_error *err);
void plait_tensor_sums_destroy(struct plait_tensor_sums *sums);

/* Replaces sums[nslices][2] over this rank's slices by those over the slices'
 * whole tensors, with the same bits on all ranks. Collective: one all-reduce of
 * 16 bytes per tensor of the model. */
int plait_tensor_sums_reduce(struct plait_tensor_sums *s, double *sums);

#endif

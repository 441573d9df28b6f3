/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_OPTIM_H
#define PLAIT_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/model/model.h"

/* A run of elements of one tensor that this rank owns the optimizer state
 * of: all of the local shard without ZeRO, a part of it with. */
struct plait_optim_slice {
    const struct plait_tensor *tensor;
    size_t first;  /* within the tensor's local elements */
    size_t count;
    float *master; /* device, fp32 */
    float *m, *v;
};

/* Owns master weights and optimizer state; one vector per region or, under
 * ZeRO, per region shard. */
struct plait_optim;

struct plait_optim *plait_optim_create(struct plait_model *model,
                                       struct plait_error *err);
void plait_optim_destroy(struct plait_optim *optim);

/* The slices, in tensor order: checkpoints read and write through them. */
int plait_optim_slices(const struct plait_optim *optim,
                       const struct plait_optim_slice **slices);

/* After master weights were written from outside (init, checkpoint): make
 * the model's weights follow, gathering where they are sharded. */
int plait_optim_refresh(struct plait_optim *optim, struct plait_error *err);

/* Learning rate of step `step` (from 0). Pure. */
double plait_lr(const struct plait_lr_config *lr, double peak, int64_t step,
                int64_t steps);

#endif

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
    size_t first; /* within the tensor's local elements */
    size_t count;
    float *master; /* fp32, see plait_optim_read() */
    float *m, *v;
};

/* Owns weights, gradients, master weights and optimizer state, one shard
 * per region (runtime/parallel/shard.h). */
struct plait_optim;
struct plait_shards;

struct plait_optim *plait_optim_create(struct plait_model *model,
                                       struct plait_error *err);
void plait_optim_destroy(struct plait_optim *optim);

/* The slices, in tensor order: checkpoints read and write through them. */
int plait_optim_slices(const struct plait_optim *optim,
                       const struct plait_optim_slice **slices);

/* Copy fp32 of a slice's master, m or v to and from plain memory, wherever
 * they live. */
int plait_optim_read(const struct plait_optim *optim, void *to,
                     const void *state, size_t bytes);
int plait_optim_write(const struct plait_optim *optim, void *state,
                      const void *from, size_t bytes);

/* After master weights were written from outside (init, checkpoint): make
 * the model's weights follow, gathering where they are sharded. */
int plait_optim_refresh(struct plait_optim *optim, struct plait_error *err);

/* The model's initial weights, a function of seed alone; moments 0. */
int plait_optim_init(struct plait_optim *optim, uint64_t seed,
                     struct plait_error *err);

struct plait_shards *plait_optim_shards(struct plait_optim *optim);

/* This rank's share of the sum of squares of all reduced gradients: summed
 * over the world, each element of the model is in it once, whatever its
 * replicas and whether tied. Waits for the queue. */
int plait_optim_sum_squares(struct plait_optim *optim, double *sum);

/* One step over all slices, gradients multiplied by grad_scale (NaN: the
 * step is skipped), and weights gathered where ZeRO has sharded them. `step`
 * counts from 1. */
int plait_optim_step(struct plait_optim *optim, double lr, float grad_scale,
                     int64_t step);

/* fp16 has few exponents: the loss is multiplied by `scale`, so that small
 * gradients do not vanish, and a step whose gradients overflow is skipped on
 * all ranks together. */
struct plait_loss_scale {
    bool dynamic; /* fp16; otherwise scale stays 1 */
    double scale;
    int64_t clean;   /* steps since the last change */
    int64_t skipped; /* steps in all */
};

void plait_loss_scale_init(struct plait_loss_scale *s,
                           const struct plait_train_config *config);
/* After a step, whose gradients were finite or not. Pure. */
void plait_loss_scale_update(struct plait_loss_scale *s, bool overflow);

/* What gradients are multiplied by: min(1, clip / norm) / loss_scale; clip
 * 0: no clipping; NaN where the norm is not finite. Pure. */
float plait_clip(double norm, double clip, double loss_scale);

/* The peak for a global batch of `batch` sequences, where `rate` is right for
 * lr->base_batch: times their ratio (Goyal et al., arXiv 1706.02677) or its
 * root (You et al., arXiv 1904.00962). Pure. */
double plait_lr_peak(const struct plait_lr_config *lr, double rate, int batch);

/* Learning rate of step `step` (from 0): peak * (step + 1) / warmup while
 * warming up, then from the peak down to min * peak at `steps`. Pure. */
double plait_lr(const struct plait_lr_config *lr, double peak, int64_t step,
                int64_t steps);

#endif

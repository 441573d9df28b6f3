/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_INFERENCE_H
#define PLAIT_RUNTIME_TRAIN_INFERENCE_H

#include "runtime/parallel/pipeline.h"
#include "runtime/parallel/shard.h"

/* A model that only computes forward: weights, but no gradients and no
 * optimizer state. It computes the same as the configuration's model, without
 * what only training needs: nothing is kept for backward, the layers of a
 * pipeline rank are contiguous, and rows are not divided over the tp group. */
struct plait_inference;

/* Weights are uninitialised: plait_checkpoint_start() or plait_resume() loads
 * them. `config` and `mesh` outlive it. Local: the caller turns a failure into
 * one of all ranks. NULL with errno. */
struct plait_inference *
plait_inference_create(const struct plait_job_config *config,
                       struct plait_mesh *mesh, struct plait_error *err);
void plait_inference_destroy(struct plait_inference *inference);

struct plait_model *plait_inference_model(struct plait_inference *inference);
struct plait_shards *plait_inference_shards(struct plait_inference *inference);
/* The pipeline for micro-batches of one sequence. The first call makes it, and
 * replaces what a decoder has reserved. Local; NULL with errno. */
struct plait_pipeline *
plait_inference_pipeline(struct plait_inference *inference,
                         struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_INFERENCE_H
#define PLAIT_RUNTIME_TRAIN_INFERENCE_H

#include "runtime/parallel/pipeline.h"
#include "runtime/parallel/shard.h"

/* A model that only computes forward: weights, but no gradients and no
 * optimizer state. It computes what the configuration's does, without what
 * serves training alone: nothing is kept for a backward, each pipeline rank's
 * layers are neighbours, and no rows are spread over the tp group. */
struct plait_inference;

/* Weights are uninitialised: plait_checkpoint_start() or plait_resume() loads
 * them. `config` and `mesh` outlive it. Local: the caller makes it a failure of
 * all ranks. NULL with errno. */
struct plait_inference *
plait_inference_create(const struct plait_job_config *config,
                       struct plait_mesh *mesh, struct plait_error *err);
void plait_inference_destroy(struct plait_inference *inference);

struct plait_model *plait_inference_model(struct plait_inference *inference);
struct plait_shards *plait_inference_shards(struct plait_inference *inference);
/* Of micro-batches of one sequence; made by the first call, in place of what a
 * decoder has reserved. Local; NULL with errno. */
struct plait_pipeline *
plait_inference_pipeline(struct plait_inference *inference,
                         struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_INFERENCE_H
#define PLAIT_RUNTIME_TRAIN_INFERENCE_H

#include "runtime/parallel/pipeline.h"
#include "runtime/parallel/shard.h"

/* A model that only computes forward: weights, and the activations of one
 * sequence, but no gradients and no optimizer state. */
struct plait_inference;

/* Weights are uninitialised: plait_resume() loads them. `config` and `mesh`
 * outlive it. Local: the caller makes it a failure of all ranks. NULL with
 * errno. */
struct plait_inference *
plait_inference_create(const struct plait_job_config *config,
                       struct plait_mesh *mesh, struct plait_error *err);
void plait_inference_destroy(struct plait_inference *inference);

struct plait_shards *plait_inference_shards(struct plait_inference *inference);
/* Of micro-batches of one sequence. */
struct plait_pipeline *
plait_inference_pipeline(struct plait_inference *inference);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_PIPELINE_H
#define PLAIT_RUNTIME_PARALLEL_PIPELINE_H

#include "runtime/model/model.h"

/* Runs the action lists of topology/job/schedule.h: one interpreter for every
 * schedule. With one stage it is plain gradient accumulation. */
struct plait_pipeline;

/* For steps of `microbatches` micro-batches of `micro_batch` sequences.
 * Reserves the model's activations and the buffers between the stages. */
struct plait_pipeline *plait_pipeline_create(struct plait_model *model,
                                             int microbatches, int micro_batch,
                                             struct plait_error *err);
void plait_pipeline_destroy(struct plait_pipeline *pipe);

/* Runs forward and backward of all micro-batches, batch[microbatches]. *loss
 * (device): the last stage adds the sum of the token losses to it. Collective
 * over the tp-pp group. */
int plait_pipeline_train(struct plait_pipeline *pipe,
                         const struct plait_batch *batch, double *loss);
/* Runs forward only, of any number of micro-batches, batch[n]. */
int plait_pipeline_eval(struct plait_pipeline *pipe,
                        const struct plait_batch *batch, int n, double *loss);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_SMALL_BATCH_H
#define PLAIT_RUNTIME_PARALLEL_SMALL_BATCH_H

#include "runtime/model/model.h"

/* Norms of the gradients of parts of a step's batch, from which the gradient
 * noise scale is measured (runtime/optim/noise_scale.h). Only gradients that
 * exist anyway are used, so a norm costs one read of them:
 *
 *   dp > 1          each rank's gradient, before it is summed over dp
 *   dp 1            that of the first micro-batch, before others are added
 *   ZeRO 2 and 3    that of each micro-batch on each rank */
struct plait_small_batch {
    int sequences; /* of one part; 0: no part can be measured */
    int count;     /* parts measured, on all ranks together */
};

/* Which parts of a step of `batch` sequences, in `microbatches` per rank, are
 * measured. None where replicas train apart (sync.mode), and none where no rank
 * ever has the whole gradient of a part:
 *
 * - sync batch norm: a sample's gradient depends on the samples of all ranks.
 *   Of other batch norms parts are independent, as a micro-batch has statistics
 *   of its own; the noise is then that of micro-batches of this size.
 * - context parallelism: a rank has parts of sequences.
 * - expert parallelism: experts have gradients of other ranks' tokens.
 * - tied embeddings with pp > 1: first and last stage have one summand each.
 *
 * Where single micro-batches are measured (ZeRO 2 and 3, dp 1), also none in
 * the schedules gpipe and zb-h1, which have gradients of several micro-batches
 * under way at once, and, below ZeRO 2, with experts, sequence parallelism,
 * qk_norm or mla with tp, or tp above kv_heads, which complete gradients after
 * the last micro-batch alone.
 *
 * Then *why, if not NULL, becomes the reason; else it is untouched. Pure. */
struct plait_small_batch
plait_small_batch_choose(const struct plait_job_config *config,
                         const struct plait_layout *layout, int batch,
                         int microbatches, const char **why);

/* The sum of squares of all gradients added in a step. */
struct plait_small_norms;

/* NULL: out of memory. */
struct plait_small_norms *plait_small_norms_create(struct plait_model *model);
void plait_small_norms_destroy(struct plait_small_norms *norms);

/* Begins a step of so many micro-batches on this rank. */
int plait_small_norms_begin(struct plait_small_norms *norms, int microbatches);
/* Adds region i's gradient of one part, [count] as region->grad. Tensors of
 * which tp ranks have equal copies count once. Does nothing where no parts are
 * measured. */
int plait_small_norms_add(struct plait_small_norms *norms, int i,
                          const float *grad);
/* For ZeRO 0 and 1: region->grad now has the sum of this many micro-batches. If
 * these are a part of the batch, the square of its norm is added. */
int plait_small_norms_reach(struct plait_small_norms *norms, int i,
                            int microbatches);
/* Returns the parts of the step and the sum. Waits for the queue. */
int plait_small_norms_read(struct plait_small_norms *norms,
                           struct plait_small_batch *small, double *sum);
/* The same, but the queue copies the sum to pinned memory. */
int plait_small_norms_queue(struct plait_small_norms *norms,
                            struct plait_small_batch *small, double *pinned);

#endif

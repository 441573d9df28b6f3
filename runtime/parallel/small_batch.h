/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_SMALL_BATCH_H
#define PLAIT_RUNTIME_PARALLEL_SMALL_BATCH_H

#include "runtime/model/model.h"

/* Norms of gradients of parts of a step's batch, for the meter of the gradient
 * noise scale (runtime/optim/noise_scale.h). They are taken where such
 * gradients are anyway, and cost one read of them:
 *
 *   dp > 1          each rank's gradient, before it is summed over dp
 *   dp 1            that of the first micro-batch, before others are added
 *   ZeRO 2 and 3    that of each micro-batch on each rank */
struct plait_small_batch {
    int sequences; /* of one part; 0: there is no such gradient */
    int count;     /* parts that are measured, on all ranks together */
};

/* Which parts a step of `batch` sequences in `microbatches` per rank has. None
 * with a sync.mode in which replicas train apart, nor where no rank holds the
 * whole gradient of a part: sync batch norm makes one batch of all ranks' (in
 * others a micro-batch's statistics are its own, so parts are independent, and
 * the noise is that of micro-batches of this size); context parallel ranks
 * have parts of sequences, experts those of other ranks' tokens, pipeline ends
 * that share embeddings a summand each; in the schedules gpipe and zb-h1
 * gradients of several micro-batches are under way at once; and without ZeRO
 * or dp, sequence parallelism, tp above kv_heads and experts complete
 * gradients after the last micro-batch alone. *why, if not NULL, is then the
 * reason, else untouched. Pure. */
struct plait_small_batch
plait_small_batch_choose(const struct plait_job_config *config,
                         const struct plait_layout *layout, int batch,
                         int microbatches, const char **why);

/* The sum of the squares of what is added to it in a step. */
struct plait_small_norms;

/* NULL: no memory. */
struct plait_small_norms *plait_small_norms_create(struct plait_model *model);
void plait_small_norms_destroy(struct plait_small_norms *norms);

/* A step of so many micro-batches on this rank. */
int plait_small_norms_begin(struct plait_small_norms *norms, int microbatches);
/* Region i's gradient, [count] as region->grad, is one of a part; of what tp
 * ranks have equal copies of, one counts. Nothing where there are no parts. */
int plait_small_norms_add(struct plait_small_norms *norms, int i,
                          const float *grad);
/* Without ZeRO 2 and 3: region->grad is that of so many micro-batches. It is
 * added where that is a part. */
int plait_small_norms_reach(struct plait_small_norms *norms, int i,
                            int microbatches);
/* The parts of the step, and the sum. Waits for the queue. */
int plait_small_norms_read(struct plait_small_norms *norms,
                           struct plait_small_batch *small, double *sum);
/* The same, queued to pinned memory. */
int plait_small_norms_queue(struct plait_small_norms *norms,
                            struct plait_small_batch *small, double *pinned);

#endif

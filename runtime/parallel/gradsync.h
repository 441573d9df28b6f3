/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_GRADSYNC_H
#define PLAIT_RUNTIME_PARALLEL_GRADSYNC_H

#include "runtime/model/model.h"
#include "runtime/parallel/shard.h"
#include "runtime/parallel/small_batch.h"

/* Sums gradients over the ranks that share weights, in buckets that start as
 * soon as backward has finished their regions. Sets the model's hooks.
 *
 * Without ZeRO a bucket is a run of neighbouring regions of one chunk, last
 * first, summed in place: 1 MiB for the first, so that it starts early, then
 * plait_mesh_bucket_bytes(). With ZeRO 1 it is one region, whose parts are
 * summed. ZeRO 2 and 3 reduce every micro-batch (zero.h). The reduction path of
 * a bucket: reduce.h. With grad_sync flat all regions are one bucket (two sorts
 * where there are experts), with naive they are summed through the first rank
 * (naive.h); neither starts before the end of backward. */
struct plait_gradsync;

struct plait_gradsync *plait_gradsync_create(struct plait_model *model,
                                             struct plait_shards *shards,
                                             struct plait_error *err);
void plait_gradsync_destroy(struct plait_gradsync *sync);

/* Where replicas train apart (topology/job/sync.h) gradients are summed inside
 * of each; from here on over all of them, or so again. Between steps. */
void plait_gradsync_across(struct plait_gradsync *sync, bool replicas);

/* Before the first micro-batch of a step: gradients begin anew. */
int plait_gradsync_begin(struct plait_gradsync *sync, int microbatches);
/* After the last backward: every shard's grad is the sum over all ranks,
 * tied tensors included. */
int plait_gradsync_finish(struct plait_gradsync *sync);

/* After that: which parts of the batch were measured, and this rank's share of
 * the sum of their gradients' squares; over the world, each element of the
 * model is in it once for each part. Waits for the queue. */
int plait_gradsync_small(struct plait_gradsync *sync,
                         struct plait_small_batch *small, double *sum);
/* The same, queued to pinned memory: the sum is there once the queue has come
 * past. */
int plait_gradsync_queue_small(struct plait_gradsync *sync,
                               struct plait_small_batch *small, double *pinned);

#endif

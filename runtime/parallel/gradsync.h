/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_GRADSYNC_H
#define PLAIT_RUNTIME_PARALLEL_GRADSYNC_H

#include "runtime/model/model.h"
#include "runtime/parallel/shard.h"
#include "runtime/parallel/small_batch.h"

/* Sums gradients over the ranks that share weights, in buckets whose sum starts
 * as soon as backward has finished their regions. Sets the model's hooks.
 *
 * Without ZeRO a bucket is a run of neighbouring regions of one chunk, last
 * first, summed in place: 1 MiB for the first bucket, so that it starts early,
 * then plait_mesh_bucket_bytes(). With ZeRO 1 a bucket is one region, and its
 * parts are summed to their owners. ZeRO 2 and 3 reduce after every micro-batch
 * (zero.h). reduce.h has the reduction paths. With grad_sync flat, buckets hold
 * neighbouring regions of all chunks; only experts have buckets of their own.
 * With naive, gradients are summed by the first rank (naive.h). Both start
 * after the end of backward. */
struct plait_gradsync;

struct plait_gradsync *plait_gradsync_create(struct plait_model *model,
                                             struct plait_shards *shards,
                                             struct plait_error *err);
void plait_gradsync_destroy(struct plait_gradsync *sync);

/* While replicas train apart (topology/job/sync.h) gradients are summed inside
 * each replica. This switches to sums over all replicas, and back. Call it
 * between steps. */
void plait_gradsync_across(struct plait_gradsync *sync, bool replicas);

/* Call before the first micro-batch of a step; resets the gradients. */
int plait_gradsync_begin(struct plait_gradsync *sync, int microbatches);
/* Call after the last backward: then every shard's grad is the sum over all
 * ranks, tied tensors included. */
int plait_gradsync_finish(struct plait_gradsync *sync);

/* After plait_gradsync_finish(): which parts of the batch were measured, and
 * this rank's share of the sum of their gradients' squares. Summed over the
 * world it counts each element of the model once for each part. Waits for the
 * queue. */
int plait_gradsync_small(struct plait_gradsync *sync,
                         struct plait_small_batch *small, double *sum);
/* The same, but copied to pinned memory by the queue: the sum is valid once the
 * queue has done so. */
int plait_gradsync_queue_small(struct plait_gradsync *sync,
                               struct plait_small_batch *small, double *pinned);

#endif

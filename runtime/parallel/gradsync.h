/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_GRADSYNC_H
#define PLAIT_GRADSYNC_H

#include "runtime/model/model.h"
#include "runtime/parallel/shard.h"

/* Sums gradients over the ranks that share weights, in buckets that start as
 * soon as backward has finished with their regions. It is the model's
 * hooks.
 *
 * Without ZeRO a bucket is a run of neighbouring regions of one chunk, last
 * first, summed in place: 1 MiB for the first, so that it starts early, then
 * `bucket_mib`. With ZeRO 1 it is one region, whose parts are summed. ZeRO 2
 * and 3 reduce every micro-batch (zero.h). How a bucket travels, reduce.h
 * says. With grad_sync naive nothing starts before the end (naive.h). */
struct plait_gradsync;

struct plait_gradsync *plait_gradsync_create(struct plait_model *model,
                                             struct plait_shards *shards,
                                             struct plait_error *err);
void plait_gradsync_destroy(struct plait_gradsync *sync);

/* Before the first micro-batch of a step: gradients begin anew. */
int plait_gradsync_begin(struct plait_gradsync *sync, int microbatches);
/* After the last backward: every shard's grad is the sum over all ranks,
 * tied tensors included. */
int plait_gradsync_finish(struct plait_gradsync *sync);

#endif

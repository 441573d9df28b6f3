/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_ZERO_H
#define PLAIT_RUNTIME_PARALLEL_ZERO_H

#include "runtime/parallel/shard.h"
#include "runtime/parallel/small_batch.h"

/* ZeRO 2 and 3: whole regions exist only while a block uses them.
 *
 * A region's whole gradient appears with the first block that adds to it;
 * when the block says that its micro-batch is complete, the owners' parts get
 * their sums, and it is freed. With ZeRO 3 a region's whole weights are
 * gathered while the block before it works and freed after it, in forward
 * and again in backward. Freed buffers are kept for the next region of that
 * size: after the first step nothing is allocated. */
struct plait_zero;

/* norms: get each gradient before it is reduced; NULL where none is. */
struct plait_zero *plait_zero_create(struct plait_shards *shards,
                                     struct plait_small_norms *norms,
                                     struct plait_error *err);
void plait_zero_destroy(struct plait_zero *zero);

/* Becomes the hooks of a model that only computes forward; one that is trained
 * reaches it through gradsync.h. */
void plait_zero_serve(struct plait_zero *zero);

/* Region `i` will be acquired soon: begin to gather its weights, or keep them
 * where they still are. ZeRO 3 alone. */
int plait_zero_prefetch(struct plait_zero *zero, int i);
/* Before a block works on region `i`; `gradient`: it will add to ->grad. */
int plait_zero_acquire(struct plait_zero *zero, int i, bool gradient);
int plait_zero_release(struct plait_zero *zero, int i);

/* A step begins: what the parts have is added to where they are `zeroed`, else
 * the first sum takes its place. */
void plait_zero_begin(struct plait_zero *zero, bool zeroed);
/* Region i's gradient of a micro-batch is complete: start adding it to the
 * parts. */
int plait_zero_reduce(struct plait_zero *zero, int i);
/* All that was started is in the parts, and 0 where nothing was. */
int plait_zero_finish(struct plait_zero *zero);

#endif

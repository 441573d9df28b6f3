/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_ZERO_H
#define PLAIT_RUNTIME_PARALLEL_ZERO_H

#include "runtime/parallel/shard.h"
#include "runtime/parallel/small_batch.h"

/* ZeRO 2 and 3: whole regions exist only while a block uses them.
 *
 * The first block that adds to a region's gradient gets a whole buffer for it.
 * When the block reports that the micro-batch is complete, the gradient is
 * summed into the owners' parts and the buffer is freed. With ZeRO 3 a region's
 * whole weights are gathered while the block before it computes and freed after
 * use, in forward and again in backward. Freed buffers are kept for the next
 * region of that size: after the first step nothing is allocated. */
struct plait_zero;

/* norms: gets each gradient before it is reduced; NULL: none is. */
struct plait_zero *plait_zero_create(struct plait_shards *shards,
                                     struct plait_small_norms *norms,
                                     struct plait_error *err);
void plait_zero_destroy(struct plait_zero *zero);

/* Sets the hooks of a model that only runs forward. For training, gradsync.h
 * sets them. */
void plait_zero_serve(struct plait_zero *zero);

/* Region `i` will be acquired soon: starts to gather its weights, or keeps them
 * if they are still there. No effect below ZeRO 3. */
int plait_zero_prefetch(struct plait_zero *zero, int i);
/* Call before and after a block uses region `i`. gradient: the block will add
 * to ->grad. */
int plait_zero_acquire(struct plait_zero *zero, int i, bool gradient);
int plait_zero_release(struct plait_zero *zero, int i);

/* Begins a step. zeroed: the parts are zero, and sums are added to them; else
 * the first sum replaces what they have. */
void plait_zero_begin(struct plait_zero *zero, bool zeroed);
/* Region i's gradient of a micro-batch is complete: starts adding it to the
 * parts. */
int plait_zero_reduce(struct plait_zero *zero, int i);
/* Completes all reductions. Parts that nothing was added to become 0. */
int plait_zero_finish(struct plait_zero *zero);

/* Keep what the calls of a pass change on the host; and restore it, for a pass
 * that was to be captured and could not be. No transfer may be under way when
 * it is kept. */
void plait_zero_keep(struct plait_zero *zero);
void plait_zero_restore(struct plait_zero *zero);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_TIED_H
#define PLAIT_RUNTIME_PARALLEL_TIED_H

#include "runtime/parallel/shard.h"

/* Sums the gradients of tensors that the first and the last pipeline stage
 * share. scratch: room for the largest of their regions that is sharded. */
int plait_tied_sum(struct plait_shards *shards, float *scratch);

#endif

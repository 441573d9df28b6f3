/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_FRAGMENTS_H
#define PLAIT_RUNTIME_OPTIM_FRAGMENTS_H

#include "runtime/parallel/shard.h"

/* The fragments in which replicas meet (sync.fragments): layer i belongs to
 * number i modulo their count, which spreads each over the depth (Douillard et
 * al., arXiv 2501.18512, "strided"); embedding and head to number 0. */

/* Numbers at .. at + n - 1 of a rank's master weights: regions of one fragment
 * that lie one behind the other, at most 2^30 numbers. */
struct plait_fragment_run {
    int fragment;
    size_t at, n;
};

/* All of this rank's, in the order of the masters, to *runs, which the caller
 * frees. How many; -1 with ENOMEM. */
int plait_fragments_list(const struct plait_shards *shards, int fragments,
                         struct plait_fragment_run **runs);

/* x[n] = the sum over the ranks of dp, on q. Collective; 0 or -1. */
int plait_fragment_sum(struct plait_comm *dp, struct plait_queue *q, float *x,
                       size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_SLICE_OWNERS_H
#define PLAIT_RUNTIME_CHECKPOINT_SLICE_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/comm.h"

/* Which ranks hold which slices. Replicas hold the same slices: they share one
 * list, of which each sends a part. */
struct plait_slice_owners {
    int ranks, nlists;
    int *list_of; /* [ranks] */
    struct plait_slice_entry {
        uint64_t hash; /* of a slice; never 0 */
        int list;
    } * all; /* [total] sorted */
    size_t total;
    bool *chosen; /* [nlists] false between calls */
};

/* hashes[n] are this rank's. Collective; -1 with err.
 * plait_slice_owners_clear() in any case. */
int plait_slice_owners_gather(struct plait_slice_owners *owners,
                              struct plait_comm *world, const uint64_t *hashes,
                              int n, struct plait_error *err);
void plait_slice_owners_clear(struct plait_slice_owners *owners);

/* The ranks that hold the slice of this hash, ascending, in
 * ranks[owners->ranks]; returns how many. */
int plait_slice_owners_find(struct plait_slice_owners *owners, uint64_t hash,
                            int *ranks);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_REPLICA_CHECK_H
#define PLAIT_RUNTIME_CHECKPOINT_REPLICA_CHECK_H

#include "runtime/checkpoint/checkpoint.h"

/* Checks that state which several ranks hold, whatever makes them replicas of
 * each other (data, tensor or context parallelism), is equal to the last bit. A
 * memory error on one of them makes them differ for ever, and no result of the
 * training shows it. */
struct plait_replica_check;

/* Collective. NULL with err on all ranks together. */
struct plait_replica_check *
plait_replica_check_create(const struct plait_model *model,
                           const struct plait_optim *optim,
                           struct plait_error *err);
void plait_replica_check_destroy(struct plait_replica_check *check);

/* Between two steps, after step `step`: compares hashes of masters and states.
 * Collective; -1 with errno EUCLEAN if they differ, on all ranks together, the
 * text on rank 0: it names the rank that differs from most others, and its
 * node. Costs a read of what is held more than once. */
int plait_replica_check_run(struct plait_replica_check *check, int64_t step,
                            struct plait_error *err);

/* A hash of all that all ranks hold, masters and states, the same on each of
 * them: equal in two runs of one layout that are equal to the last bit.
 * Collective. */
int plait_replica_check_state(struct plait_replica_check *check, uint64_t *hash,
                              struct plait_error *err);

/* A hash of n numbers by their bits. The hashes of parts of an array add up to
 * that of the whole: `first` is the index of x[0] in it, a multiple of 4.
 * Pure. */
uint64_t plait_replica_hash(const float *x, size_t first, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_COPIER_H
#define PLAIT_RUNTIME_CHECKPOINT_COPIER_H

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/copies.h"

/* Makes copies in memory, in one world: each rank keeps what it would write of
 * a checkpoint, and what its partner would, each for two steps, so that a loss
 * during an exchange leaves the older ones. */
struct plait_copier;

/* *to: the rank that keeps a copy for `rank`; *from: the one whose copy `rank`
 * keeps. It is the rank at the same place of the next replica, or with one
 * replica the next rank, or one further on, where that puts more copies on
 * other nodes. node[ranks]: equal on one node. A single rank is its own
 * partner. */
void plait_copy_partners(const struct plait_layout *layout,
                         const uint64_t *node, int rank, int *to, int *from);

/* Collective, as all below; fails as plait_error_consensus() does. `epoch` is
 * the world's. Copies of earlier worlds stay until this one has made a copy. */
struct plait_copier *plait_copier_create(struct plait_copies *copies,
                                         struct plait_model *model,
                                         struct plait_optim *optim,
                                         uint64_t epoch,
                                         struct plait_error *err);
/* Between two steps: copies the state. The transfer to the partner overlaps
 * with the next step. A state that is not finite is not kept as a copy. */
int plait_copier_copy(struct plait_copier *c,
                      const struct plait_checkpoint_info *info,
                      struct plait_error *err);
/* After the next step: waits until the copy is complete. */
int plait_copier_finish(struct plait_copier *c, struct plait_error *err);
/* Not collective. Transfers must have ended, or the world must be aborted.
 * NULL-safe. */
void plait_copier_destroy(struct plait_copier *c);

/* On this rank: the memory that copies take, and how many were made. */
size_t plait_copier_bytes(const struct plait_copier *c);
int plait_copier_count(const struct plait_copier *c);

/* -- load.c ---------------------------------------------------------------- */

/* As plait_checkpoint_load(), but from the copies that were agreed on, whatever
 * layout they were made in. */
int plait_checkpoint_load_copies(const struct plait_copies *copies,
                                 struct plait_checkpoint_info *info,
                                 struct plait_optim *optim,
                                 struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_COPIER_H
#define PLAIT_RUNTIME_CHECKPOINT_COPIER_H

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/copies.h"

/* What makes copies in memory, in one world: each rank keeps what it would
 * write of a checkpoint, and what its partner would; two steps of both, so that
 * a death amid an exchange leaves the older ones. */
struct plait_copier;

/* The rank that keeps a copy for `rank`, and whose copy it keeps: the next
 * replica's at its place, or if there is one replica the next rank; further on
 * where that puts more copies on another node. node[ranks]: equal on one node.
 * Alone: itself. */
void plait_copy_partners(const struct plait_layout *layout,
                         const uint64_t *node, int rank, int *to, int *from);

/* Collective, as all below; fails as plait_error_consensus() does. `epoch` is
 * the world's. Copies of earlier worlds stay until there is a new one. */
struct plait_copier *plait_copier_create(struct plait_copies *copies,
                                         struct plait_model *model,
                                         struct plait_optim *optim,
                                         uint64_t epoch,
                                         struct plait_error *err);
/* Between two steps: the state now. What goes to the partner goes beside the
 * next step. A state that is not finite is no copy. */
int plait_copier_copy(struct plait_copier *c,
                      const struct plait_checkpoint_info *info,
                      struct plait_error *err);
/* After the next step: the copy is complete. */
int plait_copier_finish(struct plait_copier *c, struct plait_error *err);
/* Not collective; transfers must have ended, or the world. NULL-safe. */
void plait_copier_destroy(struct plait_copier *c);

/* Of this rank: the memory that copies take, and how many were made. */
size_t plait_copier_bytes(const struct plait_copier *c);
int plait_copier_count(const struct plait_copier *c);

/* -- load.c ---------------------------------------------------------------- */

/* As plait_checkpoint_load(), from the copies that were agreed on, in whatever
 * layout they were made. */
int plait_checkpoint_load_copies(const struct plait_copies *copies,
                                 struct plait_checkpoint_info *info,
                                 struct plait_optim *optim,
                                 struct plait_error *err);

#endif

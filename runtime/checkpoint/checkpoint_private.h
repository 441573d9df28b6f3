/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_CHECKPOINT_COMMON_H
#define PLAIT_CHECKPOINT_COMMON_H

#include <stdatomic.h>

#include "folder.h"
#include "piece.h"
#include "runtime/comm/world.h"
#include "runtime/optim/optim.h"

enum { PLAIT_PIECES_PER_SLICE = 3 };

/* The pieces that this rank holds, as they are named in a checkpoint, and
 * where each lies on the device. Both malloc'ed. Returns how many. */
int plait_pieces_create(const struct plait_optim *optim,
                        struct plait_piece **pieces, float ***data,
                        struct plait_error *err);

/* What one rank writes of every checkpoint, in this order. */
struct plait_part {
    const struct plait_optim *optim; /* knows where data are; not owned */
    int n;
    struct plait_piece *pieces;
    float **data;
    size_t bytes; /* of the data */
};

/* Collective: of equal pieces one rank takes each, and replicas share the
 * work. No element of the model is missing, none is there twice. */
int plait_part_init(struct plait_part *part, const struct plait_model *model,
                    const struct plait_optim *optim, struct plait_error *err);
void plait_part_clear(struct plait_part *part);

/* What is in the part now, into `copy` [part->bytes]. */
int plait_part_copy(const struct plait_part *part, char *copy,
                    struct plait_error *err);
/* Write the copy, or with NULL what the device has, to
 * FOLDER/rank-00007.safetensors and sync it; a part of nothing has no file.
 * Gives up when *cancel is set, with ECANCELED. Any thread may call it that
 * alone uses the part meanwhile. */
int plait_part_write(const struct plait_part *part, const char *copy,
                     const char *folder, int rank, const atomic_bool *cancel,
                     struct plait_shard_file *file, struct plait_error *err);

#endif

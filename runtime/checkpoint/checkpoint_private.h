/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_CHECKPOINT_PRIVATE_H
#define PLAIT_RUNTIME_CHECKPOINT_CHECKPOINT_PRIVATE_H

#include <stdatomic.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/slice_owners.h"
#include "runtime/checkpoint/tensor_slice.h"
#include "runtime/comm/world.h"
#include "runtime/optim/replicas.h"
#include "runtime/parallel/shard.h"

/* pieces[n] of plait_optim_pieces() or plait_replicas_pieces(), as they are
 * named and placed in a checkpoint; malloc'ed. Returns n. */
int plait_tensor_slices_create(const struct plait_optim_piece *pieces, int n,
                               struct plait_tensor_slice **slices,
                               struct plait_error *err);
/* The same of the weights alone, of the compute type on the device, and where
 * each lies. The caller frees both, in case of an error too. */
int plait_tensor_slices_create_weights(const struct plait_shards *shards,
                                       struct plait_tensor_slice **slices,
                                       void ***data, struct plait_error *err);

/* What one rank writes of every checkpoint, in this order. */
struct plait_rank_shard {
    const struct plait_optim *optim; /* knows where data are; not owned */
    int n;
    struct plait_tensor_slice *slices;
    struct plait_optim_piece *pieces; /* what the slices are made of */
    size_t bytes;                     /* of the data */
};

/* Collective: all slices that this rank holds, but for tied copies. Clear it in
 * case of an error too. */
int plait_rank_shard_list(struct plait_rank_shard *shard,
                          const struct plait_model *model,
                          const struct plait_optim *optim,
                          struct plait_error *err);

/* A hash of what makes two slices the same, never 0. */
uint64_t plait_slice_fingerprint(const struct plait_tensor_slice *slice);
/* Collective: by their fingerprints. plait_slice_owners_clear() in case of an
 * error too. */
int plait_rank_shard_owners(const struct plait_rank_shard *shard,
                            struct plait_comm *world,
                            struct plait_slice_owners *owners,
                            struct plait_error *err);

/* Collective: of equal slices one rank takes each, and replicas share the
 * work. No element of the model is missing, none is there twice. */
int plait_rank_shard_init(struct plait_rank_shard *shard,
                          const struct plait_model *model,
                          const struct plait_optim *optim,
                          struct plait_error *err);
void plait_rank_shard_clear(struct plait_rank_shard *shard);

/* A file of it in memory, but for the data, which lie at
 * plait_rank_shard_data(): already backed by pages, so that the first save is
 * no slower than the others; malloc'ed. NULL with errno. */
char *plait_rank_shard_image(const struct plait_rank_shard *shard);
char *plait_rank_shard_data(char *image);
/* What is in the shard now, into `data` [shard->bytes]. */
int plait_rank_shard_copy(const struct plait_rank_shard *shard, char *data,
                          struct plait_error *err);
/* Whether all of it is finite; -1 with EDOM names what is not. */
int plait_rank_shard_check(const struct plait_rank_shard *shard,
                           struct plait_error *err);
/* Write the image, or with NULL what the device has, to
 * DIRECTORY/rank-00007.safetensors and sync it; a shard of nothing has no file.
 * Gives up when *cancel is set, with ECANCELED, and with EDOM at what is not
 * finite. Any thread may call it that
 * alone uses the shard meanwhile. */
int plait_rank_shard_write(const struct plait_rank_shard *shard,
                           const char *image, const char *directory, int rank,
                           const atomic_bool *cancel,
                           struct plait_shard_file *file,
                           struct plait_error *err);

/* What rank 0 makes a checkpoint of when all shards are written. */
struct plait_placement {
    const struct plait_model *model;
    int replicas; /* that train apart; 0: one model */
    struct plait_checkpoint_info info;
    const char *dir, *temporary, *path;
    const struct plait_shard_file *files; /* [nfiles]; of no bytes: no file */
    int nfiles;
    int keep;
};

/* Describe the files in `temporary`, give it the name `path`, and remove old
 * checkpoints. Not collective. */
int plait_checkpoint_place(const struct plait_placement *placement,
                           struct plait_error *err);

#endif

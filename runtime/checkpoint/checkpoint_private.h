/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_CHECKPOINT_PRIVATE_H
#define PLAIT_RUNTIME_CHECKPOINT_CHECKPOINT_PRIVATE_H

#include <stdatomic.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/slice_owners.h"
#include "runtime/checkpoint/tensor_slice.h"
#include "runtime/optim/replicas.h"
#include "runtime/parallel/shard.h"

/* pieces[n] of plait_optim_pieces() or plait_replicas_pieces(), as they are
 * named and placed in a checkpoint; malloc'ed. Returns n. */
int plait_tensor_slices_create(const struct plait_optim_piece *pieces, int n,
                               struct plait_tensor_slice **slices,
                               struct plait_error *err);
/* Where weights lie on the device, and in which type. */
struct plait_weights_at {
    void *at;
    enum plait_dtype type;
};

/* The same for the weights alone, in the type that the model has of each;
 * *data: where each slice lies. The caller frees both, in case of an error
 * too. */
int plait_tensor_slices_create_weights(const struct plait_shards *shards,
                                       struct plait_tensor_slice **slices,
                                       struct plait_weights_at **data,
                                       struct plait_error *err);

/* The slices that one rank writes of every checkpoint, in this order. */
struct plait_rank_shard {
    const struct plait_optim *optim; /* to read the pieces' data; not owned */
    int n;
    struct plait_tensor_slice *slices;
    struct plait_optim_piece *pieces; /* what the slices describe */
    size_t bytes;                     /* of the data */
};

/* Collective: all slices that this rank holds, without tied copies. Clear it in
 * case of an error too. */
int plait_rank_shard_list(struct plait_rank_shard *shard,
                          const struct plait_model *model,
                          const struct plait_optim *optim,
                          struct plait_error *err);

/* A hash that is equal for equal slices, never 0. */
uint64_t plait_slice_fingerprint(const struct plait_tensor_slice *slice);
/* Collective: which ranks hold which slices, by fingerprint. Call
 * plait_slice_owners_clear() in case of an error too. */
int plait_rank_shard_owners(const struct plait_rank_shard *shard,
                            struct plait_comm *world,
                            struct plait_slice_owners *owners,
                            struct plait_error *err);

/* Collective: each slice is assigned to one of the ranks that hold it, so that
 * replicas share the work. Every element of the model is written exactly
 * once. */
int plait_rank_shard_init(struct plait_rank_shard *shard,
                          const struct plait_model *model,
                          const struct plait_optim *optim,
                          struct plait_error *err);
void plait_rank_shard_clear(struct plait_rank_shard *shard);

/* The shard's file in memory, with a head but without data, which belong at
 * plait_rank_shard_data(). Backed by pages, so that the first save is no slower
 * than the others; malloc'ed. NULL with errno. */
char *plait_rank_shard_image(const struct plait_rank_shard *shard);
char *plait_rank_shard_data(char *image);
/* Copy the shard's current state into `data` [shard->bytes]. */
int plait_rank_shard_copy(const struct plait_rank_shard *shard, char *data,
                          struct plait_error *err);
/* Whether all of it is finite; -1 with EDOM names what is not. */
int plait_rank_shard_check(const struct plait_rank_shard *shard,
                           struct plait_error *err);
/* Write the image, or with NULL the state as it is now, to
 * DIRECTORY/rank-00007.safetensors and sync it; an empty shard has no file.
 * Fails with ECANCELED when *cancel is set, and with EDOM at a number that is
 * not finite. Any thread may call it, if no other uses the shard meanwhile. */
int plait_rank_shard_write(const struct plait_rank_shard *shard,
                           const char *image, const char *directory, int rank,
                           const atomic_bool *cancel,
                           struct plait_shard_file *file,
                           struct plait_error *err);

/* What rank 0 needs to put a checkpoint in place when all shards are
 * written. */
struct plait_checkpoint_placement {
    const struct plait_model *model;
    int replicas;        /* that train apart; 0: one model */
    const int64_t *sent; /* plait_replicas_sent() when they were copied */
    struct plait_checkpoint_info info;
    const char *dir, *temporary, *path;
    int made;                             /* a descriptor of `temporary` */
    const struct plait_shard_file *files; /* [nfiles]; 0 bytes: no file */
    int nfiles;
    int keep;
};

/* Write the manifest of the files in `temporary`, rename that to `path`, and
 * remove old checkpoints. One that cannot be removed is no failure: `notice`
 * says so. Not collective. */
int plait_checkpoint_place(const struct plait_checkpoint_placement *placement,
                           struct plait_error *notice, struct plait_error *err);

#endif

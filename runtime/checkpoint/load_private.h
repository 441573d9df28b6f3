/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_LOAD_PRIVATE_H
#define PLAIT_RUNTIME_CHECKPOINT_LOAD_PRIVATE_H

#include "runtime/checkpoint/checkpoint_private.h"
#include "runtime/checkpoint/hf_weights.h"
#include "runtime/checkpoint/sources.h"

struct plait_load {
    struct plait_sources from;
    struct plait_hf_weights *hf;       /* in its place; NULL: a checkpoint */
    struct plait_shards *shards;       /* of the model that is loaded into */
    struct plait_optim *optim;         /* NULL: its weights alone */
    bool fresh;                        /* none of the optimizer's state */
    bool apart;                        /* each replica's own state */
    struct plait_tensor_slice *slices; /* that this rank wants, and where to */
    void **data;                       /* of weights alone */
    const struct plait_optim_piece *pieces; /* of the optimizer */
    int nslices;
    struct plait_comm *replicas; /* who wants the same; NULL: nobody */
    int *reader;                 /* [nslices] of them, where there are any */
    bool *placed; /* [nslices]: read while their file was checked; NULL: none */
};

/* Whether it is this rank that reads the slice, and has not yet. */
bool plait_load_reads(const struct plait_load *load, int slice);

/* Collective: all files are read and held to their checksums. The slices that
 * a file of this rank's has as they are wanted go to their places meanwhile, so
 * that nothing is read twice. EINVAL where a file is damaged, EDOM where a
 * number is not finite; slices may then have been overwritten. */
int plait_load_place(struct plait_load *load, struct plait_comm *world,
                     struct plait_error *err);

#endif

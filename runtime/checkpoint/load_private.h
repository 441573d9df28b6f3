/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_LOAD_PRIVATE_H
#define PLAIT_RUNTIME_CHECKPOINT_LOAD_PRIVATE_H

#include "runtime/checkpoint/checkpoint_private.h"
#include "runtime/checkpoint/hf_weights.h"
#include "runtime/checkpoint/sources.h"

struct plait_load {
    struct plait_sources from;
    struct plait_hf_weights *hf;            /* instead of `from`, or NULL */
    struct plait_shards *shards;            /* of the model that is filled */
    struct plait_optim *optim;              /* NULL: its weights alone */
    bool fresh;                             /* without the optimizer's state */
    bool apart;                             /* each replica's own state */
    struct plait_tensor_slice *slices;      /* wanted here, and where to */
    struct plait_weights_at *data;          /* [nslices] without an optimizer */
    const struct plait_optim_piece *pieces; /* of the optimizer */
    int nslices;
    struct plait_comm *replicas; /* ranks that want the same; NULL: none */
    int *reader;  /* [nslices] which of them reads; if there are any */
    bool *placed; /* [nslices]: read while their file was checked; NULL: none */
};

/* Whether this rank is the one that reads the slice, and has not done so
 * yet. */
bool plait_load_reads(const struct plait_load *load, int slice);

/* Reads slice i into buffer[its count], from the sources or the model of
 * Hugging Face's. -1 with a message where it is not there. */
int plait_load_fill(const struct plait_load *load, int i, float *buffer,
                    struct plait_error *err);

/* Collective: reads all files and checks their checksums. A slice that a file
 * of this rank holds exactly as it is wanted is copied to its place meanwhile,
 * so that nothing is read twice. EINVAL where a file is damaged, EDOM where a
 * number is not finite; slices may then have been overwritten. */
int plait_load_place(struct plait_load *load, struct plait_comm *world,
                     struct plait_error *err);

#endif

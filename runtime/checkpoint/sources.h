/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_SOURCES_H
#define PLAIT_RUNTIME_CHECKPOINT_SOURCES_H

#include "runtime/checkpoint/copies.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/tensor_slice.h"
#include "runtime/comm/comm.h"

/* What the files of a checkpoint, or copies in the ranks' memory, hold. Each
 * file is checked against its checksum and has its head read by one rank, which
 * tells the others which slices it holds. */

/* A stored slice. */
struct plait_source {
    struct plait_tensor_slice slice;
    uint64_t offset; /* of its data, bytes from the start of the file */
    int file;        /* index in the manifest; -1: no source */
};

struct plait_mapped_file {
    void *map; /* NULL: not mapped on this rank */
    size_t size;
    /* Only for a copy in memory: the image that was fetched; whether it is to
     * be fetched. */
    char *image; /* malloc'ed, map points into it; NULL: not fetched */
    bool wanted;
};

struct plait_sources {
    const char *path; /* of the checkpoint; not owned */
    struct plait_manifest manifest;
    struct plait_mapped_file *files; /* [manifest.nfiles] */
    struct plait_source *sources;    /* of all files, sorted by name */
    int nsources;
    int *holder; /* [manifest.nfiles] the rank that has each copy; NULL: these
                    are files */
};

/* Collective over `world`; fails on all ranks together, with text on at most
 * one. errno is EINVAL or ENOENT where a file is damaged or missing. Call
 * plait_sources_close() in any case. */
int plait_sources_open(struct plait_sources *sources, const char *path,
                       struct plait_comm *world, struct plait_error *err);
/* Reads only the heads. The contents must not be used before
 * plait_sources_check(). */
int plait_sources_open_unchecked(struct plait_sources *sources,
                                 const char *path, struct plait_comm *world,
                                 struct plait_error *err);
/* The same for the copies that were agreed on: each stands for a file. errno is
 * EINVAL where one is damaged. */
int plait_sources_open_copies(struct plait_sources *sources,
                              const struct plait_copies *copies,
                              struct plait_comm *world,
                              struct plait_error *err);
void plait_sources_close(struct plait_sources *sources);

/* The first of the sources with this name, or of a name after it; the end of
 * the list if there is none. */
const struct plait_source *
plait_sources_find(const struct plait_sources *sources, const char *name);

/* Is called with the bytes of a file while it is checked: `n` bytes from `at`
 * on, in order and at most `most` at a time. They may be damaged, which shows
 * only at the end. -1 with errno ends the check. */
struct plait_sources_visitor {
    int (*visit)(struct plait_sources_visitor *visitor, int file, uint64_t at,
                 const char *bytes, size_t n);
    size_t most; /* bytes */
};

/* Collective: every file is read by one rank and its checksum compared. EINVAL
 * where one is damaged. `visitor` may be NULL. */
int plait_sources_check(const struct plait_sources *sources,
                        struct plait_comm *world,
                        struct plait_sources_visitor *visitor,
                        struct plait_error *err);
/* Whether this rank is the one that reads file `index` then. */
static inline bool plait_sources_is_mine(const struct plait_comm *world,
                                         int index)
{
    return index % plait_comm_size(world) == plait_comm_rank(world);
}
/* One file, on this rank alone. */
int plait_sources_check_file(const struct plait_sources *sources, int index,
                             struct plait_sources_visitor *visitor,
                             struct plait_error *err);

/* Map file `index` on this rank. A copy is only marked, and is here after the
 * next fetch. */
int plait_sources_map(struct plait_sources *sources, int index,
                      struct plait_error *err);
/* Collective: send the copies that ranks want, from the ranks that have
 * them. */
int plait_sources_fetch(struct plait_sources *sources, struct plait_comm *world,
                        struct plait_queue *q, struct plait_error *err);

/* For sources_copies.c: add the slices of file `index`, which is mapped; and,
 * collective, share all ranks' slices with all. */
int plait_sources_add(struct plait_sources *sources, int index,
                      struct plait_error *err);
int plait_sources_share(struct plait_sources *sources, struct plait_comm *world,
                        struct plait_error *err);

/* Gather one slice into `buffer` [slice->count] from the files that are mapped
 * here; padding is 0. */
int plait_sources_fill(const struct plait_sources *sources,
                       const struct plait_tensor_slice *slice, float *buffer,
                       struct plait_error *err);

/* Drop the pages of a tensor that was read, so that they no longer count as
 * this process's memory. */
void plait_sources_drop(const struct plait_sources *sources, const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_HF_FILES_H
#define PLAIT_RUNTIME_CHECKPOINT_HF_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"

/* The safetensors files of a directory, and the tensors in them. */

struct plait_hf_stored {
    char name[128];
    char dtype[8]; /* "F32", "BF16", ... */
    int ndim;
    uint64_t shape[3]; /* of the first three dimensions */
    uint64_t offset;   /* of its data, bytes from the start of the file */
    int file;
};

struct plait_hf_files {
    const char *dir; /* not owned */
    int nfiles;
    char **names;
    int *fds;
    int ntensors;
    struct plait_hf_stored *tensors; /* sorted by name */
};

/* -1 with errno, naming the file. Call plait_hf_files_close() in any case. */
int plait_hf_files_open(struct plait_hf_files *files, const char *dir,
                        struct plait_error *err);
void plait_hf_files_close(struct plait_hf_files *files);

/* NULL: there is no tensor of that name. */
const struct plait_hf_stored *
plait_hf_files_find(const struct plait_hf_files *files, const char *name);

/* The same; without its first word, which files of the bare model lack; or of a
 * text model beside one of images. */
const struct plait_hf_stored *
plait_hf_files_find_any(const struct plait_hf_files *files, const char *name);

/* Whether it is of fp32, bf16 or fp16. */
bool plait_hf_files_has_type(const struct plait_hf_stored *stored);

/* Read `size` bytes of a file, from `offset` on. */
int plait_hf_files_read(const struct plait_hf_files *files, int file,
                        uint64_t offset, void *to, size_t size,
                        struct plait_error *err);

/* Elements [first, first + n) of a tensor, which has a type, to fp32 `out`
 * [n]. */
int plait_hf_files_read_run(const struct plait_hf_files *files,
                            const struct plait_hf_stored *stored,
                            uint64_t first, uint64_t n, float *out,
                            struct plait_error *err);

/* Compare two matrices: 1 if the shapes differ, or any number, 0 also where one
 * has no type; -1 with errno. */
int plait_hf_files_compare(const struct plait_hf_files *files,
                           const struct plait_hf_stored *a,
                           const struct plait_hf_stored *b,
                           struct plait_error *err);

#endif

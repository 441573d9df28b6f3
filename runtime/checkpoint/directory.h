/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_DIRECTORY_H
#define PLAIT_RUNTIME_CHECKPOINT_DIRECTORY_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/checkpoint/checkpoint.h"
#include "topology/job/settings.h"

/* The directories and manifests of checkpoints: what one process does without
 * other ranks. */

struct plait_shard_file {
    char name[64];
    uint64_t bytes;
    uint32_t crc; /* zlib's CRC-32 of the whole file */
};

struct plait_manifest {
    struct plait_checkpoint_info info;
    int64_t parameters;
    char optimizer[64]; /* plait_optim_describe(), or "none": weights
                           alone */
    int replicas;  /* number of replicas that train apart, each with its own
                      state; 0: one model */
    char sync[16]; /* their sync.mode */
    /* After which step each of their fragments has sent what is under way; 0:
     * nothing is. */
    int64_t sent[PLAIT_SYNC_FRAGMENTS_MOST];
    struct plait_settings settings; /* of the run; n 0: not saved */
    int nfiles;
    struct plait_shard_file *files;
};

/* Whether any fragment has something under way. */
bool plait_manifest_is_under_way(const struct plait_manifest *manifest);

/* malloc'ed: "DIR/step-00000020", and "DIR/.step-00000020" while it is
 * written. */
char *plait_checkpoint_path(const char *dir, int64_t step);
char *plait_directory_temporary(const char *dir, int64_t step);

/* Make `dir`, if it is not there; -1 if nothing can be written to it. */
int plait_directory_make(const char *dir, struct plait_error *err);
/* Make `dir` and, empty, the temporary directory in it. Removes what unfinished
 * checkpoints have left there. Returns a descriptor of the temporary directory,
 * which the caller closes, or -1. */
int plait_directory_prepare(const char *dir, const char *temporary,
                            struct plait_error *err);
/* Whether `temporary` is still the directory that `made` was opened for: if the
 * other ranks have gone on without this process, they may have removed it, or
 * made another one of that name. -1 with ESTALE. */
int plait_directory_check(int made, const char *temporary,
                          struct plait_error *err);
/* Sync the temporary directory, let "latest" in `dir` lead to its future name,
 * rename it to `path`, sync `dir`. */
int plait_directory_commit(const char *dir, const char *temporary,
                           const char *path, int made, struct plait_error *err);
/* Remove what is older than the newest `keep` complete checkpoints of steps up
 * to `step`. Later ones stay: they are of a run that was abandoned. -1 names
 * one that could not be removed; others are. */
int plait_directory_prune(const char *dir, int keep, int64_t step,
                          struct plait_error *err);
/* Remove a directory of plain files; one that is missing is no error. */
int plait_directory_remove(const char *path);

int plait_manifest_write(const char *directory,
                         const struct plait_manifest *manifest,
                         struct plait_error *err);
/* DIRECTORY/plait.yaml: the section "model", which describes the model that the
 * tensors belong to. */
int plait_model_file_write(const char *directory,
                           const struct plait_model_config *model,
                           struct plait_error *err);
int plait_model_file_read(const char *directory,
                          struct plait_model_config *model,
                          struct plait_error *err);

/* The file's text, malloc'ed. */
int plait_manifest_text(const char *directory, char **text, size_t *size,
                        struct plait_error *err);
/* manifest->files is malloc'ed. */
int plait_manifest_parse(const char *directory, const char *text, size_t size,
                         struct plait_manifest *manifest,
                         struct plait_error *err);

#endif

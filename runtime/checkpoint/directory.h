/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_DIRECTORY_H
#define PLAIT_RUNTIME_CHECKPOINT_DIRECTORY_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/checkpoint/checkpoint.h"
#include "topology/job/settings.h"

/* The directories and the manifest of checkpoints: what one process does,
 * without the others. */

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
    int replicas;  /* that train apart, each with a state of its own; 0: one
                      model */
    char sync[16]; /* their sync.mode */
    struct plait_settings settings; /* of the run; none: not said */
    int nfiles;
    struct plait_shard_file *files;
};

/* malloc'ed: "DIR/step-00000020", and while it is made "DIR/.step-00000020". */
char *plait_checkpoint_path(const char *dir, int64_t step);
char *plait_directory_temporary(const char *dir, int64_t step);

/* Make `dir`, if it is not there; -1 if nothing can be written to it. */
int plait_directory_make(const char *dir, struct plait_error *err);
/* Make `dir` and, empty, the temporary directory in it. What unfinished
 * checkpoints have left there is removed. */
int plait_directory_prepare(const char *dir, const char *temporary,
                            struct plait_error *err);
/* Sync the temporary directory, let "latest" in `dir` lead to it, give it its
 * name, sync `dir`. */
int plait_directory_commit(const char *dir, const char *temporary,
                           const char *path, struct plait_error *err);
/* Remove what is older than the newest `keep` complete checkpoints of steps
 * up to `step`: later ones are of a run that went on from here before. */
int plait_directory_prune(const char *dir, int keep, int64_t step,
                          struct plait_error *err);
/* Remove a directory of plain files; one that is missing is no error. */
int plait_directory_remove(const char *path);

int plait_manifest_write(const char *directory,
                         const struct plait_manifest *manifest,
                         struct plait_error *err);
/* DIRECTORY/plait.yaml: the section "model", which says of which model the
 * tensors are. */
int plait_model_file_write(const char *directory,
                           const struct plait_model_config *model,
                           struct plait_error *err);
int plait_model_file_read(const char *directory,
                          struct plait_model_config *model,
                          struct plait_error *err);

/* The file as it is, malloc'ed. */
int plait_manifest_text(const char *directory, char **text, size_t *size,
                        struct plait_error *err);
/* files are malloc'ed. */
int plait_manifest_parse(const char *directory, const char *text, size_t size,
                         struct plait_manifest *manifest,
                         struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_FOLDER_H
#define PLAIT_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint.h"

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
    int nfiles;
    struct plait_shard_file *files;
};

/* malloc'ed: "DIR/step-00000020", and while it is made "DIR/.step-00000020". */
char *plait_folder_path(const char *dir, int64_t step);
char *plait_folder_temporary(const char *dir, int64_t step);

/* Make `dir`, if it is not there; -1 if nothing can be written to it. */
int plait_folder_make(const char *dir, struct plait_error *err);
/* Make `dir` and, empty, the temporary directory in it. What unfinished
 * checkpoints have left there is removed. */
int plait_folder_prepare(const char *dir, const char *temporary,
                         struct plait_error *err);
/* Sync the temporary directory, let "latest" in `dir` lead to it, give it its
 * name, sync `dir`. */
int plait_folder_commit(const char *dir, const char *temporary,
                        const char *path, struct plait_error *err);
/* Remove what is older than the newest `keep` complete checkpoints of steps
 * up to `step`: later ones are of a run that went on from here before. */
int plait_folder_prune(const char *dir, int keep, int64_t step,
                       struct plait_error *err);
/* Remove a directory of plain files; one that is missing is no error. */
int plait_folder_remove(const char *path);

int plait_manifest_write(const char *folder,
                         const struct plait_manifest *manifest,
                         struct plait_error *err);
/* The file as it is, malloc'ed. */
int plait_manifest_text(const char *folder, char **text, size_t *size,
                        struct plait_error *err);
/* files are malloc'ed. */
int plait_manifest_parse(const char *folder, const char *text, size_t size,
                         struct plait_manifest *manifest,
                         struct plait_error *err);

#endif

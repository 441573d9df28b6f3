/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_FILES_H
#define PLAIT_TOPOLOGY_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raise the limit of open files to `files` and a few hundred others, as far as
 * the hard limit allows: many systems begin with 1024. Where that is not
 * enough, the call that opens one file too many fails. */
void plait_files_allow(size_t files);

/* Write all `size` bytes, even if signals interrupt. 0, or -1 with errno. */
int plait_files_write(int fd, const char *text, size_t size);

/* Open a regular file to read. NULL with errno, EINVAL for another kind: a pipe
 * might never end. */
FILE *plait_files_open(const char *path);

/* Open a file that is being made, which `create` makes where it is missing, and
 * lock it for this process. The descriptor, or -1 with errno; EWOULDBLOCK:
 * another process writes it. */
int plait_files_lock(const char *path, bool create);

/* Whether the folder has a file of that name. */
bool plait_files_has(const char *dir, const char *name);

/* Make a folder, and the folders above it that are missing. 0, or -1 with
 * errno. */
int plait_files_make_dir(const char *dir);

/* Write a file's content, or the names in a directory, through to the disk. 0,
 * or -1 with errno. */
int plait_files_sync(const char *path);

#ifdef __cplusplus
}
#endif
#endif

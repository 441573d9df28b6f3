/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_UNPACK_H
#define PLAIT_RUNTIME_DATA_PREP_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"

/* A file read from its start, unpacked while it is read if it begins as gzip,
 * zstd or xz does; several packed streams may follow each other. */
struct plait_unpack;

/* Refuses what is no text at its first bytes: Parquet, zip, bzip2. */
struct plait_unpack *plait_unpack_open(const char *path,
                                       struct plait_error *err);
void plait_unpack_close(struct plait_unpack *u);
/* Up to `size` bytes; fewer at the end alone, where it is 0. -1 with an error
 * that names the file: damaged, cut short, unreadable. */
int64_t plait_unpack_read(struct plait_unpack *u, char *to, size_t size,
                          struct plait_error *err);
/* Go on at byte `at` of the unpacked text, which is not behind. */
int plait_unpack_skip(struct plait_unpack *u, int64_t at,
                      struct plait_error *err);
/* The bytes of the text where that is known: it is not packed. Else -1. */
int64_t plait_unpack_size(const struct plait_unpack *u);
/* Bytes of the file that have been read. */
int64_t plait_unpack_offset(const struct plait_unpack *u);

#endif

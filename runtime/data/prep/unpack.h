/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_UNPACK_H
#define PLAIT_RUNTIME_DATA_PREP_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"

/* Reads a file from its start, and unpacks it meanwhile if it begins as gzip,
 * zstd or xz; several compressed streams may follow each other. */
struct plait_unpack;

/* Refuses what is no text by its first bytes: Parquet, zip, bzip2. */
struct plait_unpack *plait_unpack_open(const char *path,
                                       struct plait_error *err);
void plait_unpack_close(struct plait_unpack *u);
/* Reads `size` bytes; fewer only at the end, 0 after it. -1 with an error that
 * names the file: damaged, cut short, unreadable. */
int64_t plait_unpack_read(struct plait_unpack *u, char *to, size_t size,
                          struct plait_error *err);
/* Go on at byte `at` of the unpacked text, which must not be an earlier one. */
int plait_unpack_skip(struct plait_unpack *u, int64_t at,
                      struct plait_error *err);
/* The size of the text if it is known, because the file is not compressed. Else
 * -1. */
int64_t plait_unpack_size(const struct plait_unpack *u);
/* Bytes of the file that have been consumed. */
int64_t plait_unpack_offset(const struct plait_unpack *u);

#endif

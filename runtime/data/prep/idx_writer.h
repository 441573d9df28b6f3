/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_PREP_IDX_WRITER_H
#define PLAIT_RUNTIME_DATA_PREP_IDX_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"

/* Writes an IDX file of bytes (images.h). It appears under its name, whole and
 * synced, when it is finished, and never otherwise. */
struct plait_idx_writer;

/* dim [ndims], ndims <= 4. -1 with EWOULDBLOCK if another process writes it.
 * NULL with errno. */
struct plait_idx_writer *plait_idx_writer_create(const char *path, int ndims,
                                                 const int64_t *dim,
                                                 struct plait_error *err);
int plait_idx_writer_add(struct plait_idx_writer *w, const unsigned char *data,
                         size_t n, struct plait_error *err);
/* Writes all to the disk, still under the temporary name; fails unless it is as
 * long as its dimensions say. */
int plait_idx_writer_sync(struct plait_idx_writer *w, struct plait_error *err);
/* Renames the file to its final name. */
int plait_idx_writer_finish(struct plait_idx_writer *w,
                            struct plait_error *err);
/* Removes what was not finished. NULL-safe, keeps errno. */
void plait_idx_writer_destroy(struct plait_idx_writer *w);

#endif

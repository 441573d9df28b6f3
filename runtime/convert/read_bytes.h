/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_READ_BYTES_H
#define PLAIT_RUNTIME_CONVERT_READ_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "topology/base/error.h"

/* Reads all `size` bytes at `offset` of a file; 0, or -1 with an error that
 * names `path` and where reading failed. */
int plait_read_bytes(int fd, const char *path, uint64_t offset, void *to,
                     size_t size, struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_FILE_OUT_H
#define PLAIT_RUNTIME_CHECKPOINT_FILE_OUT_H

#include <stddef.h>
#include <stdint.h>

/* A new file that is written from its first byte to its last. 0 or -1 with
 * errno. */
struct plait_file_out {
    int fd; /* -1: closed */
    uint64_t bytes;
    uint32_t crc; /* zlib's CRC-32 of what was written */
};

/* EEXIST where there is a file of that name. */
int plait_file_out_open(struct plait_file_out *out, const char *path);
int plait_file_out_write(struct plait_file_out *out, const void *bytes,
                         size_t size);
/* With `keep` what was written is synced to the disk first. Does nothing to a
 * closed one. */
int plait_file_out_close(struct plait_file_out *out, int keep);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_FILE_OUT_H
#define PLAIT_RUNTIME_CHECKPOINT_FILE_OUT_H

#include <stddef.h>
#include <stdint.h>

struct plait_blocks_out;

/* A new file that is written from its first byte to its last, a block of 4 MB
 * at a time: a thread writes one, past the page cache where the file system
 * allows that, while the caller fills the next and computes its checksum. An
 * error may be returned by a later call. 0 or -1 with errno. */
struct plait_file_out {
    int fd; /* -1: closed */
    uint64_t bytes;
    uint32_t crc; /* zlib's CRC-32 of what was written */
    struct plait_blocks_out *blocks;
};

/* EEXIST where there is a file of that name. */
int plait_file_out_open(struct plait_file_out *out, const char *path);
/* `image`: the memory in which all that will be written lies in order, until
 * the file is closed. It is written from there, and cannot be patched. NULL: no
 * such memory. */
int plait_file_out_open_image(struct plait_file_out *out, const char *path,
                              const void *image);
int plait_file_out_write(struct plait_file_out *out, const void *bytes,
                         size_t size);
/* Replaces what was written at `at`; the checksum stays. */
int plait_file_out_patch(struct plait_file_out *out, uint64_t at,
                         const void *bytes, size_t size);
/* With `keep`, first writes all and syncs it to the disk. Does nothing to a
 * closed file. */
int plait_file_out_close(struct plait_file_out *out, int keep);

#endif

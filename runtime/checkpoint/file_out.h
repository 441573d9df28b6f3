/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_FILE_OUT_H
#define PLAIT_RUNTIME_CHECKPOINT_FILE_OUT_H

#include <stddef.h>
#include <stdint.h>

struct plait_blocks_out;

/* A new file that is written from its first byte to its last, a block of 4 MB
 * at a time: a thread writes one, past the page cache where the file system
 * takes that, while the next is put together and its checksum made. What fails
 * may be said by a later call. 0 or -1 with errno. */
struct plait_file_out {
    int fd; /* -1: closed */
    uint64_t bytes;
    uint32_t crc; /* zlib's CRC-32 of what was written */
    struct plait_blocks_out *blocks;
};

/* EEXIST where there is a file of that name. */
int plait_file_out_open(struct plait_file_out *out, const char *path);
/* `image`: where all that will be written lies, one after the other, until the
 * file is closed: it is written from there, and not patched. NULL: anywhere. */
int plait_file_out_open_image(struct plait_file_out *out, const char *path,
                              const void *image);
int plait_file_out_write(struct plait_file_out *out, const void *bytes,
                         size_t size);
/* In place of what was written at `at`; the checksum stays. */
int plait_file_out_patch(struct plait_file_out *out, uint64_t at,
                         const void *bytes, size_t size);
/* With `keep` all is written and synced to the disk first. Does nothing to a
 * closed one. */
int plait_file_out_close(struct plait_file_out *out, int keep);

#endif

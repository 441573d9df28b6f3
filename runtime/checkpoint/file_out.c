/* SPDX-License-Identifier: Apache-2.0 */
/* A new file, written block by block while what follows is made ready, with the
 * checksum of what was written. */
#include "runtime/checkpoint/file_out.h"

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <unistd.h>

#include "runtime/checkpoint/blocks_out.h"

int plait_file_out_open_image(struct plait_file_out *out, const char *path,
                              const void *image)
{
    *out = (struct plait_file_out){.crc = 0};
    out->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out->fd < 0)
        return -1;
    out->blocks = plait_blocks_out_create(out->fd, image);
    if (out->blocks)
        return 0;
    plait_file_out_close(out, 0);
    errno = ENOMEM;
    return -1;
}

int plait_file_out_open(struct plait_file_out *out, const char *path)
{
    return plait_file_out_open_image(out, path, NULL);
}

int plait_file_out_write(struct plait_file_out *out, const void *bytes,
                         size_t size)
{
    /* For NULL, libdeflate returns the initial checksum. */
    if (size > 0)
        out->crc = libdeflate_crc32(out->crc, bytes, size);
    out->bytes += size;
    return plait_blocks_out_add(out->blocks, bytes, size);
}

int plait_file_out_patch(struct plait_file_out *out, uint64_t at,
                         const void *bytes, size_t size)
{
    return plait_blocks_out_patch(out->blocks, at, bytes, size);
}

int plait_file_out_close(struct plait_file_out *out, int keep)
{
    int fd = out->fd, rc = 0, number;

    out->fd = -1;
    if (fd < 0)
        return 0;
    if (keep)
        rc = plait_blocks_out_finish(out->blocks);
    if (keep && rc == 0)
        rc = fsync(fd);
    number = errno;
    plait_blocks_out_destroy(out->blocks);
    out->blocks = NULL;
    if (close(fd) < 0 && rc == 0)
        return -1;
    errno = number;
    return rc;
}

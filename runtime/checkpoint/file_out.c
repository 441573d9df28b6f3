/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/checkpoint/file_out.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

int plait_file_out_open(struct plait_file_out *out, const char *path)
{
    out->bytes = 0;
    out->crc = (uint32_t)crc32_z(0, NULL, 0);
    out->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return out->fd < 0 ? -1 : 0;
}

int plait_file_out_write(struct plait_file_out *out, const void *bytes,
                         size_t size)
{
    const char *at = bytes;
    ssize_t n;

    out->crc = (uint32_t)crc32_z(out->crc, bytes, size);
    out->bytes += size;
    while (size > 0) {
        n = write(out->fd, at, size);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

int plait_file_out_close(struct plait_file_out *out, int keep)
{
    int fd = out->fd, ret = 0, number;

    out->fd = -1;
    if (fd < 0)
        return 0;
    if (keep)
        ret = fsync(fd);
    number = errno;
    if (close(fd) < 0 && ret == 0)
        return -1;
    errno = number;
    return ret;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/convert/read_bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

int plait_read_bytes(int fd, const char *path, uint64_t offset, void *to,
                     size_t size, struct plait_error *err)
{
    ssize_t got;

    for (char *at = to; size > 0; at += got, offset += got, size -= got) {
        got = pread(fd, at, size, (off_t)offset);
        if (got > 0)
            continue;
        if (got < 0 && errno == EINTR) {
            got = 0;
            continue;
        }
        if (got == 0)
            errno = EIO;
        return plait_errorf(err, "%s: cannot read at byte %" PRIu64 ": %s",
                            path, offset, strerror(errno));
    }
    return 0;
}

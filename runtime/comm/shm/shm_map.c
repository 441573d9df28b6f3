/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/shm/shm_map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

void *plait_shm_map(const char *name, bool create, size_t size)
{
    int fd = shm_open(name, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    void *at = MAP_FAILED;

    if (fd < 0)
        return NULL;
    if (!create || (errno = posix_fallocate(fd, 0, (off_t)size)) == 0)
        at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        return at;
    if (create)
        shm_unlink(name);
    return NULL;
}

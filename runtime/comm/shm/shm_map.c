/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/shm/shm_map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Where shm_open() of Linux keeps its files. */
#define FOLDER "/dev/shm"
/* Seconds: all ranks open a piece of memory in the same step of the run's
 * beginning. */
#define OLD_S 3600

/* Where another user made it, or made it short, it could be changed or cut at
 * any time. */
static bool is_sound(int fd, size_t size)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return false;
    errno = EPERM;
    return st.st_uid == geteuid() && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size >= size;
}

void *plait_shm_map(const char *name, bool create, size_t size)
{
    int fd = shm_open(name, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    void *at = MAP_FAILED;

    if (fd < 0)
        return NULL;
    if (create ? (errno = posix_fallocate(fd, 0, (off_t)size)) == 0
               : is_sound(fd, size))
        at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        return at;
    if (create)
        shm_unlink(name);
    return NULL;
}

static bool is_ours(const char *name)
{
    const char *run = name + strlen("plait-");

    return strncmp(name, "plait-", strlen("plait-")) == 0 &&
           strspn(run, "0123456789abcdef") == 16 && run[16] == '-';
}

void plait_shm_sweep(void)
{
    time_t old = time(NULL) - OLD_S;
    DIR *dir = opendir(FOLDER);
    struct dirent *e;
    struct stat st;

    while (dir && (e = readdir(dir)))
        if (is_ours(e->d_name) &&
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_mtime < old)
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
}

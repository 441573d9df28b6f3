/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHER_FILES 256 /* that the process may open besides */

/* About how many files are open: a new one gets the lowest free number. */
static rlim_t count_open(rlim_t most)
{
    int fd = open("/", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return most;
    close(fd);
    return (rlim_t)fd;
}

void plait_files_allow(size_t files)
{
    rlim_t want = (rlim_t)files + OTHER_FILES;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    want += count_open(limit.rlim_cur);
    if (limit.rlim_cur >= want)
        return;
    limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int plait_files_write(int fd, const char *text, size_t size)
{
    while (size) {
        ssize_t n = write(fd, text, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        text += n;
        size -= (size_t)n;
    }
    return 0;
}

bool plait_files_has(const char *dir, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s", dir, name);

    return n < (int)sizeof(path) && access(path, F_OK) == 0;
}

static int make_one(const char *path)
{
    return mkdir(path, 0777) < 0 && errno != EEXIST ? -1 : 0;
}

int plait_files_make_dir(const char *dir)
{
    char *path = strdup(dir), *slash = path;
    struct stat st;
    int rc = 0;

    if (!path)
        return -1;
    while (rc == 0 && *slash && (slash = strchr(slash + 1, '/'))) {
        *slash = '\0';
        rc = make_one(path);
        *slash = '/';
    }
    if (rc == 0)
        rc = make_one(path);
    if (rc == 0 && (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))) {
        errno = ENOTDIR;
        rc = -1;
    }
    free(path);
    return rc;
}

int plait_files_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc, saved;

    if (fd < 0)
        return -1;
    rc = fsync(fd);
    saved = errno;
    close(fd);
    errno = saved;
    return rc;
}

FILE *plait_files_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), saved;
    struct stat st;
    FILE *file;

    if (fd < 0)
        return NULL;
    errno = EINVAL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (file = fdopen(fd, "r")))
        return file;
    saved = errno;
    close(fd);
    errno = saved;
    return NULL;
}

/* A file that has got its final name between open() and flock() was finished
 * by another process. */
int plait_files_lock(const char *path, bool create)
{
    struct stat mine, now;

    for (;;) {
        int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0666);

        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
            close(fd);
            errno = EWOULDBLOCK;
            return -1;
        }
        if (stat(path, &now) < 0
                ? errno != ENOENT
                : fstat(fd, &mine) < 0 ||
                      (mine.st_ino == now.st_ino && mine.st_dev == now.st_dev))
            return fd;
        close(fd);
    }
}

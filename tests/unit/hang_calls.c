/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into ranks: once the file TEST_HANG_GO exists, the rank
 * TEST_HANG_RANK hangs at its next call of the kind TEST_HANG_CALL on a file
 * whose name contains TEST_HANG_FILE, a pattern of the shell:
 * "read": in a read of the pipe TEST_HANG_PIPE, as from a file server that has
 * died
 * "lock": in pread(), on a lock that is never released
 * "sync": in fsync(), asleep
 * "slow": for a while in each pread()
 * "late": for three seconds in each of its first five calls of pread()
 * "map", "latemap": in mmap(), as "read"; for 15 s */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int is_mine(const char *call, int fd)
{
    const char *go = getenv("TEST_HANG_GO"), *kind = getenv("TEST_HANG_CALL");
    const char *rank = getenv("TEST_HANG_RANK"), *me = getenv("PLAIT_RANK");
    const char *name = getenv("TEST_HANG_FILE");
    char link[64], path[4096], pattern[4096];
    ssize_t n;

    if (!me)
        me = getenv("OMPI_COMM_WORLD_RANK");
    if (!go || !kind || !rank || !me || !name || strcmp(rank, me) != 0 ||
        strcmp(kind, call) != 0 || access(go, F_OK) != 0)
        return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    snprintf(pattern, sizeof(pattern), "*%s*", name);
    return fnmatch(pattern, path, 0) == 0;
}

static void hang_for_ever(void)
{
    const char *pipe = getenv("TEST_HANG_PIPE");
    int gone = pipe ? open(pipe, O_RDWR) : -1;
    char c;

    if (read(gone, &c, 1) != 1)
        abort();
}

static void hang_read(int fd)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static _Thread_local int late;

    if (is_mine("read", fd))
        hang_for_ever();
    if (is_mine("lock", fd)) {
        pthread_mutex_lock(&lock);
        pthread_mutex_lock(&lock);
    }
    if (is_mine("slow", fd))
        usleep(20000);
    if (late < 5 && is_mine("late", fd)) {
        late++;
        sleep(3);
    }
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    ssize_t (*real)(int, void *, size_t, off_t) =
        (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");

    hang_read(fd);
    return real(fd, to, n, at);
}

ssize_t pread64(int fd, void *to, size_t n, off64_t at)
{
    ssize_t (*real)(int, void *, size_t, off64_t) =
        (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");

    hang_read(fd);
    return real(fd, to, n, at);
}

void *mmap(void *at, size_t n, int access, int how, int fd, off_t from)
{
    void *(*real)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT,
                                                               "mmap");

    if (is_mine("map", fd))
        hang_for_ever();
    if (is_mine("latemap", fd))
        sleep(15);
    return real(at, n, access, how, fd, from);
}

int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");

    while (is_mine("sync", fd))
        sleep(1);
    return real(fd);
}

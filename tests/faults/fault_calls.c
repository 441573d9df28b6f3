/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into ranks: while the file FAULT_GATE exists, calls of the kind
 * FAULT_CALL ("write", "fsync", "open" for writing) on files whose names begin
 * with FAULT_FILE fail with FAULT_ERRNO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(const char *call, const char *path)
{
    const char *gate = getenv("FAULT_GATE"), *kind = getenv("FAULT_CALL");
    const char *name = getenv("FAULT_FILE"), *number = getenv("FAULT_ERRNO");

    if (!gate || !kind || !name || !number || strcmp(kind, call) != 0 ||
        strncmp(path, name, strlen(name)) != 0 || access(gate, F_OK) != 0)
        return 0;
    errno = atoi(number);
    return 1;
}

static int fails_at(const char *call, int fd)
{
    char link[64], path[4096];
    int saved = errno;
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    if (fails(call, path))
        return 1;
    errno = saved;
    return 0;
}

ssize_t write(int fd, const void *from, size_t n)
{
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");

    return fails_at("write", fd) ? -1 : real(fd, from, n);
}

int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");

    return fails_at("fsync", fd) ? -1 : real(fd);
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) =
        (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    mode_t mode;
    va_list ap;

    va_start(ap, flags);
    mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (flags & O_ACCMODE && fails("open", path))
        return -1;
    return real(path, flags, mode);
}

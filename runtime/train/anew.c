/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "config.h"

#include "runtime/train/anew.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The program that runs, even if its file was replaced or removed meanwhile. */
#define SELF "/proc/self/exe"
/* The numbers of the descriptors that a new life gets from the one before: of
 * its file, and of those that stay open. */
#define VARIABLE "PLAIT_ANEW"
/* Descriptors from this number on are not looked at as the process starts. */
enum { NOTED_MOST = 1 << 16 };

/* What the process was started with. */
static struct {
    bool open[NOTED_MOST]; /* descriptors of the user's: >(COMMAND), 9>FILE */
    cpu_set_t cores;
    bool known; /* cores */
} first;

static int set_close(int fd, bool closes)
{
    int flags = fcntl(fd, F_GETFD);

    if (flags < 0)
        return -1;
    return fcntl(fd, F_SETFD,
                 closes ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC);
}

/* Calls take(fd) with all open descriptors but the standard ones. */
static int visit_files(void (*take)(int fd))
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;

    if (!dir)
        return -1;
    while ((entry = readdir(dir)) != NULL) {
        int fd = atoi(entry->d_name);

        if (fd > STDERR_FILENO)
            take(fd);
    }
    closedir(dir);
    return 0;
}

static void note_users(int fd)
{
    int flags = fcntl(fd, F_GETFD);

    if (fd < NOTED_MOST)
        first.open[fd] = flags >= 0 && !(flags & FD_CLOEXEC);
}

/* Libraries may have opened files that an exec would leave open: the driver's
 * hold the memory of the GPU. */
static void close_other(int fd)
{
    if (fd >= NOTED_MOST || !first.open[fd])
        set_close(fd, true);
}

/* "7 5 8" */
static int name_files(int fd, const int *keep, int n)
{
    char text[80];
    int used = snprintf(text, sizeof(text), "%d", fd);

    for (int i = 0; i < n; i++)
        used +=
            snprintf(text + used, sizeof(text) - (size_t)used, " %d", keep[i]);
    return setenv(VARIABLE, text, 1);
}

int plait_anew(char *const *argv, int fd, const int *keep, int n,
               struct plait_error *err)
{
    const char *what = "descriptors";
    int rc;

    fflush(NULL);
    rc = visit_files(close_other);
    if (rc == 0)
        rc = set_close(fd, false);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = set_close(keep[i], false);
    if (rc == 0)
        rc = name_files(fd, keep, n);
    if (rc == 0) {
        what = SELF;
        if (first.known)
            sched_setaffinity(0, sizeof(first.cores), &first.cores);
        execv(SELF, argv);
    }
    plait_errorf(err, "%s: %s", what, strerror(errno));
    unsetenv(VARIABLE);
    return -1;
}

static void on_late(int number)
{
    static const char line[] = "plait-train: this process has not begun anew "
                               "in time, and the other ranks go on without "
                               "it; it ends\n";

    (void)number;
    if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
        _exit(2);
    _exit(1);
}

int plait_anew_file(void)
{
    const char *text = getenv(VARIABLE);
    int fd = text ? atoi(text) : -1;
    char *end;

    /* Those of the life before are not the user's. */
    for (; text && *text; text = end) {
        set_close((int)strtol(text, &end, 10), true);
        if (end == text)
            break;
    }
    visit_files(note_users);
    first.known = sched_getaffinity(0, sizeof(first.cores), &first.cores) == 0;
    if (!text)
        return -1;
    unsetenv(VARIABLE);
    /* The kernel has named the process after SELF, and the alarm goes on. */
    prctl(PR_SET_NAME, program_invocation_short_name);
    signal(SIGALRM, on_late);
    return fd;
}

void plait_anew_limit(int seconds)
{
    signal(SIGALRM, seconds > 0 ? on_late : SIG_DFL);
    alarm((unsigned)seconds);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/base/capture.h"
#include "topology/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MOST = 64 << 20 };

/* A parent may have had SIGCHLD ignored: then this program inherits that, and
 * no child of it leaves a status behind, or waits to be reaped. */
static void heed_children(void)
{
    struct sigaction now;

    if (sigaction(SIGCHLD, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
        signal(SIGCHLD, SIG_DFL);
}

static int spawn(char *const argv[], int out, int both, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc)
        return rc;
    rc = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                          O_RDONLY, 0);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (!rc)
        rc = both ? posix_spawn_file_actions_adddup2(&actions, out,
                                                     STDERR_FILENO)
                  : posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
                                                     "/dev/null", O_WRONLY, 0);
    if (!rc)
        rc = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* Wait until there is something to read; 0, or an errno. */
static int wait_for(int fd, int64_t end_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    int64_t left;
    int rc;

    do {
        left = end_ms - plait_clock_ms();
        rc = poll(&poll_fd, 1, left > 0 ? (int)left : 0);
    } while (rc < 0 && errno == EINTR);
    return rc > 0 ? 0 : rc < 0 ? errno : ETIMEDOUT;
}

/* Everything up to the end of the file; NULL with errno. */
static char *read_all(int fd, int seconds, size_t *size)
{
    size_t room = 65536, used = 0;
    char *text = malloc(room), *more;
    int64_t end = plait_clock_ms() + seconds * INT64_C(1000);
    ssize_t n = 1;
    int rc = text ? 0 : ENOMEM;

    while (rc == 0 && n != 0) {
        rc = wait_for(fd, end);
        n = rc ? 0 : read(fd, text + used, room - used - 1);
        if (n < 0 && errno != EINTR)
            rc = errno;
        used += n > 0 ? (size_t)n : 0;
        if (used < room - 1)
            continue;
        more = room < TEXT_MOST ? realloc(text, room * 2) : NULL;
        if (more)
            text = more, room *= 2;
        else
            rc = EFBIG;
    }
    if (rc) {
        free(text);
        errno = rc;
        return NULL;
    }
    text[used] = '\0';
    *size = used;
    return text;
}

char *plait_capture(char *const argv[], int both, int seconds, size_t *size,
                    int *status)
{
    int fds[2], rc, saved;
    char *text = NULL;
    pid_t pid = 0;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return NULL;
    heed_children();
    rc = spawn(argv, fds[1], both, &pid);
    close(fds[1]);
    if (rc == 0)
        text = read_all(fds[0], seconds, size);
    saved = rc ? rc : errno;
    close(fds[0]);
    if (rc == 0 && !text)
        kill(pid, SIGKILL);
    while (rc == 0 && waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    errno = saved;
    return text;
}

/* Leave the caller's files, pipes and locks alone: a child that cannot be
 * killed at once must not keep them. */
static void drop_files(int keep)
{
    DIR *dir = opendir("/proc/self/fd");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        int fd = atoi(entry->d_name);

        if (fd > 2 && fd != keep && fd != null && fd != dirfd(dir))
            close(fd);
    }
    if (dir)
        closedir(dir);
    for (int fd = 0; fd <= 2 && null >= 0; fd++)
        dup2(null, fd);
}

/* Wait up to a second for a killed process. One that a driver holds longer is
 * left behind: init reaps it once this process has ended. */
static void reap(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    pid_t rc = 0;

    for (int i = 0; i < 100 && rc == 0; i++) {
        rc = waitpid(pid, NULL, WNOHANG);
        if (rc < 0 && errno == EINTR)
            rc = 0;
        if (rc == 0)
            nanosleep(&pause, NULL);
    }
}

char *plait_capture_call(void (*work)(void *arg, int fd), void *arg,
                         int seconds, size_t *size)
{
    int fds[2], saved;
    char *text;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return NULL;
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        drop_files(fds[1]);
        work(arg, fds[1]);
        _exit(0);
    }
    close(fds[1]);
    text = pid > 0 ? read_all(fds[0], seconds, size) : NULL;
    saved = errno;
    close(fds[0]);
    if (pid > 0) {
        /* Its output has been read to the end, or is no longer wanted. */
        kill(pid, SIGKILL);
        reap(pid);
    }
    errno = saved;
    return text;
}

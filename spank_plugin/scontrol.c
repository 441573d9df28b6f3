/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* pipe2 */
#include "scontrol.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* 100,000 nodes need about 1 MiB. */
enum { TEXT_MOST = 64 << 20 };

extern char **environ;

/* The scontrol beside the srun that runs, or else the one on PATH. */
static void find_scontrol(char *path, size_t size)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n > 0) {
        self[n] = '\0';
        snprintf(path, size, "%s/scontrol", dirname(self));
        if (access(path, X_OK) == 0)
            return;
    }
    snprintf(path, size, "scontrol");
}

static char *read_all(int fd, size_t *size)
{
    size_t room = 65536, used = 0;
    char *text = malloc(room);
    ssize_t n = 0;

    while (text) {
        n = read(fd, text + used, room - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        used += (size_t)n;
        if (used == room && room < TEXT_MOST) {
            char *more = realloc(text, room * 2);

            if (!more)
                break;
            text = more;
            room *= 2;
        }
    }
    *size = used;
    if (text && n == 0)
        return text;
    free(text);
    return NULL;
}

static int spawn(int out, pid_t *pid)
{
    char path[PATH_MAX + 16];
    char *argv[] = {path, "show", "topology", NULL};
    posix_spawn_file_actions_t actions;
    int rc;

    find_scontrol(path, sizeof(path));
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    rc = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
                                              "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawnp(pid, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc == 0 ? 0 : -1;
}

struct plait_fabric *plait_scontrol_parse(const char *text, size_t size,
                                          struct plait_error *err)
{
    static const char none[] = "No topology information";

    if (size >= sizeof(none) - 1 && strncmp(text, none, sizeof(none) - 1) == 0)
        return plait_fabric_create_flat();
    return plait_fabric_parse("scontrol show topology", text, size, err);
}

struct plait_fabric *plait_scontrol_fabric(struct plait_error *err)
{
    struct plait_fabric *fabric = NULL;
    int fds[2], status = -1, rc;
    char *text = NULL;
    size_t size = 0;
    pid_t pid = 0;

    if (pipe2(fds, O_CLOEXEC) < 0) {
        plait_errorf(err, "pipe: %s", strerror(errno));
        return NULL;
    }
    rc = spawn(fds[1], &pid);
    close(fds[1]);
    if (rc == 0)
        text = read_all(fds[0], &size);
    close(fds[0]);
    while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!text || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        plait_errorf(err, "scontrol show topology failed; "
                          "--placement=linear does without");
    else
        fabric = plait_scontrol_parse(text, size, err);
    free(text);
    return fabric;
}

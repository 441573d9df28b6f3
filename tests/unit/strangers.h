/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_STRANGERS_H
#define PLAIT_TESTS_UNIT_STRANGERS_H

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/rendezvous.h"

/* Processes that keep connections to a port: each connection sends the same
 * bytes, or nothing, and is made again when it is dropped. */
struct strangers {
    int port, n; /* connections */
    const void *hello;
    size_t size;
};

static inline bool is_kept(int fd)
{
    char c;

    return fd > 0 && recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0 &&
           errno == EAGAIN;
}

static inline void keep_strangers(const struct strangers *s, int ready)
{
    int *fd = calloc((size_t)s->n, sizeof(*fd));

    for (int round = 0; fd; round++) {
        for (int i = 0; i < s->n; i++) {
            if (is_kept(fd[i]))
                continue;
            if (fd[i] > 0)
                close(fd[i]);
            fd[i] = plait_rendezvous_reach("localhost", s->port, 5);
            if (fd[i] > 0 && s->size)
                send(fd[i], s->hello, s->size, MSG_NOSIGNAL);
        }
        if (round == 0 && write(ready, "", 1) != 1)
            return;
        usleep(1000);
    }
}

/* Starts n processes of strangers, which end with this one, and returns once
 * all their connections have been made. */
static inline void start_strangers(const struct strangers *s, int n, pid_t *pid)
{
    pid_t self = getpid();
    int ready[2];
    char c;

    if (pipe(ready) < 0)
        exit(1);
    for (int i = 0; i < n; i++) {
        if ((pid[i] = fork()) != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == self)
            keep_strangers(&s[i], ready[1]);
        _exit(1);
    }
    close(ready[1]);
    for (int i = 0; i < n; i++)
        if (read(ready[0], &c, 1) != 1)
            exit(1);
    close(ready[0]);
}

static inline void end_strangers(int n, const pid_t *pid)
{
    for (int i = 0; i < n; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
}

#endif

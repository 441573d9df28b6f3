/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/peers.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "topology/base/thread.h"

/* How long a launcher takes to end a job that has lost a process, ms. */
#define LAUNCHER_MS 1500

struct plait_peers {
    int n;
    struct pollfd *fd; /* [n + 1]; the last is written to in order to stop */
    void (*gone)(void *arg, int i);
    void *arg;
    pthread_t thread;
    int running;
};

static int stop_fd(const struct plait_peers *p)
{
    return p->fd[p->n].fd;
}

static void *watch_thread(void *arg)
{
    struct plait_peers *p = arg;
    struct pollfd stop = p->fd[p->n];
    int i;

    while (poll(p->fd, p->n + 1, -1) < 0)
        if (errno != EINTR)
            return NULL;
    for (i = 0; i < p->n && !p->fd[i].revents; i++)
        ;
    if (i < p->n && poll(&stop, 1, LAUNCHER_MS) == 0)
        p->gone(p->arg, i);
    return NULL;
}

static int open_all(struct plait_peers *p, const pid_t *pid, int n)
{
    p->fd = calloc(n + 1, sizeof(*p->fd));
    if (!p->fd)
        return -1;
    p->fd[0] = (struct pollfd){.fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN};
    if (p->fd[0].fd < 0)
        return -1;
    for (; p->n < n; p->n++) {
        int fd = syscall(SYS_pidfd_open, pid[p->n], 0); /* closes on exec */

        if (fd < 0)
            return -1;
        p->fd[p->n + 1] = p->fd[p->n];
        p->fd[p->n].fd = fd;
        p->fd[p->n].events = POLLIN;
    }
    return 0;
}

static int start_thread(struct plait_peers *p)
{
    p->running = plait_thread_create(&p->thread, watch_thread, p) == 0;
    return p->running ? 0 : -1;
}

struct plait_peers *plait_peers_create(const pid_t *pid, int n)
{
    struct plait_peers *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    if (open_all(p, pid, n) == 0)
        return p;
    plait_peers_destroy(p);
    return NULL;
}

int plait_peers_watch(struct plait_peers *p, void (*gone)(void *arg, int i),
                      void *arg)
{
    p->gone = gone;
    p->arg = arg;
    return start_thread(p);
}

bool plait_peers_ended(const struct plait_peers *p, int i, int ms)
{
    /* No copy of p->fd[i]: the thread's poll() writes to its revents. */
    struct pollfd fd = {.fd = p->fd[i].fd, .events = POLLIN};

    return poll(&fd, 1, ms) > 0;
}

void plait_peers_kill(const struct plait_peers *p)
{
    for (int i = 0; i < p->n; i++)
        syscall(SYS_pidfd_send_signal, p->fd[i].fd, SIGKILL, NULL, 0);
}

void plait_peers_destroy(struct plait_peers *p)
{
    const uint64_t one = 1;
    int saved = errno;

    if (!p)
        return;
    if (p->running && write(stop_fd(p), &one, sizeof(one)) == sizeof(one))
        pthread_join(p->thread, NULL);
    for (int i = 0; p->fd && i <= p->n; i++)
        if (p->fd[i].fd > 0)
            close(p->fd[i].fd);
    free(p->fd);
    free(p);
    errno = saved;
}

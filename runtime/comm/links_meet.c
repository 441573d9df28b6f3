/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/links_meet.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/rendezvous.h"
#include "topology/base/hash.h"

/* A machine that has failed is noticed after IDLE + COUNT * INTERVAL seconds on
 * a connection that has nothing under way. */
enum { IDLE_S = 5, INTERVAL_S = 2, COUNT = 5 };

/* Where a rank can be reached. */
struct contact {
    int32_t port;
    char host[HOST_NAME_MAX + 1];
};

static void watch_machine(int fd)
{
    int idle = IDLE_S, interval = INTERVAL_S, count = COUNT;

    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* Every rank connects to those before it, lowest first, and then waits for
 * those behind it: rank 0 waits at once, so that somebody always does. */
static int connect_all(const struct contact *all, int listener,
                       struct plait_meeting *m, uint64_t key, int *fds,
                       struct plait_error *err)
{
    const struct contact *me = &all[m->rank];

    for (int r = 0; r < m->rank; r++) {
        const char *host = all[r].host;

        m->key = key + (uint64_t)r;
        m->root = r;
        fds[r] = plait_rendezvous_join(
            m, strcmp(host, me->host) == 0 ? "localhost" : host, all[r].port, 1,
            err);
        if (fds[r] < 0)
            return -1;
    }
    m->key = key + (uint64_t)m->rank;
    m->root = m->rank;
    return plait_rendezvous_gather(m, listener, fds, err);
}

int plait_links_meet(struct plait_comm *star, const struct plait_launch *launch,
                     double timeout_s, int *fds, struct plait_error *err)
{
    struct contact me = {0},
                   *all = calloc((size_t)launch->world_size, sizeof(*all));
    struct plait_meeting m = {.name = "world",
                              .rank = launch->rank,
                              .size = launch->world_size,
                              .timeout_s = timeout_s};
    uint64_t key = plait_hash_text(
        plait_hash_text(PLAIT_HASH_START, launch->jobid), "links");
    int port = 0, rc = -1, listener = plait_rendezvous_listen(&port);

    for (int i = 0; i < m.size; i++)
        fds[i] = -1;
    memcpy(m.secret, launch->secret, sizeof(m.secret));
    me.port = port;
    gethostname(me.host, sizeof(me.host) - 1);
    if (!all || listener < 0)
        plait_errorf(err, "world: %s", strerror(errno));
    else if (plait_comm_host_all_gather(star, &me, all, sizeof(me)) < 0)
        plait_errorf(err, "%s", plait_comm_error(star));
    else
        rc = connect_all(all, listener, &m, key, fds, err);
    if (listener >= 0)
        close(listener);
    free(all);
    for (int i = 0; i < m.size; i++) {
        if (fds[i] >= 0 && rc == 0)
            watch_machine(fds[i]);
        else if (fds[i] >= 0)
            close(fds[i]);
    }
    return rc;
}

int plait_links_epoll(const int *fds, int n)
{
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC), saved;

    for (int i = 0; epoll >= 0 && i < n; i++)
        if (fds[i] >= 0 &&
            epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event) < 0) {
            saved = errno;
            close(epoll);
            errno = saved;
            return -1;
        }
    return epoll;
}

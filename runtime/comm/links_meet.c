/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/links_meet.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/rendezvous.h"
#include "topology/base/files.h"
#include "topology/base/hash.h"

/* A machine that has failed is noticed after IDLE + COUNT * INTERVAL seconds on
 * a connection that has nothing under way. */
enum { IDLE_S = 5, INTERVAL_S = 2, COUNT = 5 };

static void watch_machine(int fd)
{
    int idle = IDLE_S, interval = INTERVAL_S, count = COUNT;

    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* Every rank connects to those before it, lowest first, and then waits for
 * those behind it: rank 0 waits at once, so that somebody always does. */
static int connect_all(struct plait_members *all, struct plait_meeting *m,
                       uint64_t key, int *fds, struct plait_error *err)
{
    for (int r = 0; r < m->rank; r++) {
        int number = all->order[r];

        m->key = key + (uint64_t)r;
        m->root = r;
        fds[r] = plait_rendezvous_join(m, plait_members_host(all, number),
                                       all->all[number].port, 1, err);
        if (fds[r] < 0)
            return -1;
    }
    m->key = key + (uint64_t)m->rank;
    m->root = m->rank;
    return plait_rendezvous_gather(m, all->listener, fds, err);
}

/* Who is waited for may have ended in the meantime. */
static void look_around(void *arg, int *fds)
{
    const struct plait_members *m = arg;

    for (int r = m->rank + 1; r < m->n; r++)
        if (fds[r] == -1 && plait_members_probe(m, m->order[r]) == 0)
            fds[r] = PLAIT_RENDEZVOUS_GONE;
}

static int check_all(const struct plait_members *m, const int *fds,
                     struct plait_error *err)
{
    for (int r = 0; r < m->n; r++)
        if (fds[r] == PLAIT_RENDEZVOUS_GONE) {
            errno = ECONNREFUSED;
            return plait_errorf(err, "world: rank %d has ended", r);
        }
    return 0;
}

int plait_links_meet(struct plait_members *all, double timeout_s, int *fds,
                     struct plait_error *err)
{
    struct plait_meeting m = {.name = "world",
                              .rank = all->rank,
                              .size = all->n,
                              .timeout_s = timeout_s,
                              .standing = true,
                              .look = all->epoch ? look_around : NULL,
                              .arg = all};
    uint64_t key =
        plait_hash_text(plait_hash_text(PLAIT_HASH_START, all->jobid), "links");
    int rc, saved;

    for (int i = 0; i < m.size; i++)
        fds[i] = -1;
    memcpy(m.secret, all->secret, sizeof(m.secret));
    /* A link to each, and where they share a node a watch of each. */
    plait_files_allow(2 * (size_t)m.size);
    rc = connect_all(all, &m, key + all->epoch, fds, err);
    if (rc == 0)
        rc = check_all(all, fds, err);
    saved = errno;
    for (int i = 0; i < m.size; i++) {
        if (fds[i] >= 0 && rc == 0)
            watch_machine(fds[i]);
        else if (fds[i] >= 0)
            close(fds[i]);
    }
    errno = saved;
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

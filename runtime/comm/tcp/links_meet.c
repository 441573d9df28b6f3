/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/tcp/links_meet.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/comm/bootstrap/ended.h"
#include "runtime/comm/bootstrap/rendezvous.h"
#include "topology/base/hash.h"

/* On an idle connection the failure of a machine is noticed after IDLE + COUNT
 * * INTERVAL seconds. */
enum {
    INTERVAL_S = 2,
    COUNT = 5,
    IDLE_S = PLAIT_LINKS_SILENCE_S - COUNT * INTERVAL_S
};

void plait_links_watch_machine(int fd)
{
    int idle = IDLE_S, interval = INTERVAL_S, count = COUNT;

    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

bool plait_links_is_silent(int error)
{
    return error == EHOSTUNREACH || error == ENETUNREACH || error == ETIMEDOUT;
}

const char *plait_links_reason(int error)
{
    if (plait_links_is_silent(error))
        return "no answer from its machine, which is down, or a link is";
    return strerror(error);
}

/* Whether the process with the lowest number has ended. It told the others
 * about this world, perhaps not all of them, so the rest might never come. */
static bool has_lost_lowest(void *arg)
{
    const struct plait_members *m = arg;
    int lowest = m->present[0];

    return lowest != m->self && plait_members_probe(m, lowest) == 0;
}

static void look_around(void *arg, int *fds)
{
    const struct plait_members *m = arg;

    for (int r = m->rank + 1; r < m->n; r++)
        if (fds[r] == -1 && plait_members_probe(m, m->order[r]) == 0)
            fds[r] = PLAIT_RENDEZVOUS_GONE;
}

static int check_children(const struct plait_tcp_lines *l,
                          struct plait_error *err)
{
    for (int i = 0; i < l->tree.ways; i++)
        if (l->down[i] < 0) {
            errno = ECONNREFUSED;
            return plait_errorf(err, "world: rank %d has ended",
                                l->tree.first[i]);
        }
    return 0;
}

static void find_parent(const struct plait_members *m, int rank,
                        struct plait_tcp_contact *parent)
{
    const struct plait_contact *c = rank < 0 ? NULL : &m->all[m->order[rank]];

    memset(parent, 0, sizeof(*parent));
    if (!c)
        return;
    parent->port = c->port;
    memcpy(parent->host, c->host, sizeof(parent->host));
}

int plait_links_meet(struct plait_members *all, double timeout_s,
                     struct plait_tcp_lines *lines, struct plait_error *err)
{
    struct plait_rendezvous m = {.name = "world",
                                 .rank = all->rank,
                                 .size = all->n,
                                 .timeout_s = timeout_s,
                                 .standing = true,
                                 .look = all->epoch ? look_around : NULL,
                                 .in_vain = all->epoch ? has_lost_lowest
                                                       : plait_ended_some,
                                 .arg = all};
    struct plait_tcp_contact parent;
    int rc;

    m.key =
        plait_hash_text(plait_hash_text(PLAIT_HASH_START, all->jobid), "tree") +
        all->epoch;
    memcpy(m.secret, all->secret, sizeof(m.secret));
    plait_tcp_lines_init(lines, all->rank, all->n);
    find_parent(all, lines->tree.parent, &parent);
    rc = plait_tcp_meet_group(lines, &m, &parent, all->listener, err);
    if (rc < 0 && !all->epoch && plait_ended_some(NULL))
        plait_ended_tell(err);
    return rc == 0 ? check_children(lines, err) : rc;
}

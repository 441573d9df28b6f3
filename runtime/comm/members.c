/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/members.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/stuck/look.h"

static struct plait_members *members_alloc(const struct plait_launch *launch)
{
    struct plait_members *m = calloc(1, sizeof(*m));
    size_t n = (size_t)launch->world_size;

    if (!m)
        return NULL;
    m->listener = -1;
    m->all = calloc(n, sizeof(*m->all));
    m->present = calloc(n, sizeof(*m->present));
    m->order = calloc(n, sizeof(*m->order));
    m->out = calloc(n, sizeof(*m->out));
    m->ids = calloc(n, sizeof(*m->ids));
    m->newest = calloc(n, sizeof(*m->newest));
    if (!m->all || !m->present || !m->order || !m->out || !m->ids ||
        !m->newest) {
        plait_members_destroy(m);
        return NULL;
    }
    m->self = m->rank = launch->rank;
    m->size = m->n = launch->world_size;
    for (int i = 0; i < m->n; i++)
        m->present[i] = m->order[i] = i;
    memcpy(m->jobid, launch->jobid, sizeof(m->jobid));
    memcpy(m->secret, launch->secret, sizeof(m->secret));
    return m;
}

/* -1 with errno. */
static int describe_self(struct plait_contact *me, int port)
{
    cpu_set_t cpus;

    me->port = port;
    me->pid = getpid();
    me->space = plait_stuck_space();
    gethostname(me->host, sizeof(me->host) - 1);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
        memcpy(me->cpus, &cpus, sizeof(me->cpus));
    return getrandom(&me->id, sizeof(me->id), 0) == sizeof(me->id) ? 0 : -1;
}

/* What others say of themselves is checked before it is used: a host name is a
 * string, and a pid is one process. */
static int check_contacts(struct plait_members *m, struct plait_error *err)
{
    for (int i = 0; i < m->size; i++) {
        const struct plait_contact *c = &m->all[i];

        if (c->port <= 0 || c->port > 65535 || c->pid <= 0 ||
            !memchr(c->host, '\0', sizeof(c->host)))
            return plait_errorf(err,
                                "world: rank %d does not say where it can be "
                                "reached: is it of another version of plait?",
                                i);
        m->ids[i] = c->id;
    }
    return 0;
}

struct plait_members *plait_members_create(struct plait_comm *star,
                                           const struct plait_launch *launch,
                                           struct plait_error *err)
{
    struct plait_members *m = members_alloc(launch);
    struct plait_contact me = {.pid = 0};
    int port = 0;

    if (!m) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    m->listener = plait_rendezvous_listen(&port);
    if (m->listener < 0 || describe_self(&me, port) < 0)
        plait_errorf(err, "world: %s", strerror(errno));
    else if (plait_comm_host_all_gather(star, &me, m->all, sizeof(me)) < 0)
        plait_errorf(err, "%s", plait_comm_error(star));
    else if (check_contacts(m, err) == 0)
        return m;
    plait_members_destroy(m);
    return NULL;
}

void plait_members_destroy(struct plait_members *m)
{
    int saved = errno;

    if (!m)
        return;
    if (m->listener >= 0)
        close(m->listener);
    free(m->all);
    free(m->present);
    free(m->order);
    free(m->out);
    free(m->ids);
    free(m->newest);
    free(m);
    errno = saved;
}

const char *plait_members_host(const struct plait_members *m, int number)
{
    const char *host = m->all[number].host;

    return strcmp(host, m->all[m->self].host) == 0 ? "localhost" : host;
}

bool plait_members_ended(const struct plait_members *m, int number)
{
    pid_t pid = (pid_t)m->all[number].pid;

    return m->all[number].space == m->all[m->self].space &&
           ((kill(pid, 0) < 0 && errno == ESRCH) ||
            plait_stuck_process_state(pid) == 'Z');
}

int plait_members_probe(const struct plait_members *m, int number)
{
    int fd;

    if (plait_members_ended(m, number))
        return 0;
    fd = plait_rendezvous_reach(plait_members_host(m, number),
                                m->all[number].port, 1);

    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 1 : errno == ECONNREFUSED ? 0 : -1;
}

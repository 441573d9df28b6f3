/* SPDX-License-Identifier: Apache-2.0 */
/* Host values over TCP, by the launch contract's rendezvous: what NCCL needs
 * to find its peers where there is no MPI. A star: rank 0 of each group
 * listens, the others connect to it. For control, not for the step's data. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/comm_private.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/rendezvous.h"
#include "topology/base/hash.h"

struct tcp_comm {
    struct plait_comm base;
    struct plait_meeting meeting;
    int *fds; /* rank 0: [size], to each rank, -1 at 0; others: [1] */
};

/* Where a rank can be reached; what ranks tell each other before a split. */
struct contact {
    int32_t color, key, port;
    char host[HOST_NAME_MAX + 1];
};

static const struct plait_comm_vtable tcp_vtable;

static struct tcp_comm *tcp_of(struct plait_comm *comm)
{
    return (struct tcp_comm *)comm;
}

/* -- life ---------------------------------------------------------------- */

static struct tcp_comm *group_create(int rank, int size, uint64_t key,
                                     const char *secret, double timeout_s,
                                     const char *name)
{
    struct tcp_comm *c = calloc(1, sizeof(*c));
    int n = rank == 0 ? size : 1;

    if (c == NULL)
        return NULL;
    plait_comm_init(&c->base, &tcp_vtable, NULL, NULL, rank, size, name);
    c->meeting = (struct plait_meeting){.name = c->base.name,
                                        .key = key,
                                        .rank = rank,
                                        .size = size,
                                        .timeout_s = timeout_s};
    memcpy(c->meeting.secret, secret, sizeof(c->meeting.secret));
    c->fds = malloc((size_t)n * sizeof(*c->fds));
    if (c->fds == NULL) {
        free(c);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        c->fds[i] = -1;
    return c;
}

static int join_group(struct tcp_comm *c, const char *host, int port, int ports,
                      struct plait_error *err)
{
    c->fds[0] = plait_rendezvous_join(&c->meeting, host, port, ports, err);
    return c->fds[0] < 0 ? -1 : 0;
}

static void tcp_destroy(struct plait_comm *comm)
{
    struct tcp_comm *c = tcp_of(comm);
    int n = comm->rank == 0 ? comm->size : 1;

    for (int i = 0; i < n; i++)
        if (c->fds[i] >= 0)
            close(c->fds[i]);
    free(c->fds);
    free(c);
}

/* Peers that wait for this rank see the connection close. */
static void tcp_abort(struct plait_comm *comm)
{
    struct tcp_comm *c = tcp_of(comm);
    int n = comm->rank == 0 ? comm->size : 1;

    for (int i = 0; i < n; i++)
        if (c->fds[i] >= 0)
            shutdown(c->fds[i], SHUT_RDWR);
}

struct plait_comm *plait_tcp_create(const struct plait_launch *launch,
                                    double timeout_s, struct plait_error *err)
{
    uint64_t key = plait_hash_text(PLAIT_HASH_START, launch->jobid);
    int port = launch->master_port, listener, rc;
    struct tcp_comm *c;

    if (plait_rendezvous_check(launch->secret, err) < 0)
        return NULL;
    c = group_create(launch->rank, launch->world_size, key, launch->secret,
                     timeout_s, "world");
    if (c == NULL) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    if (launch->rank > 0) {
        rc = join_group(c, launch->master_addr, port, PLAIT_RENDEZVOUS_PORTS,
                        err);
    } else if ((listener = plait_rendezvous_listen(&port)) < 0) {
        rc = plait_errorf(err, "world: MASTER_PORT %d and the %d after it: %s",
                          launch->master_port, PLAIT_RENDEZVOUS_PORTS - 1,
                          strerror(errno));
    } else {
        rc = plait_rendezvous_gather(&c->meeting, listener, c->fds, err);
        close(listener);
    }
    if (rc == 0)
        return &c->base;
    rc = errno;
    tcp_destroy(&c->base);
    errno = rc;
    return NULL;
}

/* -- host values --------------------------------------------------------- */

static int peer_lost(struct tcp_comm *c, int rank)
{
    return plait_comm_fail(&c->base, "%s: rank %d is gone: %s", c->base.name,
                           rank, strerror(errno));
}

/* recv of rank 0 = the send of every rank; the others do not use recv. */
static int gather_to_root(struct tcp_comm *c, const void *send, void *recv,
                          size_t bytes)
{
    if (c->base.rank > 0)
        return plait_write_all(c->fds[0], send, bytes) < 0 ? peer_lost(c, 0)
                                                           : 0;
    memmove(recv, send, bytes);
    for (int i = 1; i < c->base.size; i++)
        if (plait_read_all(c->fds[i], (char *)recv + (size_t)i * bytes, bytes) <
            0)
            return peer_lost(c, i);
    return 0;
}

/* Rank 0's buffer to every rank but `except`. */
static int send_from_root(struct tcp_comm *c, void *buf, size_t bytes,
                          int except)
{
    if (c->base.rank > 0) {
        if (c->base.rank != except && plait_read_all(c->fds[0], buf, bytes) < 0)
            return peer_lost(c, 0);
        return 0;
    }
    for (int i = 1; i < c->base.size; i++)
        if (i != except && plait_write_all(c->fds[i], buf, bytes) < 0)
            return peer_lost(c, i);
    return 0;
}

static int tcp_host_broadcast(struct plait_comm *comm, void *buf, size_t bytes,
                              int root)
{
    struct tcp_comm *c = tcp_of(comm);

    if (root > 0 && comm->rank == root &&
        plait_write_all(c->fds[0], buf, bytes) < 0)
        return peer_lost(c, 0);
    if (root > 0 && comm->rank == 0 &&
        plait_read_all(c->fds[root], buf, bytes) < 0)
        return peer_lost(c, root);
    return send_from_root(c, buf, bytes, root);
}

static int tcp_host_all_gather(struct plait_comm *comm, const void *send,
                               void *recv, size_t bytes)
{
    struct tcp_comm *c = tcp_of(comm);

    if (gather_to_root(c, send, recv, bytes) < 0)
        return -1;
    return send_from_root(c, recv, bytes * (size_t)comm->size, -1);
}

static int tcp_barrier(struct plait_comm *comm)
{
    char here = 1, *all = malloc((size_t)comm->size);
    int rc;

    if (all == NULL)
        return plait_comm_fail(comm, "%s: out of memory", comm->name);
    rc = tcp_host_all_gather(comm, &here, all, 1);
    free(all);
    return rc;
}

static int tcp_host_all_reduce(struct plait_comm *comm, double *values,
                               size_t n, enum plait_reduce op)
{
    struct tcp_comm *c = tcp_of(comm);
    size_t rows = comm->rank == 0 ? (size_t)comm->size : 1;
    double *all = malloc(rows * n * sizeof(*all) + 1);
    int rc;

    if (all == NULL)
        return plait_comm_fail(comm, "%s: out of memory", comm->name);
    rc = gather_to_root(c, values, all, n * sizeof(*values));
    for (size_t i = n; rc == 0 && comm->rank == 0 && i < rows * n; i++) {
        double x = all[i], *y = &values[i % n];

        *y = op == PLAIT_SUM ? *y + x : x > *y || x != x ? x : *y;
    }
    if (rc == 0)
        rc = send_from_root(c, values, n * sizeof(*values), -1);
    free(all);
    return rc;
}

/* -- split --------------------------------------------------------------- */

static bool comes_before(const struct contact *all, int a, int b)
{
    return all[a].key != all[b].key ? all[a].key < all[b].key : a < b;
}

/* This rank's rank in its group, the group's size, and the group's rank 0. */
static void group_of(const struct contact *all, int n, int me, int *rank,
                     int *size, int *root)
{
    *rank = *size = 0;
    *root = me;
    for (int i = 0; i < n; i++) {
        if (all[i].color != all[me].color)
            continue;
        (*size)++;
        *rank += comes_before(all, i, me);
        if (comes_before(all, i, *root))
            *root = i;
    }
}

static struct plait_comm *connect_group(struct tcp_comm *parent,
                                        const struct contact *all, int listener,
                                        const char *name,
                                        struct plait_error *err)
{
    const struct contact *me = &all[parent->base.rank];
    struct tcp_comm *c;
    int rank, size, root, rc;

    group_of(all, parent->base.size, parent->base.rank, &rank, &size, &root);
    c = group_create(rank, size,
                     plait_hash_text(parent->meeting.key + me->color + 1, name),
                     parent->meeting.secret, parent->meeting.timeout_s, name);
    if (c == NULL) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    if (rank == 0)
        rc = plait_rendezvous_gather(&c->meeting, listener, c->fds, err);
    else
        rc = join_group(c,
                        strcmp(all[root].host, me->host) == 0 ? "localhost"
                                                              : all[root].host,
                        all[root].port, 1, err);
    if (rc == 0)
        return &c->base;
    tcp_destroy(&c->base);
    return NULL;
}

static int tcp_split(struct plait_comm *parent, int color, int key,
                     const char *name, const struct plait_group_site *site,
                     struct plait_comm **comm, struct plait_error *err)
{
    struct contact me = {.color = color, .key = key};
    struct contact *all = calloc((size_t)parent->size, sizeof(*all));
    int listener = -1, port = 0, rc = -1;

    (void)site;
    *comm = NULL;
    if (color >= 0)
        listener = plait_rendezvous_listen(&port);
    me.port = port;
    gethostname(me.host, sizeof(me.host) - 1);
    if (all == NULL || (color >= 0 && listener < 0))
        plait_errorf(err, "%s: %s", name, strerror(errno));
    else if (tcp_host_all_gather(parent, &me, all, sizeof(me)) < 0)
        plait_errorf(err, "%s", parent->error);
    else if (color < 0)
        rc = 0;
    else
        rc = (*comm = connect_group(tcp_of(parent), all, listener, name,
                                    err)) != NULL
                 ? 0
                 : -1;
    if (listener >= 0)
        close(listener);
    free(all);
    return rc;
}

/* -- transfers ----------------------------------------------------------- */

static int tcp_run(struct plait_comm *comm, const struct plait_transfer *t,
                   struct plait_queue *q, struct plait_request **req)
{
    (void)t;
    (void)q;
    (void)req;
    return plait_comm_fail(comm,
                           "%s: the rendezvous carries control values "
                           "only",
                           comm->name);
}

static const struct plait_comm_vtable tcp_vtable = {
    .name = "tcp",
    .destroy = tcp_destroy,
    .abort = tcp_abort,
    .split = tcp_split,
    .run = tcp_run,
    .barrier = tcp_barrier,
    .host_broadcast = tcp_host_broadcast,
    .host_all_gather = tcp_host_all_gather,
    .host_all_reduce = tcp_host_all_reduce,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Host values over TCP, by the launch contract's rendezvous: what NCCL needs
 * to find its peers where there is no MPI. A star: rank 0 of each group
 * listens, the others connect to it. For control, not for the step's data. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/comm_private.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct tcp_comm {
    struct plait_comm base;
    uint64_t key; /* of the job, so that no stranger is taken for a peer */
    double timeout_s;
    int *fds; /* rank 0: [size], to each rank, -1 at 0; others: [1] */
};

/* What a rank says when it has connected. */
struct hello {
    uint64_t key;
    uint32_t rank, size;
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

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* -- sockets ----------------------------------------------------------------
 */

static int write_all(int fd, const void *buf, size_t bytes)
{
    const char *p = buf;

    while (bytes > 0) {
        ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int read_all(int fd, void *buf, size_t bytes)
{
    char *p = buf;

    while (bytes > 0) {
        ssize_t n = recv(fd, p, bytes, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ECONNRESET;
        if (n <= 0)
            return -1;
        p += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int set_up(int fd)
{
    int one = 1;

    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* A socket that listens on every address; port 0: any, told in *port. */
static int listen_on(int *port)
{
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6};
    struct sockaddr_in a4 = {.sin_family = AF_INET};
    int one = 1, zero = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr *a = (struct sockaddr *)&a6;
    socklen_t n = sizeof(a6);

    a6.sin6_port = a4.sin_port = htons((uint16_t)*port);
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        a = (struct sockaddr *)&a4;
        n = sizeof(a4);
    } else {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    }
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, a, n) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, a, &n) < 0) {
        close(fd);
        return -1;
    }
    /* The port lies at the same place in both kinds of address. */
    *port = ntohs(a == (void *)&a4 ? a4.sin_port : a6.sin6_port);
    return fd;
}

/* One try over every address of the host; -1 with errno. */
static int connect_once(const char *host, int port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
    char service[16];
    int fd = -1;

    snprintf(service, sizeof(service), "%d", port);
    if (getaddrinfo(host, service, &hints, &list) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    for (a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            int saved = errno;

            close(fd);
            errno = saved;
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

/* Until the listener is there, or the deadline. */
static int connect_to(const char *host, int port, double deadline)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    int fd;

    while ((fd = connect_once(host, port)) < 0 && now() < deadline)
        nanosleep(&pause, NULL);
    return fd;
}

/* -- a group comes together --------------------------------------------------
 */

/* Takes one connection; 0 also where it was none of ours. */
static int accept_one(struct tcp_comm *c, int listener, int *missing)
{
    const struct timeval patience = {.tv_sec = 5};
    const struct timeval for_ever = {0};
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct hello hello;

    if (fd < 0)
        return errno == EINTR || errno == ECONNABORTED ? 0 : -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (read_all(fd, &hello, sizeof(hello)) < 0 || hello.key != c->key ||
        hello.size != (uint32_t)c->base.size || hello.rank == 0 ||
        hello.rank >= hello.size || c->fds[hello.rank] >= 0) {
        close(fd);
        return 0;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever));
    set_up(fd);
    c->fds[hello.rank] = fd;
    (*missing)--;
    return 0;
}

static int gather_peers(struct tcp_comm *c, int listener,
                        struct plait_error *err)
{
    double deadline = now() + c->timeout_s;
    int missing = c->base.size - 1;

    while (missing > 0) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        double left = deadline - now();

        if (left <= 0) {
            errno = ETIMEDOUT;
            return plait_errorf(err,
                                "%s: %d of %d ranks did not come within %g "
                                "s",
                                c->base.name, missing, c->base.size,
                                c->timeout_s);
        }
        if (poll(&p, 1, (int)(left * 1000) + 1) > 0 &&
            accept_one(c, listener, &missing) < 0)
            return plait_errorf(err, "%s: accept: %s", c->base.name,
                                strerror(errno));
    }
    return 0;
}

static int join(struct tcp_comm *c, const char *host, int port,
                struct plait_error *err)
{
    struct hello hello = {c->key, (uint32_t)c->base.rank,
                          (uint32_t)c->base.size};
    int fd = connect_to(host, port, now() + c->timeout_s);

    if (fd < 0 || write_all(fd, &hello, sizeof(hello)) < 0) {
        int saved = errno;

        if (fd >= 0)
            close(fd);
        plait_errorf(err, "%s: rank 0 at %s port %d: %s", c->base.name, host,
                     port, strerror(saved));
        errno = saved;
        return -1;
    }
    set_up(fd);
    c->fds[0] = fd;
    return 0;
}

static struct tcp_comm *group_create(int rank, int size, uint64_t key,
                                     double timeout_s, const char *name)
{
    struct tcp_comm *c = malloc(sizeof(*c));
    int n = rank == 0 ? size : 1;

    if (c == NULL)
        return NULL;
    plait_comm_init(&c->base, &tcp_vtable, NULL, NULL, rank, size, name);
    c->key = key;
    c->timeout_s = timeout_s;
    c->fds = malloc((size_t)n * sizeof(*c->fds));
    if (c->fds == NULL) {
        free(c);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        c->fds[i] = -1;
    return c;
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

/* Peers that wait for this rank see the end of the connection. */
static void tcp_abort(struct plait_comm *comm)
{
    struct tcp_comm *c = tcp_of(comm);
    int n = comm->rank == 0 ? comm->size : 1;

    for (int i = 0; i < n; i++)
        if (c->fds[i] >= 0)
            shutdown(c->fds[i], SHUT_RDWR);
}

/* FNV-1a (Fowler, Noll, Vo) */
static uint64_t hash(uint64_t h, const char *text)
{
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return h;
}

struct plait_comm *plait_tcp_create(const struct plait_launch *launch,
                                    double timeout_s, struct plait_error *err)
{
    uint64_t key = hash(UINT64_C(14695981039346656037), launch->jobid);
    struct tcp_comm *c =
        group_create(launch->rank, launch->world_size, key, timeout_s, "world");
    int port = launch->master_port, listener, rc;

    if (c == NULL) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    if (launch->rank > 0) {
        rc = join(c, launch->master_addr, port, err);
    } else if ((listener = listen_on(&port)) < 0) {
        rc = plait_errorf(err, "world: MASTER_PORT %d: %s", launch->master_port,
                          strerror(errno));
    } else {
        rc = gather_peers(c, listener, err);
        close(listener);
    }
    if (rc == 0)
        return &c->base;
    rc = errno;
    tcp_destroy(&c->base);
    errno = rc;
    return NULL;
}

/* -- host values --------------------------------------------------------------
 */

static int lost(struct tcp_comm *c, int rank)
{
    return plait_comm_fail(&c->base, "%s: rank %d is gone: %s", c->base.name,
                           rank, strerror(errno));
}

/* recv of rank 0 = the send of every rank; recv is used there alone. */
static int gather(struct tcp_comm *c, const void *send, void *recv,
                  size_t bytes)
{
    if (c->base.rank > 0)
        return write_all(c->fds[0], send, bytes) < 0 ? lost(c, 0) : 0;
    memmove(recv, send, bytes);
    for (int i = 1; i < c->base.size; i++)
        if (read_all(c->fds[i], (char *)recv + (size_t)i * bytes, bytes) < 0)
            return lost(c, i);
    return 0;
}

/* Rank 0's buffer to every rank but `except`. */
static int spread(struct tcp_comm *c, void *buf, size_t bytes, int except)
{
    if (c->base.rank > 0) {
        if (c->base.rank != except && read_all(c->fds[0], buf, bytes) < 0)
            return lost(c, 0);
        return 0;
    }
    for (int i = 1; i < c->base.size; i++)
        if (i != except && write_all(c->fds[i], buf, bytes) < 0)
            return lost(c, i);
    return 0;
}

static int tcp_host_broadcast(struct plait_comm *comm, void *buf, size_t bytes,
                              int root)
{
    struct tcp_comm *c = tcp_of(comm);

    if (root > 0 && comm->rank == root && write_all(c->fds[0], buf, bytes) < 0)
        return lost(c, 0);
    if (root > 0 && comm->rank == 0 && read_all(c->fds[root], buf, bytes) < 0)
        return lost(c, root);
    return spread(c, buf, bytes, root);
}

static int tcp_host_all_gather(struct plait_comm *comm, const void *send,
                               void *recv, size_t bytes)
{
    struct tcp_comm *c = tcp_of(comm);

    if (gather(c, send, recv, bytes) < 0)
        return -1;
    return spread(c, recv, bytes * (size_t)comm->size, -1);
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
    rc = gather(c, values, all, n * sizeof(*values));
    for (size_t i = n; rc == 0 && comm->rank == 0 && i < rows * n; i++) {
        double x = all[i], *y = &values[i % n];

        *y = op == PLAIT_SUM ? *y + x : x > *y || x != x ? x : *y;
    }
    if (rc == 0)
        rc = spread(c, values, n * sizeof(*values), -1);
    free(all);
    return rc;
}

/* -- split -------------------------------------------------------------------
 */

static bool before(const struct contact *all, int a, int b)
{
    return all[a].key != all[b].key ? all[a].key < all[b].key : a < b;
}

/* My place among those of my color, their number, and the first of them. */
static void group_of(const struct contact *all, int n, int me, int *rank,
                     int *size, int *root)
{
    *rank = *size = 0;
    *root = me;
    for (int i = 0; i < n; i++) {
        if (all[i].color != all[me].color)
            continue;
        (*size)++;
        *rank += before(all, i, me);
        if (before(all, i, *root))
            *root = i;
    }
}

static struct plait_comm *meet(struct tcp_comm *parent,
                               const struct contact *all, int listener,
                               const char *name, struct plait_error *err)
{
    const struct contact *me = &all[parent->base.rank];
    struct tcp_comm *c;
    int rank, size, root, rc;

    group_of(all, parent->base.size, parent->base.rank, &rank, &size, &root);
    c = group_create(rank, size, hash(parent->key + me->color + 1, name),
                     parent->timeout_s, name);
    if (c == NULL) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    if (rank == 0)
        rc = gather_peers(c, listener, err);
    else
        rc = join(c,
                  strcmp(all[root].host, me->host) == 0 ? "localhost"
                                                        : all[root].host,
                  all[root].port, err);
    if (rc == 0)
        return &c->base;
    tcp_destroy(&c->base);
    return NULL;
}

static int tcp_split(struct plait_comm *parent, int color, int key,
                     const char *name, struct plait_comm **comm,
                     struct plait_error *err)
{
    struct contact me = {.color = color, .key = key};
    struct contact *all = calloc((size_t)parent->size, sizeof(*all));
    int listener = -1, port = 0, rc = -1;

    *comm = NULL;
    if (color >= 0)
        listener = listen_on(&port);
    me.port = port;
    gethostname(me.host, sizeof(me.host) - 1);
    if (all == NULL || (color >= 0 && listener < 0))
        plait_errorf(err, "%s: %s", name, strerror(errno));
    else if (tcp_host_all_gather(parent, &me, all, sizeof(me)) < 0)
        plait_errorf(err, "%s", parent->error);
    else if (color < 0)
        rc = 0;
    else
        rc = (*comm = meet(tcp_of(parent), all, listener, name, err)) != NULL
                 ? 0
                 : -1;
    if (listener >= 0)
        close(listener);
    free(all);
    return rc;
}

/* -- transfers
 * ----------------------------------------------------------------- */

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

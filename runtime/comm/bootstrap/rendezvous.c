/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/bootstrap/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/greeting.h"
#include "runtime/comm/bootstrap/notice.h"
#include "runtime/trace/trace.h"

/* A connection that has not proved the secret within this time is dropped. */
#define PATIENCE_S 5
/* How often the root calls look(). */
#define LOOK_S 0.1
/* Unproved connections at once. */
#define MAX_GUESTS 256
/* How long each of them that was not answered has when others wait. */
#define CROWDED_S 0.2

/* -- sockets ------------------------------------------------------------- */

int plait_write_all(int fd, const void *buf, size_t bytes)
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

int plait_read_all(int fd, void *buf, size_t bytes)
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

/* -1 with errno. */
static int listen_at(int port)
{
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6};
    struct sockaddr_in a4 = {.sin_family = AF_INET};
    struct sockaddr *a = (struct sockaddr *)&a6;
    int one = 1, zero = 0, saved;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof(a6);

    a6.sin6_port = a4.sin_port = htons((uint16_t)port);
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        a = (struct sockaddr *)&a4;
        n = sizeof(a4);
    } else {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    }
    if (fd < 0)
        return -1;
    /* Connections of an earlier step may still occupy the port. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, a, n) == 0 && listen(fd, SOMAXCONN) == 0 &&
        fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
        return fd;
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);

    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return -1;
    return ntohs(a.ss_family == AF_INET
                     ? ((struct sockaddr_in *)&a)->sin_port
                     : ((struct sockaddr_in6 *)&a)->sin6_port);
}

int plait_rendezvous_listen(int *port)
{
    int i, fd = -1, ports = *port == 0 ? 1 : PLAIT_RENDEZVOUS_PORTS;

    for (i = 0; fd < 0 && i < ports && *port + i < 65536; i++)
        fd = listen_at(*port + i);
    if (fd >= 0)
        *port = port_of(fd);
    return fd;
}

/* -- rank 0 -------------------------------------------------------------- */

/* A connection that has not proved the secret yet. */
struct guest {
    int fd;
    bool answered;
    double until;
    struct plait_greeting greeting;
};

struct host {
    const struct plait_meeting *m;
    int *fds;
    double looked;
    bool out; /* the others go on without this process */
    int nguests;
    struct guest guest[MAX_GUESTS];
};

static void drop_guest(struct host *h, int i)
{
    if (h->guest[i].fd >= 0)
        close(h->guest[i].fd);
    memmove(&h->guest[i], &h->guest[i + 1],
            (size_t)(--h->nguests - i) * sizeof(h->guest[i]));
}

/* The guest that makes room for another one; -1: none. A guest that was
 * answered stays: its proof is on the way. */
static int who_yields(const struct host *h)
{
    double now = plait_trace_now();

    for (int i = 0; i < h->nguests; i++)
        if (!h->guest[i].answered)
            return now > h->guest[i].until - PATIENCE_S + CROWDED_S ? i : -1;
    return -1;
}

/* The ranks of a large job come all at once. Without room they wait in the
 * listener's queue until the oldest guest without an answer has had
 * CROWDED_S. */
static bool has_room(const struct host *h)
{
    return h->nguests < MAX_GUESTS || who_yields(h) >= 0;
}

static void add_guest(struct host *h, int fd)
{
    if (h->nguests == MAX_GUESTS)
        drop_guest(h, who_yields(h));
    h->guest[h->nguests] =
        (struct guest){.fd = fd, .until = plait_trace_now() + PATIENCE_S};
    h->nguests++;
}

static bool is_expected(const struct host *h, uint32_t rank)
{
    return rank > (uint32_t)h->m->root && h->fds[rank] == -1;
}

/* Read what has arrived. 0: not complete, 1: a peer, -1: not a peer. */
static int read_guest(struct host *h, struct guest *g)
{
    int heard = plait_greeting_hear(&g->greeting, h->m, g->fd);

    if (heard == PLAIT_GREETING_NOTICE) {
        h->out |=
            plait_notice_take(h->m, &g->greeting.hello, g->greeting.proof);
        return -1;
    }
    if (heard > 0 && !is_expected(h, g->greeting.hello.rank))
        return -1;
    if (heard == 1) {
        g->answered = true;
        g->until = plait_trace_now() + PATIENCE_S;
        return plait_greeting_reply(&g->greeting, h->m, g->fd);
    }
    if (heard == 2)
        return plait_greeting_confirm(g->fd) < 0 ? -1 : 1;
    return heard;
}

/* polled: when it was asked what can be read. A guest whose time ran out later,
 * while this process was stopped, may have sent its proof in time. */
static void read_guests(struct host *h, const struct pollfd *p, double polled)
{
    /* Backwards: dropping a guest moves only those that were read already. */
    for (int i = h->nguests - 1; i >= 0; i--) {
        struct guest *g = &h->guest[i];
        int is = 0;

        if (p[i].revents != 0)
            is = read_guest(h, g);
        if (is > 0) {
            plait_greeting_settle(g->fd);
            h->fds[g->greeting.hello.rank] = g->fd;
            g->fd = -1;
        }
        if (is != 0 || polled > g->until)
            drop_guest(h, i);
    }
}

static int count_missing(const struct host *h)
{
    int n = 0;

    for (int r = h->m->root + 1; r < h->m->size; r++)
        n += h->fds[r] == -1;
    return n;
}

static void look_around(struct host *h)
{
    double now = plait_trace_now();

    if (!h->m->look || now - h->looked < LOOK_S)
        return;
    h->m->look(h->m->arg, h->fds);
    h->looked = plait_trace_now();
}

/* One round of poll() and accept(); -1 with errno. */
static int serve_guests(struct host *h, int listener, double deadline)
{
    struct pollfd p[MAX_GUESTS + 1];
    double now = plait_trace_now(), left = deadline - now;
    bool room = has_room(h);
    double pause = h->m->look ? LOOK_S : 1;
    int fd;

    for (int i = 0; i < h->nguests; i++)
        p[i] = (struct pollfd){h->guest[i].fd, POLLIN, 0};
    p[h->nguests] = (struct pollfd){room ? listener : -1, POLLIN, 0};
    left = room || left < CROWDED_S ? left : CROWDED_S;
    if (left <= 0) {
        errno = ETIMEDOUT;
        return -1;
    }
    if (poll(p, (nfds_t)h->nguests + 1,
             (int)((left < pause ? left : pause) * 1000) + 1) < 0)
        return errno == EINTR ? 0 : -1;
    read_guests(h, p, now);
    errno = EAGAIN;
    while (has_room(h) && (fd = accept4(listener, NULL, NULL,
                                        SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
        add_guest(h, fd);
    return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ? 0 : -1;
}

int plait_rendezvous_gather(const struct plait_meeting *m, int listener,
                            int *fds, struct plait_error *err)
{
    double deadline = plait_trace_now() + m->timeout_s;
    struct host *h = calloc(1, sizeof(*h));
    int rc = 0, saved;

    if (!h)
        return plait_errorf(err, "%s: out of memory", m->name);
    h->m = m;
    h->fds = fds;
    for (look_around(h); rc == 0 && !h->out && count_missing(h) > 0;
         look_around(h))
        rc = serve_guests(h, listener, deadline);
    saved = h->out ? ESTALE : errno;
    rc = h->out ? -1 : rc;
    if (rc < 0 && saved == ETIMEDOUT)
        plait_errorf(err, "%s: %d of %d ranks did not come within %g s",
                     m->name, count_missing(h), m->size, m->timeout_s);
    else if (h->out)
        plait_errorf(err, "%s: it goes on without this rank", m->name);
    else if (rc < 0)
        plait_errorf(err, "%s: accept: %s", m->name, strerror(saved));
    while (h->nguests > 0)
        drop_guest(h, 0);
    free(h);
    errno = saved;
    return rc;
}

/* -- the others ---------------------------------------------------------- */

/* Tries every address of the host once. */
int plait_rendezvous_reach(const char *host, int port, int patience_s)
{
    const struct timeval patience = {.tv_sec = patience_s};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
    char service[16];
    int fd = -1, refused = 0;

    snprintf(service, sizeof(service), "%d", port);
    if (getaddrinfo(host, service, &hints, &list) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    for (a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            /* EINPROGRESS is what connect() says after SO_SNDTIMEO. */
            int saved = errno == EINPROGRESS ? ETIMEDOUT : errno;

            refused |= saved == ECONNREFUSED;
            close(fd);
            errno = refused ? ECONNREFUSED : saved;
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

int plait_rendezvous_greet(const struct plait_meeting *m, int fd)
{
    struct plait_greeting g;

    if (plait_greeting_begin(&g, m, fd) < 0 ||
        plait_read_all(fd, &g.answer, sizeof(g.answer)) < 0 ||
        plait_greeting_prove(&g, m, fd) < 0)
        return -1;
    return 0;
}

int plait_rendezvous_await(const struct plait_meeting *m, int fd)
{
    const struct timeval patience = {.tv_sec = (time_t)m->timeout_s + 1};
    char confirmed;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (plait_read_all(fd, &confirmed, 1) < 0)
        return -1;
    plait_greeting_settle(fd);
    return 0;
}

int plait_rendezvous_join(const struct plait_meeting *m, const char *host,
                          int port, int ports, struct plait_error *err)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    double deadline = plait_trace_now() + m->timeout_s;
    int fd = -1, saved = ETIMEDOUT, first = 0;

    do {
        for (int i = 0; i < ports && port + i < 65536; i++) {
            fd = plait_rendezvous_reach(host, port + i, PATIENCE_S);
            if (fd >= 0 && plait_rendezvous_greet(m, fd) == 0 &&
                plait_rendezvous_await(m, fd) == 0)
                return fd;
            saved = errno;
            if (i == 0)
                first = errno;
            if (fd >= 0)
                close(fd);
        }
        nanosleep(&pause, NULL);
    } while (plait_trace_now() < deadline &&
             !(m->standing && fd < 0 && saved == ECONNREFUSED) &&
             !(m->in_vain && m->in_vain(m->arg)));
    errno = first ? first : saved;
    plait_errorf(err, "%s: rank %d at %s port %d: %s", m->name, m->root, host,
                 port,
                 errno == EACCES ? "somebody else answers" : strerror(errno));
    return -1;
}

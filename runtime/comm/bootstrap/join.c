/* SPDX-License-Identifier: Apache-2.0 */
/* plait_rendezvous_join(): the end that connects. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/greeting.h"
#include "runtime/comm/bootstrap/rendezvous.h"
#include "topology/base/clock.h"

/* How long to wait for a connection, and for an answer over it. */
#define PATIENCE_S 5
/* A port that has not answered for so long may be another process's: then the
 * next one is tried, too. Meanwhile the answer may still come. */
#define NEXT_S 0.25
/* When a failed attempt is made again. At the ports behind the first one the
 * wait doubles, up to the second number. */
#define AGAIN_S 0.005
#define AGAIN_MOST_S 0.32

/* With the spare ones. */
enum { PORTS = 2 * PLAIT_RENDEZVOUS_PORTS };

/* The attempts at one port, one after the other. */
struct attempt {
    int fd; /* -1: none is under way */
    int port;
    const struct addrinfo *at; /* the address that is tried */
    bool connected;
    double since, again; /* when it was begun; when the next one begins */
    double pause;        /* before that */
    bool held;           /* somebody listens there: the last one connected */
    bool refused;        /* an address of the last one was */
    int why;             /* of the last one; 0: none has failed */
    struct plait_greeting greeting;
};

struct visit {
    const struct plait_rendezvous *m;
    const char *host;
    struct addrinfo *list;
    int n, near;  /* ports; those that are not spare */
    int failures; /* attempts that have failed in all */
    struct attempt attempt[PORTS];
};

/* -- one attempt ----------------------------------------------------------- */

static void end_attempt(struct visit *v, struct attempt *a, int why)
{
    double now = plait_clock_now();

    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    a->held = a->connected;
    a->why = why;
    a->again = now + a->pause;
    if (a > v->attempt && a->pause < AGAIN_MOST_S)
        a->pause *= 2;
    v->failures++;
    /* The next port need not wait for this one any more. */
    if (a + 1 < v->attempt + v->n && a[1].since == 0)
        a[1].again = now;
}

/* Connects to the address a->at, or to one behind it. */
static void connect_next(struct visit *v, struct attempt *a, int why)
{
    for (; a->at; a->at = a->at->ai_next) {
        struct sockaddr_storage to;

        memcpy(&to, a->at->ai_addr, a->at->ai_addrlen);
        /* The same place in both families. */
        ((struct sockaddr_in *)&to)->sin_port = htons((uint16_t)a->port);
        a->since = plait_clock_now();
        a->fd = socket(a->at->ai_family,
                       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (a->fd < 0) {
            why = errno;
            continue;
        }
        if (connect(a->fd, (struct sockaddr *)&to, a->at->ai_addrlen) == 0 ||
            errno == EINPROGRESS)
            return;
        why = errno;
        a->refused |= why == ECONNREFUSED;
        close(a->fd);
        a->fd = -1;
    }
    end_attempt(v, a, a->refused ? ECONNREFUSED : why);
}

/* The host's addresses, found anew where none of them is in use: they may
 * change while a job starts. -1: there are none. */
static int find_addresses(struct visit *v)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};

    for (int i = 0; i < v->n; i++)
        if (v->attempt[i].fd >= 0)
            return 0;
    if (v->list)
        freeaddrinfo(v->list);
    v->list = NULL;
    return getaddrinfo(v->host, NULL, &hints, &v->list) == 0 ? 0 : -1;
}

static void begin_attempt(struct visit *v, struct attempt *a)
{
    a->connected = a->refused = false;
    a->since = plait_clock_now();
    if ((a == v->attempt || !v->list) && find_addresses(v) < 0) {
        v->list = NULL;
        end_attempt(v, a, EHOSTUNREACH);
        return;
    }
    a->at = v->list;
    connect_next(v, a, EHOSTUNREACH);
}

static void try_next_address(struct visit *v, struct attempt *a, int why)
{
    close(a->fd);
    a->fd = -1;
    a->refused |= why == ECONNREFUSED;
    a->at = a->at->ai_next;
    connect_next(v, a, why);
}

/* The connection is there, or has failed. */
static void end_connect(struct visit *v, struct attempt *a)
{
    socklen_t size = sizeof(int);
    int why = 0;

    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &why, &size) < 0)
        why = errno;
    if (why) {
        try_next_address(v, a, why);
        return;
    }
    a->connected = true;
    if (plait_greeting_begin(&a->greeting, v->m, a->fd) < 0)
        end_attempt(v, a, errno);
}

/* Goes on with what has come. True: the root has proved itself, and has this
 * rank's proof. */
static bool go_on(struct visit *v, struct attempt *a)
{
    if (!a->connected) {
        end_connect(v, a);
        return false;
    }
    if (plait_greeting_finish(&a->greeting, v->m, a->fd) < 0)
        end_attempt(v, a, errno);
    return a->fd >= 0 && a->greeting.got >= sizeof(a->greeting.answer);
}

/* -- all of them ----------------------------------------------------------- */

static bool is_due(const struct attempt *a, double now)
{
    return a->fd < 0 ? now >= a->again : now >= a->since + PATIENCE_S;
}

/* Begins and ends what is due. Returns when something else is. */
static double tend(struct visit *v, double deadline)
{
    double next = deadline;

    for (struct attempt *a = v->attempt; a < v->attempt + v->n; a++) {
        double when;

        if (is_due(a, plait_clock_now())) {
            if (a->fd < 0)
                begin_attempt(v, a);
            else if (a->connected)
                end_attempt(v, a, ETIMEDOUT);
            else
                try_next_address(v, a, ETIMEDOUT);
        }
        when = a->fd < 0 ? a->again : a->since + PATIENCE_S;
        next = when < next ? when : next;
    }
    return next;
}

/* One round; NULL: none of the attempts has found the root. */
static struct attempt *find_root(struct visit *v, double deadline)
{
    struct pollfd p[PORTS];
    double left = tend(v, deadline) - plait_clock_now();

    for (int i = 0; i < v->n; i++) {
        const struct attempt *a = &v->attempt[i];

        p[i] = (struct pollfd){a->fd, a->connected ? POLLIN : POLLOUT, 0};
    }
    if (poll(p, (nfds_t)v->n, left > 0 ? (int)(left * 1000) + 1 : 0) <= 0)
        return NULL;
    for (int i = 0; i < v->n; i++)
        if (p[i].revents && go_on(v, &v->attempt[i]))
            return &v->attempt[i];
    return NULL;
}

/* Only the root itself can have proved this: no other port is tried while it
 * confirms. Takes over the connection. -1: it has gone. */
static int stay(struct visit *v, struct attempt *root)
{
    int fd = root->fd;

    for (int i = 0; i < v->n; i++)
        if (v->attempt[i].fd >= 0 && &v->attempt[i] != root)
            end_attempt(v, &v->attempt[i], ETIMEDOUT);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    if (plait_rendezvous_await(v->m, fd) == 0) {
        root->fd = -1;
        return fd;
    }
    end_attempt(v, root, errno);
    return -1;
}

/* Whether to give up after attempts that have failed. */
static bool is_vain(const struct visit *v)
{
    return (v->m->standing && v->attempt[0].why == ECONNREFUSED) ||
           (v->m->in_vain && v->m->in_vain(v->m->arg));
}

static void say_why(const struct visit *v, struct plait_error *err)
{
    const struct plait_rendezvous *m = v->m;
    const struct attempt *first = v->attempt;
    int held = 0, why = first->why ? first->why : ETIMEDOUT;

    for (int i = 0; i < v->near; i++)
        held += v->attempt[i].held || v->attempt[i].connected;
    if (v->near > 1 && held == v->near) {
        why = EADDRINUSE;
        plait_errorf(err,
                     "%s: rank %d at %s port %d: other processes listen there "
                     "and at the %d ports after it: set another MASTER_PORT",
                     m->name, m->root, v->host, first->port, v->near - 1);
    } else {
        plait_errorf(err, "%s: rank %d at %s port %d: %s", m->name, m->root,
                     v->host, first->port,
                     why == EACCES ? "somebody else answers" : strerror(why));
    }
    errno = why;
}

static void end_visit(struct visit *v)
{
    int saved = errno;

    for (int i = 0; i < v->n; i++)
        if (v->attempt[i].fd >= 0)
            close(v->attempt[i].fd);
    if (v->list)
        freeaddrinfo(v->list);
    errno = saved;
}

static void add_port(struct visit *v, int port, double now)
{
    v->attempt[v->n] = (struct attempt){
        .fd = -1, .port = port, .again = now + v->n * NEXT_S, .pause = AGAIN_S};
    v->n++;
}

/* A spare port is tried when the ones before have had their time, as the root
 * takes it where they are held. */
static void list_ports(struct visit *v, int port, int ports, double now)
{
    for (int i = 0; i < ports && i < PLAIT_RENDEZVOUS_PORTS && port + i < 65536;
         i++)
        add_port(v, port + i, now);
    v->near = v->n;
    for (int i = 0; i < PLAIT_RENDEZVOUS_PORTS && ports > 1; i++)
        if (plait_rendezvous_spare(v->m, i))
            add_port(v, plait_rendezvous_spare(v->m, i), now);
}

int plait_rendezvous_join(const struct plait_rendezvous *m, const char *host,
                          int port, int ports, struct plait_error *err)
{
    double now = plait_clock_now(), deadline = now + m->timeout_s;
    struct visit v = {.m = m, .host = host};
    int fd = -1, failures;
    struct attempt *root;

    list_ports(&v, port, ports, now);
    do {
        failures = v.failures;
        root = find_root(&v, deadline);
        fd = root ? stay(&v, root) : -1;
    } while (fd < 0 && plait_clock_now() < deadline &&
             !(v.failures > failures && is_vain(&v)));
    if (fd < 0)
        say_why(&v, err);
    end_visit(&v);
    return fd;
}

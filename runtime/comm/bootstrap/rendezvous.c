/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/bootstrap/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/greeting.h"
#include "topology/base/clock.h"
#include "topology/base/proof.h"

/* What spare ports are chosen from: those that users may have. */
enum { SPARE_FIRST = 10000, SPARE_PORTS = 50000 };

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
    int fd = -1, ports = *port == 0 ? 1 : PLAIT_RENDEZVOUS_PORTS;

    for (int i = 0; fd < 0 && i < ports && *port + i < 65536; i++)
        fd = listen_at(*port + i);
    if (fd >= 0)
        *port = port_of(fd);
    return fd;
}

int plait_rendezvous_spare(const struct plait_rendezvous *m, int i)
{
    unsigned char text[16] = "port", proof[PLAIT_PROOF_SIZE];
    uint16_t number;

    if (!*m->secret || strcmp(m->secret, PLAIT_NO_SECRET) == 0)
        return 0;
    text[4] = (unsigned char)i;
    memcpy(text + 8, &m->key, sizeof(m->key));
    if (plait_proof_make(m->secret, text, sizeof(text), proof) < 0)
        return 0;
    memcpy(&number, proof, sizeof(number));
    return SPARE_FIRST + number % SPARE_PORTS;
}

int plait_rendezvous_listen_for(const struct plait_rendezvous *m, int *port)
{
    int fd = plait_rendezvous_listen(port), saved = errno, spare;

    for (int i = 0; fd < 0 && i < PLAIT_RENDEZVOUS_PORTS; i++) {
        spare = plait_rendezvous_spare(m, i);
        fd = spare ? listen_at(spare) : -1;
    }
    if (fd >= 0)
        *port = port_of(fd);
    errno = saved;
    return fd;
}

/* -- the others ---------------------------------------------------------- */

/* Tries every address of the host once. */
int plait_rendezvous_reach(const char *host, int port, int patience_s)
{
    const struct timeval patience = {.tv_sec = patience_s};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    char service[16];
    int fd = -1, refused = 0;

    snprintf(service, sizeof(service), "%d", port);
    if (getaddrinfo(host, service, &hints, &list) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
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

/* Polls until `until` whether something has come. */
static bool await_some(int fd, double until)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    double left = until - plait_clock_now();

    return left > 0 &&
           (poll(&p, 1, (int)(left * 1000) + 1) > 0 || errno == EINTR);
}

int plait_rendezvous_greet(const struct plait_rendezvous *m, int fd,
                           double patience_s)
{
    double until = plait_clock_now() + patience_s;
    struct plait_greeting g;

    if (plait_greeting_begin(&g, m, fd) < 0)
        return -1;
    while (g.got < sizeof(g.answer)) {
        errno = ETIMEDOUT;
        if (!await_some(fd, until) || plait_greeting_finish(&g, m, fd) < 0)
            return -1;
    }
    return 0;
}

int plait_rendezvous_await(const struct plait_rendezvous *m, int fd)
{
    const struct timeval patience = {.tv_sec = (time_t)m->timeout_s + 1};
    char confirmed;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (plait_read_all(fd, &confirmed, 1) < 0)
        return -1;
    plait_greeting_settle(fd);
    return 0;
}

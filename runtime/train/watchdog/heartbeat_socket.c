/* SPDX-License-Identifier: Apache-2.0 */
/* The datagrams of heartbeats: their sockets, sending and receiving. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/train/watchdog/heartbeat.h"
#include "topology/base/proof.h"

/* -- addresses ------------------------------------------------------------- */

static bool is_near4(const unsigned char a[4])
{
    return a[0] == 127;
}

static bool is_near6(const unsigned char a[16])
{
    return IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)a);
}

/* Leaves out link-local addresses, which mean nothing without an interface. */
static void note_address(const struct sockaddr *a,
                         struct plait_heartbeat_address *to)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)a)->sin6_addr;

    if (a->sa_family == AF_INET && !to->has4) {
        memcpy(to->v4, &((const struct sockaddr_in *)a)->sin_addr, 4);
        to->has4 = 1;
    } else if (a->sa_family == AF_INET6 && !to->has6 &&
               !IN6_IS_ADDR_LINKLOCAL(six) && !IN6_IS_ADDR_V4MAPPED(six)) {
        memcpy(to->v6, six, 16);
        to->has6 = 1;
    }
}

/* The addresses of `host`, and this machine's on the way to them. Nothing is
 * sent: UDP "connects" by choosing a route. */
static void find_ways(const char *host, struct plait_heartbeat_address *theirs,
                      struct plait_heartbeat_address *mine)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *list;

    if (getaddrinfo(host, "9", &hints, &list) != 0)
        return;
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        struct sockaddr_storage self;
        socklen_t n = sizeof(self);

        if (fd < 0)
            continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
            getsockname(fd, (struct sockaddr *)&self, &n) == 0) {
            note_address((struct sockaddr *)&self, mine);
            note_address(a->ai_addr, theirs);
        }
        close(fd);
    }
    freeaddrinfo(list);
}

static int bind_socket(uint16_t *port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr *a = (struct sockaddr *)&six;
    int fd, zero = 0, room = 1 << 20, saved;
    socklen_t n = sizeof(six);

    fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    } else {
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        a = (struct sockaddr *)&four;
        n = sizeof(four);
    }
    if (fd < 0)
        return -1;
    /* Answers from many nodes may come at once. */
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    if (bind(fd, a, n) == 0 && getsockname(fd, a, &n) == 0) {
        *port =
            ntohs(a == (struct sockaddr *)&six ? six.sin6_port : four.sin_port);
        return fd;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

int plait_heartbeat_open(const char *toward,
                         struct plait_heartbeat_address *mine)
{
    struct plait_heartbeat_address theirs;
    uint16_t port = 0;
    int fd = bind_socket(&port);

    memset(mine, 0, sizeof(*mine));
    memset(&theirs, 0, sizeof(theirs));
    if (fd < 0)
        return -1;
    find_ways(toward, &theirs, mine);
    mine->port = port;
    return fd;
}

void plait_heartbeat_correct(const char *toward, int n,
                             struct plait_heartbeat_address *at)
{
    struct plait_heartbeat_address theirs, mine;

    memset(&theirs, 0, sizeof(theirs));
    memset(&mine, 0, sizeof(mine));
    find_ways(toward, &theirs, &mine);
    for (int i = 0; i < n; i++) {
        if (at[i].has4 && is_near4(at[i].v4)) {
            memcpy(at[i].v4, theirs.v4, sizeof(theirs.v4));
            at[i].has4 = theirs.has4;
        }
        if (at[i].has6 && is_near6(at[i].v6)) {
            memcpy(at[i].v6, theirs.v6, sizeof(theirs.v6));
            at[i].has6 = theirs.has6;
        }
    }
}

/* -- messages -------------------------------------------------------------- */

void plait_heartbeat_link_init(struct plait_heartbeat_link *link, int fd,
                               int node,
                               const struct plait_heartbeat_address *mine,
                               const char *secret)
{
    struct sockaddr_storage self;
    socklen_t n = sizeof(self);

    link->fd = fd;
    link->node = node;
    link->mine = *mine;
    link->v6 = getsockname(fd, (struct sockaddr *)&self, &n) == 0 &&
               self.ss_family == AF_INET6;
    snprintf(link->secret, sizeof(link->secret), "%s", secret);
}

static void map_four(const unsigned char four[4], struct in6_addr *six)
{
    memset(six, 0, sizeof(*six));
    six->s6_addr[10] = six->s6_addr[11] = 0xff;
    memcpy(six->s6_addr + 12, four, 4);
}

/* 0: it cannot be reached. */
static socklen_t make_sockaddr(const struct plait_heartbeat_link *link,
                               const struct plait_heartbeat_address *to,
                               struct sockaddr_storage *out)
{
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    bool use6 = link->v6 && link->mine.has6 && to->has6;

    memset(out, 0, sizeof(*out));
    if (to->port == 0 || (!use6 && !to->has4))
        return 0;
    if (!link->v6) {
        four->sin_family = AF_INET;
        four->sin_port = htons(to->port);
        memcpy(&four->sin_addr, to->v4, 4);
        return sizeof(*four);
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(to->port);
    if (use6)
        memcpy(&six->sin6_addr, to->v6, 16);
    else
        map_four(to->v4, &six->sin6_addr);
    return sizeof(*six);
}

static void read_sockaddr(const struct sockaddr_storage *from,
                          struct plait_heartbeat_address *out)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    const struct sockaddr_in *four = (const struct sockaddr_in *)from;

    memset(out, 0, sizeof(*out));
    if (from->ss_family == AF_INET) {
        memcpy(out->v4, &four->sin_addr, 4);
        out->has4 = 1;
        out->port = ntohs(four->sin_port);
        return;
    }
    out->port = ntohs(six->sin6_port);
    out->has4 = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
    out->has6 = !out->has4;
    memcpy(out->v4, six->sin6_addr.s6_addr + 12, 4);
    memcpy(out->v6, &six->sin6_addr, 16);
}

/* The seal of a message to `node`; overwrites what is behind the message. */
static int make_seal(const struct plait_heartbeat_link *link, int node,
                     unsigned char *message, int size,
                     unsigned char seal[PLAIT_PROOF_SIZE])
{
    const uint32_t to = (uint32_t)node;

    memcpy(message + size, &to, sizeof(to));
    return plait_proof_make(link->secret, message, (size_t)size + sizeof(to),
                            seal);
}

void plait_heartbeat_send(const struct plait_heartbeat_link *link, int node,
                          const struct plait_heartbeat_address *to,
                          unsigned char *message, int size)
{
    unsigned char seal[PLAIT_PROOF_SIZE];
    struct sockaddr_storage at;
    socklen_t n = make_sockaddr(link, to, &at);

    if (n == 0 || make_seal(link, node, message, size, seal) < 0)
        return;
    memcpy(message + size, seal, sizeof(seal));
    /* Errors do not matter: what is lost is sent again, or was not needed. */
    if (sendto(link->fd, message, (size_t)size + PLAIT_HEARTBEAT_SEAL,
               MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&at, n) < 0)
        return;
}

int plait_heartbeat_receive(const struct plait_heartbeat_link *link,
                            unsigned char *message, int room,
                            struct plait_heartbeat_address *from)
{
    unsigned char seal[PLAIT_PROOF_SIZE], want[PLAIT_PROOF_SIZE];
    struct sockaddr_storage at;
    socklen_t n = sizeof(at);
    ssize_t size =
        recvfrom(link->fd, message, (size_t)room, MSG_DONTWAIT | MSG_TRUNC,
                 (struct sockaddr *)&at, &n);

    /* An earlier message that a peer refused shows here as an error. */
    if (size < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : 0;
    size -= PLAIT_HEARTBEAT_SEAL;
    if (size <= 0 || size + PLAIT_HEARTBEAT_SEAL > room)
        return 0;
    memcpy(seal, message + size, sizeof(seal));
    if (make_seal(link, link->node, message, (int)size, want) < 0 ||
        !plait_proof_same(want, seal))
        return 0;
    read_sockaddr(&at, from);
    return (int)size;
}

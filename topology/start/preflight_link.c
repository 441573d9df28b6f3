/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "topology/start/preflight.h"

/* Messages between two tasks over TCP: a token, then repeatedly CHUNK bytes and
 * a byte back. */

enum { CHUNK = 256 << 10, TIMES = 24, TIMES_LEAST = 3, GUESTS_MOST = 64 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the receiver ---- */

struct guest {
    int fd;      /* -1: free */
    size_t used; /* of the token, then of a chunk */
    int known;
    unsigned came; /* counts all guests */
};

static void drop(struct guest *guest)
{
    close(guest->fd);
    guest->fd = -1;
}

/* A place for one more guest: a free one, or that of the guest that has waited
 * longest without showing the token, so that no one without it keeps others
 * out. */
static struct guest *find_place(struct guest *guests)
{
    struct guest *place = NULL;

    for (int i = 0; i < GUESTS_MOST; i++) {
        struct guest *g = &guests[i];

        if (g->fd < 0)
            return g;
        if (!g->known && (!place || g->came < place->came))
            place = g;
    }
    if (place)
        drop(place);
    return place;
}

static void welcome(struct guest *guests, int listener, unsigned came)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct guest *place = fd < 0 ? NULL : find_place(guests);
    int one = 1;

    if (place) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        *place = (struct guest){fd, 0, 0, came};
    } else if (fd >= 0) {
        close(fd);
    }
}

static void read_token(struct guest *guest, const char *token)
{
    while (!guest->known) {
        char byte;
        ssize_t n = recv(guest->fd, &byte, 1, 0);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0 ||
            byte != (token[guest->used] ? token[guest->used] : '\n')) {
            drop(guest);
            return;
        }
        guest->known = byte == '\n';
        guest->used = guest->known ? 0 : guest->used + 1;
    }
}

static void hear(struct guest *guest, const char *token, char *buffer)
{
    ssize_t n;

    if (!guest->known) {
        read_token(guest, token);
        if (guest->fd < 0 || !guest->known)
            return;
    }
    n = recv(guest->fd, buffer, CHUNK - guest->used, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    guest->used += n > 0 ? (size_t)n : 0;
    if (n > 0 && guest->used < CHUNK)
        return;
    guest->used = 0;
    if (n <= 0 || send(guest->fd, "", 1, MSG_NOSIGNAL) != 1)
        drop(guest);
}

static void serve(const char *token, int listener)
{
    struct guest guests[GUESTS_MOST];
    struct pollfd polls[GUESTS_MOST + 1];
    char *buffer = malloc(CHUNK);
    unsigned came = 0;

    for (int i = 0; i < GUESTS_MOST; i++)
        guests[i].fd = -1;
    while (buffer) {
        for (int i = 0; i < GUESTS_MOST; i++)
            polls[i] = (struct pollfd){guests[i].fd, POLLIN, 0};
        polls[GUESTS_MOST] = (struct pollfd){listener, POLLIN, 0};
        if (poll(polls, GUESTS_MOST + 1, -1) < 0 && errno != EINTR)
            return;
        for (int i = 0; i < GUESTS_MOST; i++)
            if (polls[i].revents)
                hear(&guests[i], token, buffer);
        if (polls[GUESTS_MOST].revents)
            welcome(guests, listener, came++);
    }
}

int plait_preflight_serve(const char *token, int listener)
{
    pid_t self = getpid(), pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == self)
            serve(token, listener);
        _exit(0);
    }
    close(listener);
    return (int)pid;
}

/* ---- the sender ---- */

static int send_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

static int send_chunk(int fd, const char *chunk)
{
    char answer;
    ssize_t n;

    if (send_all(fd, chunk, CHUNK) < 0)
        return -1;
    do
        n = recv(fd, &answer, 1, 0);
    while (n < 0 && errno == EINTR);
    return n == 1 ? 0 : -1;
}

/* No call takes longer than a few seconds, however bad the link is. */
static int connect_to(const char *host, int port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST},
                    *at = NULL;
    struct timeval most = {.tv_sec = 2};
    char service[16];
    int fd = -1, one = 1;

    snprintf(service, sizeof(service), "%d", port);
    if (getaddrinfo(host, service, &hints, &at))
        return -1;
    fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 &&
        (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) ||
         setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)) ||
         setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
         connect(fd, at->ai_addr, at->ai_addrlen))) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(at);
    return fd;
}

/* The best of several messages: on a busy machine most of them wait for a
 * processor. */
int plait_preflight_measure_link(const char *host, int port, const char *token,
                                 double *rate)
{
    int fd = connect_to(host, port), rc = fd < 0 ? -1 : 0;
    char *chunk = calloc(1, CHUNK);
    double begin = now();

    if (!chunk || (rc == 0 && (send_all(fd, token, strlen(token)) < 0 ||
                               send_all(fd, "\n", 1) < 0)))
        rc = -1;
    for (int i = 0; rc == 0 && i < TIMES; i++) {
        double start = now(), one;

        if (i >= TIMES_LEAST && start - begin > 0.4)
            break;
        rc = send_chunk(fd, chunk);
        one = CHUNK / (now() - start);
        if (rc == 0 && one > *rate)
            *rate = one;
    }
    if (fd >= 0)
        close(fd);
    free(chunk);
    return rc;
}

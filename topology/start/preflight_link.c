/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/base/guests.h"
#include "topology/start/meeting_line.h"
#include "topology/start/preflight.h"

/* Messages between two tasks over TCP: after both have proved that they know
 * the step's token, by the lines of a meeting with the text "link", repeatedly
 * CHUNK bytes and a byte back. */

enum { CHUNK = 256 << 10, TIMES = 24, TIMES_LEAST = 3 };
/* Connections of strangers, and of tasks, at a time; files besides. */
enum { GUESTS_MOST = 256, TASKS_MOST = 64, FILES = 32, SILENT = 10 };
/* Seconds that a call to another task takes at most. */
enum { CALL_MOST = 2 };
/* The longest line of either side. */
enum { LINE_MOST = 64 + PLAIT_MEETING_OVERHEAD };

/* ---- the receiver ---- */

/* Of a connection that has proved nothing yet. */
struct stranger {
    struct plait_meeting_talk talk;
    size_t used;
    char line[LINE_MOST];
};

/* A connection of a task. */
struct task {
    int fd;      /* -1: free */
    size_t used; /* of a chunk */
    int chunks;
};

struct server {
    const char *token;
    int listener, ntasks;
    struct plait_guests *guests;
    struct task tasks[TASKS_MOST];
    struct pollfd polls[GUESTS_MOST + TASKS_MOST + 1];
    char buffer[CHUNK];
};

static void welcome(struct server *s)
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof(from);
    int fd = accept4(s->listener, (struct sockaddr *)&from, &size,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct plait_guest *guest;
    struct stranger *own;
    char line[LINE_MOST];
    int n, one = 1;

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            plait_guests_make_room(s->guests);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    guest = plait_guests_add(s->guests, fd, &from, (int64_t)plait_clock_now());
    own = guest ? guest->own : NULL;
    if (!guest)
        return;
    if (plait_meeting_nonce(own->talk.host) == 0) {
        n = snprintf(line, sizeof(line), "plait-meeting %d %s\n",
                     PLAIT_MEETING_VERSION, own->talk.host);
        if (send(fd, line, (size_t)n, MSG_NOSIGNAL) == n)
            return;
    }
    plait_guests_drop(s->guests, guest);
}

/* A task's own connections are few: a new one replaces the oldest of 64. */
static void add_task(struct server *s, int fd)
{
    struct task *task = &s->tasks[s->ntasks++ % TASKS_MOST];

    if (task->fd >= 0)
        close(task->fd);
    *task = (struct task){.fd = fd};
}

/* Is the line of a task? Then it is answered by a proof that this is one. */
static bool is_task(const struct server *s, struct plait_guest *guest)
{
    struct stranger *own = guest->own;
    char proof[PLAIT_MEETING_PROOF], wanted[PLAIT_MEETING_PROOF];
    char line[LINE_MOST];
    const char *text;
    int n;

    if (plait_meeting_parse_member(own->line, &own->talk, proof, &text) < 0)
        return false;
    plait_meeting_prove(s->token, "member", &own->talk, text, wanted);
    if (!plait_meeting_same(proof, wanted) || strcmp(text, "link") != 0)
        return false;
    plait_meeting_prove(s->token, "welcome", &own->talk, text, proof);
    n = snprintf(line, sizeof(line), "welcome %s\n", proof);
    return send(guest->fd, line, (size_t)n, MSG_NOSIGNAL) == n;
}

/* A guest is dropped after a whole line alone: how long it took tells nothing
 * of what was wrong with it. */
static void hear_guest(struct server *s, struct plait_guest *guest)
{
    struct stranger *own = guest->own;
    ssize_t n = recv(guest->fd, own->line + own->used,
                     sizeof(own->line) - 1 - own->used, 0);
    char *end;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    own->used += n > 0 ? (size_t)n : 0;
    end = memchr(own->line, '\n', own->used);
    if (!end && n > 0 && own->used < sizeof(own->line) - 1)
        return;
    if (end)
        *end = '\0';
    /* A task sends its first chunk after the welcome. */
    if (end && end + 1 == own->line + own->used && is_task(s, guest))
        add_task(s, plait_guests_take(s->guests, guest));
    else
        plait_guests_drop(s->guests, guest);
}

static void hear_task(struct server *s, struct task *task)
{
    ssize_t n = recv(task->fd, s->buffer, CHUNK - task->used, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    task->used += n > 0 ? (size_t)n : 0;
    if (n > 0 && task->used < CHUNK)
        return;
    task->used = 0;
    if (n <= 0 || ++task->chunks > TIMES ||
        send(task->fd, "", 1, MSG_NOSIGNAL) != 1) {
        close(task->fd);
        task->fd = -1;
    }
}

/* One turn; guests come first in s->polls. */
static int serve_once(struct server *s)
{
    struct plait_guest *guest = plait_guests_oldest(s->guests);
    nfds_t n = 0, nguests;

    for (; guest && n < GUESTS_MOST; guest = guest->newer)
        s->polls[n++] = (struct pollfd){guest->fd, POLLIN, 0};
    nguests = n;
    for (int i = 0; i < TASKS_MOST; i++)
        s->polls[n++] = (struct pollfd){s->tasks[i].fd, POLLIN, 0};
    s->polls[n++] = (struct pollfd){s->listener, POLLIN, 0};
    if (poll(s->polls, n, nguests ? SILENT * 1000 : -1) < 0)
        return errno == EINTR ? 0 : -1;
    for (int i = 0; i < TASKS_MOST; i++)
        if (s->polls[nguests + (nfds_t)i].revents)
            hear_task(s, &s->tasks[i]);
    guest = plait_guests_oldest(s->guests);
    for (nfds_t i = 0; i < nguests; i++) {
        struct plait_guest *next = guest->newer;

        if (s->polls[i].revents)
            hear_guest(s, guest);
        guest = next;
    }
    if (s->polls[n - 1].revents)
        welcome(s);
    plait_guests_drop_before(s->guests, (int64_t)plait_clock_now() - SILENT);
    return 0;
}

static void serve(const char *token, int listener)
{
    struct server *s = calloc(1, sizeof(*s));

    if (!s)
        return;
    s->token = token;
    s->listener = listener;
    s->guests = plait_guests_create(GUESTS_MOST, TASKS_MOST + FILES,
                                    sizeof(struct stranger));
    for (int i = 0; i < TASKS_MOST; i++)
        s->tasks[i].fd = -1;
    while (s->guests && serve_once(s) == 0)
        ;
}

int plait_preflight_serve(const char *token, int listener)
{
    pid_t self = getpid(), pid;

    fcntl(listener, F_SETFL, O_NONBLOCK);
    pid = fork();
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
    struct timeval most = {.tv_sec = CALL_MOST};
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

/* A line of at most LINE_MOST - 1 bytes, which may come byte by byte but has no
 * more time for it. The other side sends nothing behind it. */
static int read_line(int fd, char line[LINE_MOST])
{
    double until = plait_clock_now() + CALL_MOST;
    size_t used = 0;

    while (used < LINE_MOST - 1 && plait_clock_now() < until) {
        ssize_t n = recv(fd, line + used, 1, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n != 1)
            return -1;
        if (line[used] == '\n') {
            line[used] = '\0';
            return 0;
        }
        used++;
    }
    return -1;
}

/* Prove that this is a task of the step, and have the other side prove it. */
static int greet(int fd, const char *token)
{
    struct plait_meeting_talk talk = {.index = 0};
    char line[LINE_MOST], proof[PLAIT_MEETING_PROOF],
        wanted[PLAIT_MEETING_PROOF];
    const char *rest;

    if (read_line(fd, line) < 0 ||
        plait_meeting_parse_hello(line, talk.host) < 0 ||
        plait_meeting_nonce(talk.member) < 0)
        return -1;
    plait_meeting_prove(token, "member", &talk, "link", proof);
    snprintf(line, sizeof(line), "member 0 %s %s link\n", talk.member, proof);
    if (send_all(fd, line, strlen(line)) < 0 || read_line(fd, line) < 0)
        return -1;
    plait_meeting_prove(token, "welcome", &talk, "link", wanted);
    return plait_meeting_parse_host(line, "welcome", proof, &rest) == 0 &&
                   !*rest && plait_meeting_same(proof, wanted)
               ? 0
               : -1;
}

/* The best of several messages: on a busy machine most of them wait for a
 * processor. */
int plait_preflight_measure_link(const char *host, int port, const char *token,
                                 double *rate)
{
    int fd = connect_to(host, port), rc = fd < 0 ? -1 : 0;
    char *chunk = calloc(1, CHUNK);
    double begin;

    if (!chunk || (rc == 0 && greet(fd, token) < 0))
        rc = -1;
    begin = plait_clock_now();
    for (int i = 0; rc == 0 && i < TIMES; i++) {
        double start = plait_clock_now(), one;

        if (i >= TIMES_LEAST && start - begin > 0.4)
            break;
        rc = send_chunk(fd, chunk);
        one = CHUNK / (plait_clock_now() - start);
        if (rc == 0 && one > *rate)
            *rate = one;
    }
    if (fd >= 0)
        close(fd);
    free(chunk);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* accept4 */
#include "topology/start/meeting.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "topology/base/thread.h"

/* "plait TOKEN INDEX TEXT\n" */
enum { LINE_MOST = PLAIT_MEETING_SAID + 128, TOKEN_SIZE = 65 };
/* Guests beyond the members: where others open more connections, the oldest
 * guest is dropped, so that no member loses its place. Each may take a second
 * to say who it is; others wait in the listener's queue meanwhile, which is
 * checked again after a while. */
enum { STRANGERS_MOST = 256, GRACE_MS = 1000, AGAIN_MS = 10 };

/* A connection that has not shown to be a member's yet. */
struct guest {
    struct guest *next;
    int fd;
    int64_t since; /* ms */
    size_t used;
    char line[LINE_MOST];
};

struct plait_meeting {
    int listener, epoll, cancel, port;
    int members, arrived, nguests, here;
    char token[TOKEN_SIZE];
    int (*check)(void *arg, int index, const char *text); /* or NULL */
    void *arg;
    char **said; /* [members] */
    int *fds;    /* [members] */
    struct guest *guests;
    int keeps; /* seconds between signs of life, 0: none are sent */
    pthread_t keeper;
    pthread_mutex_t lock; /* for said and fds, which the keeper reads */
};

/* An IPv6 socket accepts IPv4 too, where the system has IPv6. */
static int open_listener(int port, struct sockaddr_storage *at)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};
    int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, off = 0;
    socklen_t size = sizeof(*at);
    int fd = socket(AF_INET6, kind, 0), one = port != 0;

    /* A given port may still be in TIME_WAIT from another step. */
    if (fd >= 0 &&
        (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) ||
         bind(fd, (struct sockaddr *)&six, sizeof(six)))) {
        close(fd);
        fd = -1;
    }
    if (fd < 0 && (fd = socket(AF_INET, kind, 0)) >= 0 &&
        bind(fd, (struct sockaddr *)&four, sizeof(four))) {
        close(fd);
        return -1;
    }
    if (fd >= 0 && (listen(fd, SOMAXCONN) ||
                    getsockname(fd, (struct sockaddr *)at, &size))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int listen_within(struct plait_meeting *meeting, const uint16_t *ports)
{
    int first = ports ? ports[0] : 0, count = ports ? ports[1] - first + 1 : 1;
    int start = count > 1 ? (int)getpid() % count : 0;
    struct sockaddr_storage at;

    for (int i = 0; i < count && meeting->listener < 0; i++)
        meeting->listener = open_listener(first + (start + i) % count, &at);
    if (meeting->listener < 0)
        return -1;
    meeting->port =
        ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                       : ((struct sockaddr_in *)&at)->sin_port);
    return 0;
}

static int listen_here(struct plait_meeting *meeting, const char *name)
{
    struct sockaddr_un at;
    socklen_t size = plait_meeting_address(name, &at);

    meeting->here = 1;
    meeting->listener =
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (meeting->listener < 0 ||
        bind(meeting->listener, (struct sockaddr *)&at, size))
        return -1;
    return listen(meeting->listener, SOMAXCONN);
}

static int watch(struct plait_meeting *meeting, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};

    return epoll_ctl(meeting->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* Listen at a name, or at a port. */
static struct plait_meeting *create(int members, const char *token,
                                    const char *name, const uint16_t *ports,
                                    struct plait_error *err)
{
    struct plait_meeting *meeting = calloc(1, sizeof(*meeting));

    if (!meeting)
        goto error;
    pthread_mutex_init(&meeting->lock, NULL);
    meeting->listener = meeting->epoll = meeting->cancel = -1;
    meeting->said = calloc((size_t)members, sizeof(*meeting->said));
    meeting->fds = calloc((size_t)members, sizeof(*meeting->fds));
    if (!meeting->said || !meeting->fds)
        goto error;
    meeting->members = members;
    snprintf(meeting->token, sizeof(meeting->token), "%s", token);
    meeting->epoll = epoll_create1(EPOLL_CLOEXEC);
    meeting->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (meeting->epoll < 0 || meeting->cancel < 0 ||
        (name ? listen_here(meeting, name) : listen_within(meeting, ports)) <
            0 ||
        watch(meeting, meeting->listener, &meeting->listener) < 0 ||
        watch(meeting, meeting->cancel, &meeting->cancel) < 0)
        goto error;
    return meeting;
error:
    plait_errorf(err, "cannot listen for the step's %s: %s",
                 name ? "tasks" : "nodes", strerror(errno));
    plait_meeting_destroy(meeting);
    return NULL;
}

struct plait_meeting *plait_meeting_create(int members, const char *token,
                                           const uint16_t ports[2],
                                           struct plait_error *err)
{
    return create(members, token, NULL, ports, err);
}

struct plait_meeting *plait_meeting_create_here(int members, const char *token,
                                                const char *name,
                                                struct plait_error *err)
{
    return create(members, token, name, NULL, err);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void plait_meeting_destroy(struct plait_meeting *meeting)
{
    int saved = errno;

    if (!meeting)
        return;
    if (meeting->keeps) {
        plait_meeting_cancel(meeting);
        pthread_join(meeting->keeper, NULL);
    }
    for (int i = 0; i < meeting->members; i++)
        if (meeting->said[i]) {
            close(meeting->fds[i]);
            free(meeting->said[i]);
        }
    while (meeting->guests) {
        struct guest *next = meeting->guests->next;

        close(meeting->guests->fd);
        free(meeting->guests);
        meeting->guests = next;
    }
    close_fd(meeting->listener);
    close_fd(meeting->epoll);
    close_fd(meeting->cancel);
    pthread_mutex_destroy(&meeting->lock);
    free(meeting->said);
    free(meeting->fds);
    free(meeting);
    errno = saved;
}

int plait_meeting_port(const struct plait_meeting *meeting)
{
    return meeting->port;
}

const char *plait_meeting_said(const struct plait_meeting *meeting, int index)
{
    return meeting->said[index];
}

void plait_meeting_check(struct plait_meeting *meeting,
                         int (*check)(void *arg, int index, const char *text),
                         void *arg)
{
    meeting->check = check;
    meeting->arg = arg;
}

void plait_meeting_cancel(struct plait_meeting *meeting)
{
    uint64_t one = 1;

    if (write(meeting->cancel, &one, sizeof(one)) < 0)
        return; /* it has been cancelled already */
}

/* The thread: plait_meeting_cancel() ends it. */
static void *keep(void *arg)
{
    struct plait_meeting *meeting = arg;
    struct pollfd end = {.fd = meeting->cancel, .events = POLLIN};
    int rc;

    while ((rc = poll(&end, 1, meeting->keeps * 1000)) <= 0) {
        if (rc < 0)
            continue;
        pthread_mutex_lock(&meeting->lock);
        for (int i = 0; i < meeting->members; i++)
            if (meeting->said[i])
                send(meeting->fds[i], "\n", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        pthread_mutex_unlock(&meeting->lock);
    }
    return NULL;
}

int plait_meeting_keep(struct plait_meeting *meeting, int seconds)
{
    meeting->keeps = seconds;
    if (plait_thread_create(&meeting->keeper, keep, meeting) == 0)
        return 0;
    meeting->keeps = 0;
    return -1;
}

int plait_meeting_left(const struct plait_meeting *meeting, int *count)
{
    int lowest = -1;
    char byte;

    *count = 0;
    for (int i = meeting->members - 1; i >= 0; i--) {
        ssize_t n = meeting->said[i] ? recv(meeting->fds[i], &byte, 1,
                                            MSG_PEEK | MSG_DONTWAIT)
                                     : 1;

        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
            continue;
        lowest = i;
        ++*count;
    }
    return lowest;
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void drop_guest(struct plait_meeting *meeting, struct guest *guest)
{
    struct guest **at = &meeting->guests;

    while (*at != guest)
        at = &(*at)->next;
    *at = guest->next;
    meeting->nguests--;
    free(guest);
}

/* Drop the oldest guest, unless it has just come. */
static int make_room(struct plait_meeting *meeting)
{
    struct guest *oldest = meeting->guests;

    while (oldest && oldest->next)
        oldest = oldest->next;
    if (!oldest || now_ms() - oldest->since < GRACE_MS)
        return -1;
    close(oldest->fd);
    drop_guest(meeting, oldest);
    return 1;
}

/* 1: there may be more; 0: no connection waits; -1: there is no room yet. */
static int accept_guest(struct plait_meeting *meeting)
{
    struct guest *guest;
    int fd;

    if (meeting->nguests >= meeting->members + STRANGERS_MOST &&
        make_room(meeting) < 0)
        return -1;
    fd = accept4(meeting->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE ? make_room(meeting) : 0;
    guest = meeting->here && !plait_meeting_is_own(fd)
                ? NULL
                : calloc(1, sizeof(*guest));
    if (!guest || watch(meeting, fd, guest) < 0) {
        close(fd);
        free(guest);
        return 1;
    }
    guest->fd = fd;
    guest->since = now_ms();
    guest->next = meeting->guests;
    meeting->guests = guest;
    meeting->nguests++;
    return 1;
}

int plait_meeting_parse(const char *line, char token[65], int *index,
                        const char **text)
{
    int at = 0;

    if (sscanf(line, "plait %64s %9d %n", token, index, &at) != 2 || !at ||
        *index < 0)
        return -1;
    *text = line + at;
    return 0;
}

/* Is the line from a member that has not come yet? */
static int admit(struct plait_meeting *meeting, const struct guest *guest)
{
    char token[TOKEN_SIZE];
    const char *text;
    int index;

    if (plait_meeting_parse(guest->line, token, &index, &text) < 0 ||
        strcmp(token, meeting->token) != 0 || index >= meeting->members ||
        meeting->said[index] ||
        (meeting->check && !meeting->check(meeting->arg, index, text)))
        return 0;
    pthread_mutex_lock(&meeting->lock);
    meeting->said[index] = strdup(text);
    meeting->fds[index] = guest->fd;
    pthread_mutex_unlock(&meeting->lock);
    return meeting->said[index] != NULL;
}

/* Read from a guest. 1: it is a member, and its line is complete. */
static int hear(struct plait_meeting *meeting, struct guest *guest)
{
    ssize_t n = recv(guest->fd, guest->line + guest->used,
                     LINE_MOST - 1 - guest->used, 0);
    char *end;
    int came = 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    guest->used += n > 0 ? (size_t)n : 0;
    end = memchr(guest->line, '\n', guest->used);
    if (!end && n > 0 && guest->used < LINE_MOST - 1)
        return 0;
    if (end) {
        *end = '\0';
        came = admit(meeting, guest);
    }
    epoll_ctl(meeting->epoll, EPOLL_CTL_DEL, guest->fd, NULL);
    if (!came)
        close(guest->fd);
    drop_guest(meeting, guest);
    return came;
}

/* Connections of others do not make the wait longer. */
int plait_meeting_wait(struct plait_meeting *meeting, int seconds)
{
    int64_t end = now_ms() + seconds * INT64_C(1000);
    struct epoll_event events[64];

    while (meeting->arrived < meeting->members) {
        int64_t left = end - now_ms();
        int before = meeting->arrived, knocks = 0, n, more = 1;

        n = left <= 0 ? 0 : epoll_wait(meeting->epoll, events, 64, (int)left);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -1;
        for (int i = 0; i < n; i++) {
            void *what = events[i].data.ptr;

            if (what == &meeting->cancel) {
                errno = ECANCELED;
                return -1;
            }
            if (what == &meeting->listener)
                knocks = 1;
            else
                meeting->arrived += hear(meeting, what);
        }
        /* Last, as it may drop guests. */
        while (knocks && more > 0)
            more = accept_guest(meeting);
        if (more < 0)
            nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000}, NULL);
        if (meeting->arrived > before)
            end = now_ms() + seconds * INT64_C(1000);
    }
    return 1;
}

void plait_meeting_close(struct plait_meeting *meeting)
{
    close_fd(meeting->listener);
    meeting->listener = -1;
}

/* All that a member can send now is its end of file. */
void plait_meeting_part(struct plait_meeting *meeting, int seconds)
{
    int64_t end = now_ms() + seconds * INT64_C(1000);
    char byte;

    for (int i = 0; i < meeting->members; i++) {
        struct pollfd one = {.events = POLLIN};
        int64_t left;

        if (!meeting->said[i])
            continue;
        one.fd = meeting->fds[i];
        left = end - now_ms();
        while (poll(&one, 1, left > 0 ? (int)left : 0) > 0 &&
               recv(one.fd, &byte, 1, 0) > 0)
            left = end - now_ms();
    }
}

void plait_meeting_answer(struct plait_meeting *meeting, const char *text)
{
    struct timeval most = {.tv_sec = 10};
    size_t size = strlen(text);
    char *line = malloc(size + 2);

    if (!line)
        return;
    sprintf(line, "%s\n", text);
    pthread_mutex_lock(&meeting->lock); /* no sign of life within an answer */
    for (int i = 0; i < meeting->members; i++) {
        int fd = meeting->said[i] ? meeting->fds[i] : -1, off = 0;
        size_t sent = 0;
        ssize_t n = fd < 0 ? -1 : 1;

        if (fd >= 0 &&
            (ioctl(fd, FIONBIO, &off) ||
             setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most))))
            continue;
        while (n > 0 && sent < size + 1) {
            n = send(fd, line + sent, size + 1 - sent, MSG_NOSIGNAL);
            sent += n > 0 ? (size_t)n : 0;
        }
    }
    pthread_mutex_unlock(&meeting->lock);
    free(line);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/meeting_private.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/base/thread.h"
#include "topology/start/meeting_listen.h"

enum {
    /* Files that a process has open besides its guests and members. */
    FILES = 64,
    /* Guests that are heard, and that are let in, before the others' turn: of
     * those that have come, each is heard before as many new ones have. */
    HEARD_MOST = 256,
    LET_IN_MOST = 32,
    /* A guest that has not proved within this time who it is is dropped. */
    SILENT_MS = 30000
};

static bool is_listening(struct plait_meeting *meeting)
{
    return meeting->listener >= 0 &&
           plait_meeting_watch(meeting, meeting->listener,
                               &meeting->listener) == 0;
}

/* A meeting that does not listen yet. */
static struct plait_meeting *create(int members, const char *token,
                                    struct plait_error *err)
{
    struct plait_meeting *meeting = calloc(1, sizeof(*meeting));

    if (!meeting)
        goto error;
    pthread_mutex_init(&meeting->lock, NULL);
    meeting->listener = meeting->epoll = meeting->cancel = meeting->old = -1;
    meeting->members = calloc((size_t)members, sizeof(*meeting->members));
    meeting->guests = plait_guests_create(PLAIT_GUESTS_MOST + (size_t)members,
                                          FILES + (size_t)members,
                                          sizeof(struct plait_meeting_guest));
    if (!meeting->members || !meeting->guests)
        goto error;
    meeting->nmembers = members;
    snprintf(meeting->token, sizeof(meeting->token), "%s", token);
    meeting->epoll = epoll_create1(EPOLL_CLOEXEC);
    meeting->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (meeting->epoll >= 0 && meeting->cancel >= 0 &&
        plait_meeting_watch(meeting, meeting->cancel, &meeting->cancel) == 0)
        return meeting;
error:
    plait_errorf(err, "cannot make a meeting: %s", strerror(errno));
    plait_meeting_destroy(meeting);
    return NULL;
}

static struct plait_meeting *give_up(struct plait_meeting *meeting,
                                     const char *whose, struct plait_error *err)
{
    plait_errorf(err, "cannot listen for the step's %s: %s", whose,
                 strerror(errno));
    plait_meeting_destroy(meeting);
    return NULL;
}

struct plait_meeting *plait_meeting_create(int members, const char *token,
                                           const uint16_t ports[2],
                                           struct plait_error *err)
{
    struct plait_meeting *meeting = create(members, token, err);
    int first = ports ? ports[0] : 0, count = ports ? ports[1] - first + 1 : 1;
    int start = count > 1 ? (int)getpid() % count : 0;

    for (int i = 0; i < count && meeting && meeting->listener < 0; i++)
        meeting->listener =
            plait_meeting_listen(first + (start + i) % count, &meeting->port);
    if (!meeting || is_listening(meeting))
        return meeting;
    return give_up(meeting, "nodes", err);
}

struct plait_meeting *plait_meeting_create_at(int members, const char *token,
                                              const int *ports, int nports,
                                              struct plait_error *err)
{
    struct plait_meeting *meeting = create(members, token, err);

    for (int i = 0; i < nports && meeting && meeting->listener < 0; i++)
        meeting->listener = plait_meeting_listen(ports[i], &meeting->port);
    if (!meeting || is_listening(meeting))
        return meeting;
    return give_up(meeting, "nodes", err);
}

struct plait_meeting *plait_meeting_create_here(int members, const char *token,
                                                const char *name,
                                                struct plait_error *err)
{
    struct plait_meeting *meeting = create(members, token, err);

    if (!meeting)
        return NULL;
    meeting->here = 1;
    meeting->listener = plait_meeting_listen_here(name);
    return is_listening(meeting) ? meeting : give_up(meeting, "tasks", err);
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
    for (int i = 0; i < meeting->nmembers; i++)
        if (meeting->members[i].said) {
            close(meeting->members[i].fd);
            free(meeting->members[i].said);
        }
    plait_guests_destroy(meeting->guests);
    close_fd(meeting->listener);
    close_fd(meeting->epoll);
    close_fd(meeting->cancel);
    pthread_mutex_destroy(&meeting->lock);
    free(meeting->members);
    free(meeting);
    errno = saved;
}

int plait_meeting_port(const struct plait_meeting *meeting)
{
    return meeting->port;
}

const char *plait_meeting_said(const struct plait_meeting *meeting, int index)
{
    return meeting->members[index].said;
}

int plait_meeting_old(const struct plait_meeting *meeting)
{
    return meeting->old;
}

void plait_meeting_check(struct plait_meeting *meeting,
                         plait_meeting_check_fn *check, void *arg)
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
        for (int i = 0; i < meeting->nmembers; i++)
            if (meeting->members[i].said)
                send(meeting->members[i].fd, "\n", 1,
                     MSG_DONTWAIT | MSG_NOSIGNAL);
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

bool plait_meeting_gave_up(const struct plait_meeting *meeting, int index)
{
    return !meeting->members[index].said && meeting->members[index].left;
}

static bool has_left(const struct plait_meeting_member *member)
{
    char byte;
    ssize_t n;

    if (!member->said)
        return member->left;
    n = recv(member->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

int plait_meeting_left(const struct plait_meeting *meeting, int *count)
{
    int lowest = -1;

    *count = 0;
    for (int i = meeting->nmembers - 1; i >= 0; i--)
        if (has_left(&meeting->members[i])) {
            lowest = i;
            ++*count;
        }
    return lowest;
}

/* Take what has happened. 1: it was the cancellation. */
static int take_events(struct plait_meeting *meeting,
                       const struct epoll_event *events, int n)
{
    int knocks = 0;

    for (int i = 0; i < n; i++) {
        void *what = events[i].data.ptr;

        if (what == &meeting->cancel)
            return 1;
        if (what == &meeting->listener)
            knocks = 1;
        else
            meeting->arrived += plait_meeting_read_guest(meeting, what);
    }
    /* Last, since it may drop guests, to which later events would belong. */
    for (int i = 0; i < LET_IN_MOST && knocks; i++)
        knocks = plait_meeting_accept(meeting);
    plait_guests_drop_before(meeting->guests, plait_clock_ms() - SILENT_MS);
    return 0;
}

/* Connections of others do not make the wait longer. */
int plait_meeting_wait(struct plait_meeting *meeting, int seconds)
{
    int64_t end = plait_clock_ms() + seconds * INT64_C(1000);
    struct epoll_event events[HEARD_MOST];
    int old = meeting->old;

    while (meeting->arrived < meeting->nmembers) {
        int64_t left = end - plait_clock_ms();
        int before = meeting->arrived, n;

        n = left <= 0
                ? 0
                : epoll_wait(meeting->epoll, events, HEARD_MOST, (int)left);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0 && take_events(meeting, events, n)) {
            errno = ECANCELED;
            return -1;
        }
        if (meeting->old != old) {
            errno = EPROTO;
            return -1;
        }
        if (meeting->arrived > before)
            end = plait_clock_ms() + seconds * INT64_C(1000);
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
    int64_t end = plait_clock_ms() + seconds * INT64_C(1000);
    char byte;

    for (int i = 0; i < meeting->nmembers; i++) {
        struct pollfd one = {.events = POLLIN};
        int64_t left;

        if (!meeting->members[i].said)
            continue;
        one.fd = meeting->members[i].fd;
        left = end - plait_clock_ms();
        while (poll(&one, 1, left > 0 ? (int)left : 0) > 0 &&
               recv(one.fd, &byte, 1, 0) > 0)
            left = end - plait_clock_ms();
    }
}

static void send_line(int fd, const char *line, size_t size)
{
    struct timeval most = {.tv_sec = 10};
    int off = 0;
    size_t sent = 0;
    ssize_t n = 1;

    if (ioctl(fd, FIONBIO, &off) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)))
        return;
    while (n > 0 && sent < size) {
        n = send(fd, line + sent, size - sent, MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
    }
}

void plait_meeting_answer(struct plait_meeting *meeting, const char *text)
{
    size_t size = strlen(text) + PLAIT_MEETING_OVERHEAD;
    char *line = malloc(size), proof[PLAIT_MEETING_PROOF];

    if (!line)
        return;
    pthread_mutex_lock(&meeting->lock); /* no sign of life within an answer */
    for (int i = 0; i < meeting->nmembers; i++) {
        const struct plait_meeting_member *m = &meeting->members[i];

        if (!m->said)
            continue;
        plait_meeting_prove(m->token, "answer", &m->talk, text, proof);
        send_line(m->fd, line,
                  (size_t)snprintf(line, size, "answer %s %s\n", proof, text));
    }
    pthread_mutex_unlock(&meeting->lock);
    free(line);
}

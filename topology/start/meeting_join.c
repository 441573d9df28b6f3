/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* struct ucred */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "topology/start/meeting.h"

static int seconds_left(const struct timespec *end)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return end->tv_sec > now.tv_sec ? (int)(end->tv_sec - now.tv_sec) : 0;
}

/* 0 once the socket is ready; -1 with errno. */
static int wait_for(int fd, short what, const struct timespec *end)
{
    struct pollfd one = {.fd = fd, .events = what};
    int rc;

    do
        rc = poll(&one, 1, seconds_left(end) * 1000);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        errno = ETIMEDOUT;
    return rc > 0 ? 0 : -1;
}

static int connect_to(const struct addrinfo *at, const struct timespec *end)
{
    int fd =
        socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int problem = 0;
    socklen_t size = sizeof(problem);

    if (fd < 0)
        return -1;
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
        return fd;
    problem = errno;
    if (problem == EINPROGRESS) {
        problem = 0;
        if (wait_for(fd, POLLOUT, end) < 0 ||
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) < 0)
            problem = errno;
    }
    if (problem == 0)
        return fd;
    close(fd);
    errno = problem;
    return -1;
}

/* Usually the host listens before members learn its port. Where they know the
 * port themselves, it may begin to listen after they connect. */
static int connect_by_name(const struct plait_meeting_place *place,
                           const struct timespec *begin,
                           const struct timespec *end, struct plait_error *err)
{
    struct timespec patient = {.tv_sec = begin->tv_sec + place->patience};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char service[16];
    int fd = -1, rc;

    snprintf(service, sizeof(service), "%d", place->port);
    rc = getaddrinfo(place->host, service, &hints, &list);
    if (rc) {
        plait_errorf(err, "%s: %s", place->host, gai_strerror(rc));
        return -1;
    }
    while (fd < 0) {
        for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
            fd = connect_to(at, end);
        if (fd >= 0 || errno != ECONNREFUSED || !seconds_left(&patient))
            break;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    if (fd < 0)
        plait_errorf(err, "cannot reach port %d of %s: %s", place->port,
                     place->host, strerror(errno));
    freeaddrinfo(list);
    return fd;
}

/* In the abstract namespace: the name disappears with its process. */
unsigned plait_meeting_address(const char *name, struct sockaddr_un *at)
{
    int n;

    memset(at, 0, sizeof(*at));
    at->sun_family = AF_UNIX;
    n = snprintf(at->sun_path + 1, sizeof(at->sun_path) - 1, "%s", name);
    return (unsigned)offsetof(struct sockaddr_un, sun_path) + 1 + (unsigned)n;
}

int plait_meeting_is_own(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           peer.uid == geteuid();
}

static int connect_here(const struct plait_meeting_place *place,
                        const struct timespec *begin, struct plait_error *err)
{
    struct timespec patient = {.tv_sec = begin->tv_sec + place->patience};
    struct sockaddr_un at;
    socklen_t size = plait_meeting_address(place->here, &at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = -1;

    while (fd >= 0 && (rc = connect(fd, (struct sockaddr *)&at, size)) < 0 &&
           (errno == ECONNREFUSED || errno == EAGAIN) && seconds_left(&patient))
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    if (rc == 0 && !plait_meeting_is_own(fd)) {
        errno = EACCES;
        rc = -1;
    }
    if (rc == 0)
        return fd;
    plait_errorf(err, "cannot reach the first task of this node: %s",
                 strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

/* When a host that sends nothing from now on is given up. */
static struct timespec end_of_quiet(const struct plait_meeting_place *place,
                                    const struct timespec *end)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += place->quiet;
    return place->quiet && at.tv_sec < end->tv_sec ? at : *end;
}

/* 0 once a line has come, of which the newline is cut off. */
static int find_line(char *answer)
{
    char *newline = strchr(answer, '\n');

    if (newline)
        *newline = '\0';
    return newline ? 0 : -1;
}

/* Drop the empty lines before the answer: those are signs of life. */
static size_t drop_signs(char *answer, size_t used)
{
    size_t signs = strspn(answer, "\n");

    memmove(answer, answer + signs, used - signs + 1);
    return used - signs;
}

static int read_answer(const struct plait_meeting_place *place, int fd,
                       const struct timespec *end, char *answer,
                       struct plait_error *err)
{
    size_t used = 0;

    for (;;) {
        struct timespec until = end_of_quiet(place, end);
        ssize_t n =
            wait_for(fd, POLLIN, &until) < 0
                ? -1
                : recv(fd, answer + used, PLAIT_MEETING_ANSWER - 1 - used, 0);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n == 0)
            errno = ECONNRESET;
        if (n < 0 && errno == ETIMEDOUT && until.tv_sec < end->tv_sec) {
            errno = ETIME;
            return plait_errorf(err, "%s has sent nothing for %d seconds",
                                place->host, place->quiet);
        }
        if (n <= 0)
            return plait_errorf(err, "no answer came: %s", strerror(errno));
        used += (size_t)n;
        answer[used] = '\0';
        if (place->quiet)
            used = drop_signs(answer, used);
        if (find_line(answer) == 0)
            return 0;
        if (used == PLAIT_MEETING_ANSWER - 1)
            return plait_errorf(err, "the answer is too long");
    }
}

int plait_meeting_call(const struct plait_meeting_place *place, int index,
                       const char *text, int seconds, struct plait_error *err)
{
    char line[PLAIT_MEETING_SAID + 128];
    struct timespec begin, end;
    int fd, n;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    end = begin;
    end.tv_sec += seconds;
    end = end_of_quiet(place, &end);
    fd = *place->here ? connect_here(place, &begin, err)
                      : connect_by_name(place, &begin, &end, err);
    if (fd < 0)
        return -1;
    n = snprintf(line, sizeof(line), "plait %s %d %.*s\n", place->token, index,
                 PLAIT_MEETING_SAID - 1, text);
    if (send(fd, line, (size_t)n, MSG_NOSIGNAL) == n)
        return fd;
    plait_errorf(err, "cannot write to %s: %s", place->host, strerror(errno));
    n = errno;
    close(fd);
    errno = n;
    return -1;
}

int plait_meeting_hear(const struct plait_meeting_place *place, int fd,
                       int seconds, char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err)
{
    struct timespec end;
    int rc, saved;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    rc = read_answer(place, fd, &end, answer, err);
    saved = errno;
    close(fd);
    errno = saved;
    return rc;
}

int plait_meeting_join(const struct plait_meeting_place *place, int index,
                       const char *text, int seconds,
                       char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err)
{
    int fd = plait_meeting_call(place, index, text, seconds, err);

    return fd < 0 ? -1 : plait_meeting_hear(place, fd, seconds, answer, err);
}

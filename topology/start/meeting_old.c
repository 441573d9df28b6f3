/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/start/meeting.h"
#include "topology/start/meeting_private.h"

/* Version 1 of the meetings, where a member sent the token. This runs where no
 * signal reaches it, so that whatever the host does it ends in time. */

enum { ANSWER_MOST_MS = 10000 };

/* 0 once the socket is ready, -1 at `end`. */
static int await(int fd, short what, int64_t end)
{
    struct pollfd one = {.fd = fd, .events = what};
    int64_t left = end - plait_clock_ms();

    return left > 0 && poll(&one, 1, (int)left) > 0 ? 0 : -1;
}

/* Names are not looked up: a name server may take its time. */
static int connect_to(const struct plait_meeting_place *place, int64_t end)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST},
                    *at = NULL;
    char service[16];
    int fd;

    snprintf(service, sizeof(service), "%d", place->port);
    if (getaddrinfo(place->host, service, &hints, &at))
        return -1;
    fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) < 0 &&
        (errno != EINPROGRESS || await(fd, POLLOUT, end) < 0)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(at);
    return fd;
}

void plait_meeting_refuse_old(const struct plait_meeting_place *place,
                              int index, const char *text)
{
    int64_t end = plait_clock_ms() + ANSWER_MOST_MS;
    char line[PLAIT_MEETING_SAID + 128], byte;
    int fd = connect_to(place, end), n;

    if (fd < 0)
        return;
    n = snprintf(line, sizeof(line), "plait %s %d %.*s\n", place->token, index,
                 PLAIT_MEETING_SAID - 1, text);
    /* The host takes a member that leaves early for one that gave it up. */
    if (send(fd, line, (size_t)n, MSG_NOSIGNAL) == n)
        for (int i = 0;
             i < 8 && await(fd, POLLIN, end) == 0 && recv(fd, &byte, 1, 0) > 0;
             i++)
            ;
    close(fd);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topology/start/meeting.h"

/* Version 1 of the meetings, where a member sent the token. */

enum { SECONDS = 10 };

static int connect_to(const struct plait_meeting_place *place)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    struct timeval most = {.tv_sec = SECONDS};
    char service[16];
    int fd = -1;

    snprintf(service, sizeof(service), "%d", place->port);
    if (getaddrinfo(place->host, service, &hints, &list))
        return -1;
    for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 &&
            (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) ||
             setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)) ||
             connect(fd, at->ai_addr, at->ai_addrlen))) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

void plait_meeting_refuse_old(const struct plait_meeting_place *place,
                              int index, const char *text)
{
    char line[PLAIT_MEETING_SAID + 128], byte;
    int fd = connect_to(place), n;

    if (fd < 0)
        return;
    n = snprintf(line, sizeof(line), "plait %s %d %.*s\n", place->token, index,
                 PLAIT_MEETING_SAID - 1, text);
    /* The host takes a member that leaves early for one that gave it up. */
    if (send(fd, line, (size_t)n, MSG_NOSIGNAL) == n)
        for (int i = 0; i < 8 && recv(fd, &byte, 1, 0) > 0; i++)
            ;
    close(fd);
}

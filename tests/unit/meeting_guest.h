/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_MEETING_GUEST_H
#define PLAIT_TESTS_UNIT_MEETING_GUEST_H

/* What the tests of meetings share: guests of a meeting. */

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "topology/start/meeting.h"

/* Read up to a line end; the line's length without it, -1: the connection has
 * ended. */
static inline int read_line(int fd, char *line, size_t size)
{
    size_t used = 0;

    while (used < size - 1 && recv(fd, line + used, 1, 0) == 1) {
        if (line[used] == '\n') {
            line[used] = '\0';
            return (int)used;
        }
        used++;
    }
    return -1;
}

static inline int dial(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval most = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
        return fd;
    close(fd);
    return -1;
}

static inline void *wait_long(void *meeting)
{
    plait_meeting_wait(meeting, 60);
    return NULL;
}

/* Joins a meeting in a child process, which ends with 0 if the answer is
 * "well" and comes within `seconds`. */
static inline pid_t come(int port, int index, const char *text, int seconds)
{
    pid_t pid = fork();

    if (pid == 0) {
        struct plait_meeting_place place = {
            .host = "127.0.0.1", .token = "known", .port = port};
        char *answer = malloc(PLAIT_MEETING_ANSWER);
        struct plait_error err;

        for (int fd = 3; fd < 64; fd++) /* do not keep the listener open */
            close(fd);
        _exit(!answer ||
              plait_meeting_join(&place, index, text, seconds, answer, &err) <
                  0 ||
              strcmp(answer, "well") != 0);
    }
    return pid;
}

/* Wait up to a minute until this member has come. */
static inline int has_come(struct plait_meeting *meeting, int index)
{
    for (int i = 0; i < 60 && !plait_meeting_said(meeting, index); i++)
        if (plait_meeting_wait(meeting, 1) < 0)
            return 0;
    return plait_meeting_said(meeting, index) != NULL;
}

#endif

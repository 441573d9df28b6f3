/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_MEETING_PRIVATE_H
#define PLAIT_TOPOLOGY_START_MEETING_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "topology/base/guests.h"
#include "topology/start/meeting.h"
#include "topology/start/meeting_line.h"

/* What meeting.c and meeting_admit.c share: the host; and the clock of both
 * sides. */

/* Of a connection that has not shown to be a member's yet. */
struct plait_meeting_guest {
    struct plait_meeting_talk talk;
    size_t used;
    char line[PLAIT_MEETING_SAID + PLAIT_MEETING_OVERHEAD];
};

struct plait_meeting_member {
    char *said; /* NULL: it has not come */
    int fd;
    int left; /* it has not come, and says that it will not */
    struct plait_meeting_talk talk;
    char token[PLAIT_MEETING_TOKEN];
};

struct plait_meeting {
    int listener, epoll, cancel, port;
    int nmembers, arrived, here, old;
    char token[PLAIT_MEETING_TOKEN];
    plait_meeting_check_fn *check; /* or NULL */
    void *arg;
    struct plait_meeting_member *members;
    struct plait_guests *guests;
    int keeps; /* seconds between signs of life, 0: none are sent */
    pthread_t keeper;
    pthread_mutex_t lock; /* for members, which the keeper reads */
};

/* Let plait_meeting_wait() see what comes from fd. */
int plait_meeting_watch(struct plait_meeting *meeting, int fd, void *what);
/* Take a connection. 1: there may be more; 0: none waits, or none can be
 * taken. */
bool plait_meeting_accept(struct plait_meeting *meeting);
/* Read from a guest. 1: it has become a member; else it may have been
 * dropped. */
int plait_meeting_read_guest(struct plait_meeting *meeting,
                             struct plait_guest *guest);

#endif

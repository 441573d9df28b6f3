/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_MEETING_VISIT_H
#define PLAIT_TOPOLOGY_START_MEETING_VISIT_H

#include <netdb.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/start/meeting.h"
#include "topology/start/meeting_line.h"

/* What meeting_find.c and meeting_join.c share: a member, and its tries to find
 * the host. */

enum plait_meeting_phase {
    PLAIT_TRY_WAITS,    /* is to be connected at `again` */
    PLAIT_TRY_CONNECTS, /* until it can be written to */
    PLAIT_TRY_GREETED,  /* the greeting is to come */
    PLAIT_TRY_PROVES,   /* the welcome is to come */
    PLAIT_TRY_WELCOME,
    PLAIT_TRY_OVER /* see problem */
};

struct plait_meeting_try {
    const struct addrinfo *at; /* NULL: on this machine */
    int fd, port, drops, problem;
    enum plait_meeting_phase phase;
    int64_t again; /* ms */
    size_t used;
    char line[PLAIT_MEETING_OVERHEAD];
    struct plait_meeting_talk talk;
};

struct plait_meeting_visit {
    const struct plait_meeting_place *place;
    char text[PLAIT_MEETING_SAID];
    int64_t begin, end; /* ms */
    int ntries;
    struct plait_meeting_try *tries;
    struct pollfd *polls;
    struct addrinfo *addresses;
    char *answer; /* of PLAIT_MEETING_ANSWER + PLAIT_MEETING_OVERHEAD */
    size_t used;
};

/* Fill the list of tries; v->place is set. */
int plait_meeting_list_tries(struct plait_meeting_visit *v,
                             struct plait_error *err);
/* The first try that has come to `phase`, or NULL with the reason in err. */
struct plait_meeting_try *
plait_meeting_find_host(struct plait_meeting_visit *v,
                        enum plait_meeting_phase phase,
                        struct plait_error *err);
/* Tell a host that does not greet that this member has left. */
void plait_meeting_say_left(const struct plait_meeting_visit *v);
void plait_meeting_end_try(struct plait_meeting_try *t, int problem);
/* When a host that sends nothing from now on is given up. */
int64_t plait_meeting_end_of_quiet(const struct plait_meeting_visit *v);
/* -1, with `problem` in errno. */
int plait_meeting_say_unwelcome(const struct plait_meeting_visit *v,
                                int problem, struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_MEETING_H
#define PLAIT_TOPOLOGY_START_MEETING_H

#include <stdint.h>

#include "topology/base/error.h"

/* How the members of a step (its nodes, or its tasks) agree before any task
 * starts: each tells one line to a host, and all wait for the one line that
 * the host answers. A token, which other users do not know, says who belongs
 * to it. */

/* The longest line of a member, and of the host's. */
enum { PLAIT_MEETING_SAID = 512, PLAIT_MEETING_ANSWER = 65536 };

struct plait_meeting;

/* Listen for `members` members. `ports` is the range (first, last) in which
 * the port must lie, NULL: any. NULL, with the reason in err. */
struct plait_meeting *plait_meeting_create(int members, const char *token,
                                           const uint16_t ports[2],
                                           struct plait_error *err);
/* The same on this machine alone: of processes of this user, at a name that
 * they know. */
struct plait_meeting *plait_meeting_create_here(int members, const char *token,
                                                const char *name,
                                                struct plait_error *err);
/* Those who wait still see an end of file. */
void plait_meeting_destroy(struct plait_meeting *meeting);

int plait_meeting_port(const struct plait_meeting *meeting);

/* Where the token is known to others: take member `index` in only where
 * check() finds 1 in what it says. */
void plait_meeting_check(struct plait_meeting *meeting,
                         int (*check)(void *arg, int index, const char *text),
                         void *arg);

/* Wait until all members have come: 1. 0: none came for `seconds`. -1: the
 * meeting was cancelled, or the system failed; errno says what. */
int plait_meeting_wait(struct plait_meeting *meeting, int seconds);
/* What member `index` said, NULL: it has not come. */
const char *plait_meeting_said(const struct plait_meeting *meeting, int index);
/* Tell it to all who came. */
void plait_meeting_answer(struct plait_meeting *meeting, const char *text);
/* Before the answer: nobody else can come, and who hears the answer finds the
 * port free. */
void plait_meeting_close(struct plait_meeting *meeting);
/* After the answer: wait up to `seconds` until the members have hung up, so
 * that none of their connections keeps the port. */
void plait_meeting_part(struct plait_meeting *meeting, int seconds);
/* Let plait_meeting_wait() return, in whichever thread that is. */
void plait_meeting_cancel(struct plait_meeting *meeting);

/* The line of a member, "plait TOKEN INDEX TEXT": 0 with its parts, `text`
 * inside of it, or -1. Pure. */
int plait_meeting_parse(const char *line, char token[65], int *index,
                        const char **text);

/* Where a member goes. */
struct plait_meeting_place {
    char host[256], token[65];
    char here[96]; /* not "": the name on this machine, in place of these two */
    int port;
    int patience; /* seconds in which the host may begin to listen */
};

/* For both sides: the address of a name, and whether a process of this user is
 * at the other end. */
struct sockaddr_un;
unsigned plait_meeting_address(const char *name, struct sockaddr_un *at);
int plait_meeting_is_own(int fd);

/* As a member: say `text`, and wait up to `seconds` for the answer. -1, with
 * the reason in err, where there is none; with ECONNRESET the host is gone. */
int plait_meeting_join(const struct plait_meeting_place *place, int index,
                       const char *text, int seconds,
                       char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err);

#endif

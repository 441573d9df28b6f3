/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_MEETING_H
#define PLAIT_TOPOLOGY_START_MEETING_H

#include <stdint.h>

#include "topology/base/error.h"

/* How the members of a step (its nodes, or its tasks) agree before any task
 * starts: each sends one line to a host, and all wait for the one line that the
 * host answers. A token, which other users do not know, shows who is a
 * member. */

/* The longest line of a member, and of the host's. */
enum { PLAIT_MEETING_SAID = 512, PLAIT_MEETING_ANSWER = 65536 };

struct plait_meeting;

/* Listen for `members` members. `ports` is the range (first, last) in which
 * the port must lie, NULL: any. NULL, with the reason in err. */
struct plait_meeting *plait_meeting_create(int members, const char *token,
                                           const uint16_t ports[2],
                                           struct plait_error *err);
/* The same for processes of this user on this machine, at a socket name that
 * they know. */
struct plait_meeting *plait_meeting_create_here(int members, const char *token,
                                                const char *name,
                                                struct plait_error *err);
/* Members that still wait for an answer get an end of file. */
void plait_meeting_destroy(struct plait_meeting *meeting);

int plait_meeting_port(const struct plait_meeting *meeting);

/* Where others know the token: accept member `index` only if check() returns 1
 * for what it says. */
void plait_meeting_check(struct plait_meeting *meeting,
                         int (*check)(void *arg, int index, const char *text),
                         void *arg);

/* Wait until all members have come: 1. 0: no further one came for `seconds`.
 * -1: the meeting was cancelled, or a system call failed; see errno. */
int plait_meeting_wait(struct plait_meeting *meeting, int seconds);
/* From now on send an empty line to the members that have come, every `seconds`
 * and from a thread of its own, until the meeting is cancelled: they know by it
 * that this process runs and can be reached. 0, or -1 with errno. */
int plait_meeting_keep(struct plait_meeting *meeting, int seconds);
/* The lowest member that has come and has left without an answer, or -1.
 * *count: how many such members there are. */
int plait_meeting_left(const struct plait_meeting *meeting, int *count);
/* What member `index` said, NULL: it has not come. */
const char *plait_meeting_said(const struct plait_meeting *meeting, int index);
/* Send `text` to all members that have come. */
void plait_meeting_answer(struct plait_meeting *meeting, const char *text);
/* Stop listening. Before the answer: no one else can come, and a member that
 * has the answer finds the port free. */
void plait_meeting_close(struct plait_meeting *meeting);
/* After the answer: wait up to `seconds` until the members have closed their
 * connections, so that none of these keeps the port. */
void plait_meeting_part(struct plait_meeting *meeting, int seconds);
/* Let plait_meeting_wait() return in whichever thread it runs. */
void plait_meeting_cancel(struct plait_meeting *meeting);

/* Parse the line of a member, "plait TOKEN INDEX TEXT": 0 with its parts, where
 * `text` points into `line`; or -1. Pure. */
int plait_meeting_parse(const char *line, char token[65], int *index,
                        const char **text);

/* Where a member connects to. */
struct plait_meeting_place {
    char host[256], token[65];
    char here[96]; /* not "": the socket name on this machine, instead of host
                      and port */
    int port;
    int patience; /* seconds that the host may take to begin to listen */
    int quiet;    /* seconds after which a host that sends nothing is given up,
                     0: it sends nothing but its answer */
};

/* For both sides: the address of a socket name, and whether a process of this
 * user is at the other end. */
struct sockaddr_un;
unsigned plait_meeting_address(const char *name, struct sockaddr_un *at);
int plait_meeting_is_own(int fd);

/* As a member: send `text`, and return the connection, or -1 with the reason in
 * err. The second waits up to `seconds` for the answer, and closes it. -1, with
 * the reason in err, where there is none; errno is ECONNRESET where the host
 * has gone, and ETIME where it has sent nothing for place->quiet seconds. */
int plait_meeting_call(const struct plait_meeting_place *place, int index,
                       const char *text, int seconds, struct plait_error *err);
int plait_meeting_hear(const struct plait_meeting_place *place, int fd,
                       int seconds, char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err);
/* Both. */
int plait_meeting_join(const struct plait_meeting_place *place, int index,
                       const char *text, int seconds,
                       char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_MEETING_H
#define PLAIT_TOPOLOGY_START_MEETING_H

#include <stdbool.h>
#include <stdint.h>

#include "topology/base/error.h"
#include "topology/start/meeting_line.h"

/* How the members of a step (its nodes, or its tasks) agree before any task
 * starts: each sends one line to a host, and all wait for the one line that the
 * host answers. A token, which other users do not know, shows who is a member
 * and who is the host: both prove that they know it, and none sends it. A
 * process that has taken the host's port learns nothing by it and can answer
 * nothing. Others may connect as often as they like: see guests.h. */

/* Sizes of a member's text, of the host's answer, of a token, and of a socket's
 * name on this machine. */
enum {
    PLAIT_MEETING_SAID = 768,
    PLAIT_MEETING_ANSWER = 65536,
    PLAIT_MEETING_TOKEN = 65,
    PLAIT_MEETING_HOST = 256,
    PLAIT_MEETING_HERE = 64
};

struct plait_meeting;

/* Listen for `members` members. `ports` is the range (first, last) in which
 * the port must lie, NULL: any. NULL, with the reason in err. */
struct plait_meeting *plait_meeting_create(int members, const char *token,
                                           const uint16_t ports[2],
                                           struct plait_error *err);
/* The same at the first of these ports that is free. */
struct plait_meeting *plait_meeting_create_at(int members, const char *token,
                                              const int *ports, int nports,
                                              struct plait_error *err);
/* The same for processes of this user on this machine, at a socket name that
 * they know, shorter than PLAIT_MEETING_HERE. */
struct plait_meeting *plait_meeting_create_here(int members, const char *token,
                                                const char *name,
                                                struct plait_error *err);
/* Members that still wait for an answer get an end of file. */
void plait_meeting_destroy(struct plait_meeting *meeting);

int plait_meeting_port(const struct plait_meeting *meeting);

/* Where each member has a token of its own, which its text tells to none but
 * the host: check() writes it, and returns 1 where the text is one of member
 * `index`. */
typedef int plait_meeting_check_fn(void *arg, int index, const char *text,
                                   char token[PLAIT_MEETING_TOKEN]);
void plait_meeting_check(struct plait_meeting *meeting,
                         plait_meeting_check_fn *check, void *arg);

/* Wait until all members have come: 1. 0: no further one came for `seconds`.
 * -1: the meeting was cancelled, or a system call failed; see errno. EPROTO: a
 * member of a Plait that meets in an older way has come, and has left. */
int plait_meeting_wait(struct plait_meeting *meeting, int seconds);
/* From now on send an empty line to the members that have come, every `seconds`
 * and from a thread of its own, until the meeting is cancelled: they know by it
 * that this process runs and can be reached. 0, or -1 with errno. */
int plait_meeting_keep(struct plait_meeting *meeting, int seconds);
/* The lowest member that has left without an answer, or -1. *count: how many
 * such members there are. */
int plait_meeting_left(const struct plait_meeting *meeting, int *count);
/* Has this member left before this process greeted it? Then it has said
 * nothing. */
bool plait_meeting_gave_up(const struct plait_meeting *meeting, int index);
/* The first member that meets in an older way, -1: none has come. */
int plait_meeting_old(const struct plait_meeting *meeting);
/* What member `index` said, cleaned (plait_text_clean); NULL: it has not
 * come. */
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

/* Where a member connects to. */
struct plait_meeting_place {
    char host[PLAIT_MEETING_HOST], token[PLAIT_MEETING_TOKEN];
    char here[PLAIT_MEETING_HERE]; /* not "": the socket name on this machine,
                                      instead of host and port */
    int port;
    const int *others; /* [nothers] ports where the host is if it has not got
                          the first */
    int nothers;
    int patience; /* seconds that the host may take to begin to listen */
    int quiet;    /* seconds after which a host that sends nothing is given up,
                     0: it sends nothing but its answer */
    /* for plait_meeting_hear() */
    int proved; /* the member's line has been sent */
    struct plait_meeting_talk talk;
    char text[PLAIT_MEETING_SAID];
};

/* For both sides: the address of a socket name, and whether a process of this
 * user is at the other end. */
struct sockaddr_un;
unsigned plait_meeting_address(const char *name, struct sockaddr_un *at);
bool plait_meeting_is_own(int fd);

/* As a member: send `text`, and wait up to `seconds` for the answer. -1, with
 * the reason in err, where there is none; errno is ECONNRESET where the host
 * has gone, ETIME where it has sent nothing for place->quiet seconds, and
 * EPROTO where what listens there does not know the token. */
int plait_meeting_join(const struct plait_meeting_place *place, int index,
                       const char *text, int seconds,
                       char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err);
/* The same in two parts, between which the process may fork. The first
 * connects, for which the host's process need not run, sends the text if the
 * host greets it within `seconds`, and returns the connection. The second sends
 * the text if that is still to be done, hears the answer, and closes the
 * connection. */
int plait_meeting_call(struct plait_meeting_place *place, int index,
                       const char *text, int seconds, struct plait_error *err);
int plait_meeting_hear(const struct plait_meeting_place *place, int fd,
                       int seconds, char answer[PLAIT_MEETING_ANSWER],
                       struct plait_error *err);
/* The same to a host of version 1, which cannot prove anything, to tell it that
 * this member cannot join. Sends the token: the step ends by it. */
void plait_meeting_refuse_old(const struct plait_meeting_place *place,
                              int index, const char *text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_MEETING_LINE_H
#define PLAIT_TOPOLOGY_START_MEETING_LINE_H

#include <stdbool.h>

/* The lines by which a host and a member of a step prove to each other that
 * they know its token, which neither of them sends. All are pure but
 * plait_meeting_nonce().
 *
 *     host    plait-meeting 2 NONCE            as soon as somebody connects
 *     member  member INDEX NONCE PROOF TEXT
 *     host    welcome PROOF                    to a member, at once
 *     host    answer PROOF TEXT                once all have come
 *     member  left INDEX NONCE PROOF           instead of its other line, where
 *                                              no greeting came
 *
 * A nonce is drawn anew for each connection. A proof is an HMAC of who says it
 * (member, welcome, answer, left), both nonces, the member's index and the
 * text. That of a member that has left has no nonce of the host. Who repeats it
 * says what is true: a member that has given its host up does not come again.
 * Empty lines of the host are signs of life. */

enum {
    PLAIT_MEETING_VERSION = 2,
    PLAIT_MEETING_NONCE = 33,    /* 32 hexadecimal digits */
    PLAIT_MEETING_PROOF = 65,    /* 64 */
    PLAIT_MEETING_OVERHEAD = 128 /* more than a line has besides its text */
};

/* What tells this connection from all others. */
struct plait_meeting_talk {
    char host[PLAIT_MEETING_NONCE], member[PLAIT_MEETING_NONCE];
    int index;
};

/* Draw a nonce: 0, or -1 with errno. */
int plait_meeting_nonce(char nonce[PLAIT_MEETING_NONCE]);
/* `role`: "member", "welcome", "answer" or "left". */
void plait_meeting_prove(const char *token, const char *role,
                         const struct plait_meeting_talk *talk,
                         const char *text, char proof[PLAIT_MEETING_PROOF]);
/* The same proof? In constant time. */
bool plait_meeting_same(const char a[PLAIT_MEETING_PROOF],
                        const char b[PLAIT_MEETING_PROOF]);

/* 0; or -1: this is no such line. `text` points into the line, which has no
 * newline. */
int plait_meeting_parse_hello(const char *line,
                              char nonce[PLAIT_MEETING_NONCE]);
/* Fills talk->member and talk->index. */
int plait_meeting_parse_member(const char *line,
                               struct plait_meeting_talk *talk,
                               char proof[PLAIT_MEETING_PROOF],
                               const char **text);
/* The same. */
int plait_meeting_parse_left(const char *line, struct plait_meeting_talk *talk,
                             char proof[PLAIT_MEETING_PROOF]);
int plait_meeting_parse_host(const char *line, const char *role,
                             char proof[PLAIT_MEETING_PROOF],
                             const char **text);
/* A member's line of version 1, which had the token in clear: "plait TOKEN
 * INDEX TEXT". */
int plait_meeting_parse_old(const char *line, char token[65], int *index);

#endif

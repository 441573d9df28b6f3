/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_FATE_H
#define PLAIT_RUNTIME_COMM_FATE_H

#include "runtime/comm/members.h"

/* What a process that regroups (members.h) knows of each of the others: from
 * its attempts to reach them, from what its machine shows of its own processes,
 * and from what other processes report. */

/* AWAY: it is not known whether it lives. STOPPED: by a signal; so it belongs
 * to no other part of the world, and learns that it was left out before it does
 * anything else. */
enum plait_fate {
    PLAIT_FATE_ALIVE,
    PLAIT_FATE_ENDED,
    PLAIT_FATE_AWAY,
    PLAIT_FATE_STOPPED
};

/* Times in seconds; 0: never, or not any more. */
struct plait_election_peer {
    enum plait_fate fate;
    double since;  /* since when it cannot be reached */
    double still;  /* since when it is seen to be stopped */
    double missed; /* when its machine was last tried in vain */
    double told;   /* when it was last told who is stopped here */
};

struct plait_election {
    struct plait_members *m;
    struct plait_rendezvous meeting;
    struct plait_election_peer *peer; /* [size] by number */
    double began;                     /* when the wait for the others began */
    const struct plait_patience *patience;
    struct plait_guests *callers; /* of plait_notice_came() */
    int tries;
    int *fds; /* [size] connections of the leader to the others */
    int away; /* so many are AWAY that this machine's part may not go on; 0:
                 it may, or that is not known */
};

/* Whether a process is stopped by a signal right now, as far as this machine
 * can see. If it stays so for a while, STOPPED becomes its fate. */
bool plait_fate_stopped(struct plait_election *c, int number);
/* Draws conclusions from a look at a process, `seen` as from
 * plait_members_probe(). For a machine that is silent or cannot be reached they
 * hold for all its processes. */
void plait_fate_note(struct plait_election *c, int number, int seen);
/* Others report that the process is stopped; arg: the election. */
void plait_fate_hear(void *arg, int number);
/* Tells process `to`, which leads or may lead on another machine, who is
 * stopped on this one, which it cannot see. Repeats that only from time to
 * time. */
void plait_fate_tell(struct plait_election *c, int to);

#endif

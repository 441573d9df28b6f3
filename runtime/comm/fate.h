/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_FATE_H
#define PLAIT_RUNTIME_COMM_FATE_H

#include "runtime/comm/members.h"

/* What a process that regroups (members.h) knows of the others: by its tries to
 * reach them, by what its machine sees of its processes, and by what others
 * say. */

/* AWAY: nobody knows whether it lives. STOPPED by a signal, so that it is in no
 * other part, and learns that it was left out before it does anything else. */
enum plait_fate {
    PLAIT_FATE_ALIVE,
    PLAIT_FATE_ENDED,
    PLAIT_FATE_AWAY,
    PLAIT_FATE_STOPPED
};

/* When, in seconds; 0: not at all, or not any more. */
struct plait_election_peer {
    enum plait_fate fate;
    double since;  /* it could not be reached */
    double still;  /* it was seen to be stopped */
    double missed; /* its machine was last tried in vain */
    double told;   /* it was last told who is stopped here */
};

struct plait_election {
    struct plait_members *m;
    struct plait_meeting meeting;
    struct plait_election_peer *peer; /* [size] by number */
    double began;                     /* to wait for the others */
    const struct plait_patience *patience;
    int tries;
    int *fds; /* [size] of the lowest, to the others */
};

/* Whether a process is stopped by a signal at this time, as far as this machine
 * can see; after a while that is its fate. */
bool plait_fate_stopped(struct plait_election *c, int number);
/* What a look at a process says of it; `seen` as plait_members_probe(). It says
 * the same of all of a machine that cannot be reached or is silent. */
void plait_fate_note(struct plait_election *c, int number, int seen);
/* Others have seen that it is stopped; arg: the election. */
void plait_fate_hear(void *arg, int number);
/* Tell process `to`, which leads or may lead on another machine, who is stopped
 * on this one: it cannot see that. Not more often than is of use. */
void plait_fate_tell(struct plait_election *c, int to);

#endif

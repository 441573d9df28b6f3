/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/fate.h"

#include <unistd.h>

#include "runtime/comm/bootstrap/notice.h"
#include "runtime/stuck/look.h"
#include "topology/base/clock.h"

/* How long processes of a machine that was silent but can be reached have to
 * come: as a rule they are frozen. */
#define FROZEN_S 2
/* How often to repeat which processes are stopped. */
#define TELL_S 0.5

/* False for processes that this machine cannot see. */
static bool is_stopped(const struct plait_members *m, int number)
{
    const struct plait_contact *c = &m->all[number];

    return c->space == m->all[m->self].space &&
           plait_stuck_state_of(c->pid) == PLAIT_STUCK_STOPPED;
}

bool plait_fate_stopped(struct plait_election *c, int number)
{
    double now = plait_clock_now();
    bool still = is_stopped(c->m, number);

    if (!still)
        c->peer[number].still = 0;
    else if (c->peer[number].still <= 0)
        c->peer[number].still = now;
    if (still && now - c->peer[number].still >= c->patience->stopped)
        c->peer[number].fate = PLAIT_FATE_STOPPED;
    return still;
}

static bool was_silent(const struct plait_election *c, int number)
{
    return c->patience->silent && c->patience->silent[number];
}

static void note_missed(struct plait_election *c, int number, double now)
{
    c->peer[number].missed = now;
    if (c->peer[number].since <= 0)
        c->peer[number].since = now;
    if (was_silent(c, number) ||
        now - c->peer[number].since > c->patience->away)
        c->peer[number].fate = PLAIT_FATE_AWAY;
}

/* A process that can be reached but does not come is computing, or stopped. */
static void note_slow(struct plait_election *c, int number, double now)
{
    double waits = now - c->began;

    c->peer[number].since = 0;
    if (waits > c->patience->slow ||
        (was_silent(c, number) && waits > FROZEN_S))
        c->peer[number].fate = PLAIT_FATE_AWAY;
    plait_fate_stopped(c, number);
}

void plait_fate_note(struct plait_election *c, int number, int seen)
{
    const struct plait_members *m = c->m;
    double now = plait_clock_now();

    if (seen == 0)
        c->peer[number].fate = PLAIT_FATE_ENDED;
    for (int i = 0; i < m->n && seen != 0; i++) {
        int other = m->present[i];

        if (other == m->self || c->peer[other].fate != PLAIT_FATE_ALIVE ||
            c->fds[other] >= 0 || m->all[other].space != m->all[number].space)
            continue;
        if (seen < 0)
            note_missed(c, other, now);
        else if (other == number || was_silent(c, other))
            note_slow(c, other, now);
    }
}

void plait_fate_hear(void *arg, int number)
{
    struct plait_election *c = arg;

    if (number != c->m->self && c->peer[number].fate == PLAIT_FATE_ALIVE &&
        c->fds[number] < 0)
        c->peer[number].fate = PLAIT_FATE_STOPPED;
}

void plait_fate_tell(struct plait_election *c, int to)
{
    const struct plait_members *m = c->m;
    uint64_t here = m->all[m->self].space;
    double now = plait_clock_now();
    int fd = -1, stopped;

    if (m->all[to].space == here || now - c->peer[to].told < TELL_S)
        return;
    for (int i = 0; i < m->n; i++) {
        stopped = m->present[i];
        if (m->all[stopped].space != here || stopped == m->self)
            continue;
        if (c->peer[stopped].fate == PLAIT_FATE_ALIVE)
            plait_fate_stopped(c, stopped);
        if (c->peer[stopped].fate != PLAIT_FATE_STOPPED)
            continue;
        c->peer[to].told = now;
        c->meeting.root = to;
        fd = plait_rendezvous_reach(plait_members_host(m, to), m->all[to].port,
                                    1);
        if (fd < 0)
            return;
        plait_notice_send_stopped(&c->meeting, fd, stopped);
        close(fd);
    }
}

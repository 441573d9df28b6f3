/* SPDX-License-Identifier: Apache-2.0 */
/* plait_members_regroup(): agree on who is left. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/notice.h"
#include "runtime/comm/fate.h"
#include "topology/base/clock.h"
#include "topology/base/guests.h"
#include "topology/base/hash.h"

/* After a loss every process that notices it comes here, at about the same time
 * and without knowing who else is left. They agree like this:
 *
 *   - A process asks the living ones with lower numbers, again and again,
 *     until one of them leads and answers, or none is left that lives. Then it
 *     leads itself. So the lowest number that lives comes to lead.
 *   - The leader collects all that come to its port, each with a proof of the
 *     step's secret. Of the others it finds out what became of them (fate.h):
 *     ended, away (its machine cannot be reached) or stopped by a signal. It
 *     waits until it knows that of all, however long each kind takes (struct
 *     plait_patience).
 *   - It may go on only if those who came are more than those who are away, or
 *     as many and have the lowest number among them (check_part). That is what
 *     keeps two halves of a divided network from training on alike: each
 *     counts the other as away, and at most one is larger. Who has ended is in
 *     neither half. A stopped process could run on later and find itself
 *     alone, so it is told first that it is left out, by a notice that waits
 *     in its socket; if that cannot be sent, it counts as away.
 *   - The leader sends the view: a random number for the new world, its epoch,
 *     and the members by rank. A process that holds another epoch belongs to
 *     another world, and its connections are refused.
 *
 * The view may get lost on its way to some, and the leader may die before it
 * has sent it to all. Then some know the new world and some the one before.
 * Members keep both numbers and try both keys, so that the next regroup, which
 * the loss of that leader sets off, still brings them together.
 *
 * Numbers are fixed for the life of a job; ranks are positions in `order` and
 * change. The last ranks move into the places of the lost ones, so that all
 * others keep rank, data and peers. */

/* What the leader may take to collect the others, beyond its patience with
 * processes that can be reached and do not come. */
#define ANSWER_S 30
/* How long the leader may take to greet a process that asks, and how many
 * living ones with lower numbers a process asks in a round: not one only, as
 * that may be stopped, on another machine. */
enum { GREET_S = 2, ASKED = 4 };
/* How often a process that waits for the outcome looks around. */
enum { LOOK_MS = 100 };

static uint64_t key_of(const struct plait_members *m, uint64_t epoch)
{
    return plait_hash_text(plait_hash_text(PLAIT_HASH_START, m->jobid),
                           "regroup") +
           epoch;
}

/* What the leader sends to the others. It is followed by the numbers of the
 * world's processes, by rank, and of those that live but are left out. n 0: the
 * leader may not go on, as nout processes are away; nothing follows. */
struct view {
    uint64_t epoch;
    int32_t n, nout;
};

/* -- the lowest ------------------------------------------------------------ */

static void look_around(void *arg, int *fds)
{
    struct plait_election *c = arg;
    double now = plait_clock_now();

    for (int r = c->m->self + 1; r < c->m->size; r++) {
        if (fds[r] != -1)
            continue;
        if (c->peer[r].fate == PLAIT_FATE_ALIVE && c->peer[r].missed < now)
            plait_fate_note(c, r, plait_members_probe(c->m, r));
        if (c->peer[r].fate != PLAIT_FATE_ALIVE)
            fds[r] = PLAIT_RENDEZVOUS_GONE;
    }
}

static int was_cut_off(const struct plait_election *c, struct plait_error *err)
{
    errno = EHOSTUNREACH;
    return plait_errorf(err,
                        "rank %d: %d other ranks are alive and do not answer: "
                        "they have gone on, or cannot be reached; this rank "
                        "ends",
                        c->m->self, c->away);
}

/* Of two parts of a world that cannot reach each other at most one may go on:
 * the larger one or, if they are equal, the one with the lowest number.
 * Processes that have ended are in neither. -1 sets c->away. */
static int check_part(struct plait_election *c, int n, struct plait_error *err)
{
    const struct plait_members *m = c->m;
    int away = 0, lowest = m->size;

    for (int i = m->n - 1; i >= 0; i--)
        if (c->peer[m->present[i]].fate == PLAIT_FATE_AWAY) {
            away++;
            lowest = m->present[i];
        }
    if (n > away || (n == away && m->self < lowest))
        return 0;
    c->away = away;
    return was_cut_off(c, err);
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void take_members(struct plait_members *m, const struct view *v,
                         const int32_t *numbers)
{
    m->before = m->epoch;
    m->epoch = v->epoch;
    m->n = v->n;
    memset(m->out, 0, (size_t)m->size * sizeof(*m->out));
    for (int i = 0; i < v->nout; i++)
        m->out[numbers[v->n + i]] = true;
    for (int i = 0; i < v->n; i++) {
        m->present[i] = m->order[i] = numbers[i];
        if (numbers[i] == m->self)
            m->rank = i;
    }
    qsort(m->present, (size_t)m->n, sizeof(*m->present), by_number);
}

/* The new order of ranks: the last process takes the place of one that is gone.
 * Returns how many there are. */
static int fill_places(const struct plait_election *c, int32_t *numbers)
{
    const struct plait_members *m = c->m;
    int last = m->n, n = 0;

    for (int i = 0; i < last; i++) {
        int number = m->order[i];

        while (number != m->self && c->fds[number] < 0 && last > i + 1)
            number = m->order[--last];
        if (number == m->self || c->fds[number] >= 0)
            numbers[n++] = number;
    }
    return n;
}

/* A process that does not receive it asks again. */
static void send_view(const struct plait_election *c, const struct view *v,
                      const int32_t *numbers)
{
    for (int r = 0; r < c->m->size; r++)
        if (c->fds[r] >= 0 && plait_write_all(c->fds[r], v, sizeof(*v)) == 0)
            plait_write_all(c->fds[r], numbers,
                            (size_t)(v->n + v->nout) * sizeof(*numbers));
}

/* Tells processes of the leader's machine that it may not go on: they reach no
 * others than it does, and end now instead of each after an election of its
 * own. */
static void send_cut_off(const struct plait_election *c)
{
    const struct plait_members *m = c->m;
    const struct view v = {.n = 0, .nout = c->away};

    for (int r = 0; r < m->size; r++)
        if (c->fds[r] >= 0 && m->all[r].space == m->all[m->self].space)
            plait_write_all(c->fds[r], &v, sizeof(v));
}

/* Whether process `number` is sure to read that it was left out. */
static bool tell_out(struct plait_election *c, int number)
{
    const struct plait_members *m = c->m;
    int fd = plait_rendezvous_reach(plait_members_host(m, number),
                                    m->all[number].port, GREET_S);
    bool told;

    c->meeting.root = number;
    told = fd >= 0 && plait_notice_send(&c->meeting, fd) == 0;
    if (fd >= 0)
        close(fd);
    return told;
}

/* A stopped process counts for no other part once it has been told that it is
 * left out; if it cannot be told, it counts as AWAY. */
static int leave_out(struct plait_election *c, int n, struct plait_error *err)
{
    const struct plait_members *m = c->m;

    if (check_part(c, n, err) < 0)
        return -1;
    for (int i = 0; i < m->n; i++)
        if (c->peer[m->present[i]].fate == PLAIT_FATE_STOPPED &&
            !tell_out(c, m->present[i]))
            c->peer[m->present[i]].fate = PLAIT_FATE_AWAY;
    if (check_part(c, n, err) < 0)
        return -1;
    for (int i = 0; i < m->n; i++)
        if (c->peer[m->present[i]].fate == PLAIT_FATE_AWAY &&
            c->peer[m->present[i]].since <= 0)
            tell_out(c, m->present[i]);
    return 0;
}

static int list_out(const struct plait_election *c, int32_t *numbers)
{
    const struct plait_members *m = c->m;
    int n = 0;

    for (int i = 0; i < m->n; i++)
        if (c->peer[m->present[i]].fate == PLAIT_FATE_AWAY ||
            c->peer[m->present[i]].fate == PLAIT_FATE_STOPPED)
            numbers[n++] = m->present[i];
    return n;
}

static int was_left_out(const struct plait_members *m, struct plait_error *err)
{
    errno = ESTALE;
    return plait_errorf(err,
                        "rank %d did not answer, and the others have gone on "
                        "without it; this rank ends",
                        m->rank);
}

static int lead_election(struct plait_election *c, struct plait_error *err)
{
    struct plait_members *m = c->m;
    struct view v = {.n = 0};
    int32_t *numbers = calloc((size_t)m->size, sizeof(*numbers));
    int rc = numbers ? 0 : plait_errorf(err, "out of memory");

    for (int i = 0; i < m->n; i++)
        if (m->present[i] > m->self &&
            c->peer[m->present[i]].fate == PLAIT_FATE_ALIVE)
            c->fds[m->present[i]] = -1;
    c->meeting.root = m->self;
    c->began = plait_clock_now();
    if (rc == 0)
        rc = plait_rendezvous_gather(&c->meeting, m->listener, c->fds, err);
    if (rc < 0 && errno == ESTALE)
        was_left_out(m, err);
    if (rc == 0) {
        v.n = fill_places(c, numbers);
        rc = leave_out(c, v.n, err);
        if (rc < 0)
            send_cut_off(c);
    }
    if (rc == 0)
        v.nout = list_out(c, numbers + v.n);
    if (rc == 0 && getrandom(&v.epoch, sizeof(v.epoch), 0) != sizeof(v.epoch))
        rc = plait_errorf(err, "no random numbers: %s", strerror(errno));
    if (rc == 0) {
        send_view(c, &v, numbers);
        take_members(m, &v, numbers);
    }
    free(numbers);
    return rc;
}

/* -- the others ------------------------------------------------------------ */

/* Whether each number occurs once, and this process is among those present. */
static bool is_sound(const struct plait_members *m, const struct view *v,
                     const int32_t *numbers)
{
    bool *seen = calloc((size_t)m->size, sizeof(*seen)), sound = seen != NULL;
    bool among = false;

    for (int i = 0; sound && i < v->n + v->nout; i++) {
        sound = numbers[i] >= 0 && numbers[i] < m->size && !seen[numbers[i]];
        if (sound)
            seen[numbers[i]] = true;
        among |= i < v->n && numbers[i] == m->self;
    }
    free(seen);
    return sound && among;
}

/* Wait until process `number`, the leader, has sent its next message; -1: it
 * never does. Processes that ask this one meanwhile are turned away, so that
 * they ask the leader. */
static int await_leader(struct plait_election *c, int number, int fd)
{
    double until = plait_clock_now() + c->meeting.timeout_s;

    while (plait_clock_now() < until) {
        struct pollfd p[2] = {{fd, POLLIN, 0}, {c->m->listener, POLLIN, 0}};

        if (poll(p, 2, LOOK_MS) < 0 && errno != EINTR)
            return -1;
        if (p[0].revents)
            return 0;
        if (plait_notice_came(&c->meeting, c->m->listener, c->callers)) {
            c->m->told = true;
            return -1;
        }
        plait_fate_tell(c, number);
    }
    return -1;
}

/* Receive the outcome from the leader, which this process has given a proof. */
static int receive_view(struct plait_election *c, int number, int fd)
{
    const struct timeval patience = {.tv_sec = ANSWER_S};
    struct plait_members *m = c->m;
    int32_t *numbers = calloc((size_t)m->size, sizeof(*numbers));
    struct view v;
    bool came;
    int rc = -1;

    came = numbers && await_leader(c, number, fd) == 0 &&
           plait_rendezvous_await(&c->meeting, fd) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience,
                      sizeof(patience)) == 0 &&
           await_leader(c, number, fd) == 0 &&
           plait_read_all(fd, &v, sizeof(v)) == 0;
    if (came && v.n == 0 && m->all[number].space == m->all[m->self].space)
        c->away = v.nout;
    if (came && v.n > 0 && v.nout >= 0 && v.n <= m->size - v.nout &&
        plait_read_all(fd, numbers,
                       (size_t)(v.n + v.nout) * sizeof(*numbers)) == 0 &&
        is_sound(m, &v, numbers)) {
        take_members(m, &v, numbers);
        rc = 0;
    }
    free(numbers);
    return rc;
}

/* Ask once. 0: process `number` leads and has answered. */
static int ask(struct plait_election *c, int number)
{
    const struct plait_members *m = c->m;
    struct plait_rendezvous meeting = c->meeting;
    int fd, seen, rc = -1;

    if (plait_members_ended(m, number)) {
        plait_fate_note(c, number, 0);
        return -1;
    }
    plait_fate_tell(c, number);
    fd = plait_rendezvous_reach(plait_members_host(m, number),
                                m->all[number].port, 1);
    seen = fd >= 0 ? 1 : errno == ECONNREFUSED ? 0 : -1;
    /* If one of the two has not heard of its current world, both still know the
     * world before it, so both keys are tried in turn. */
    meeting.key = key_of(m, c->tries++ % 2 ? m->before : m->epoch);
    meeting.root = number;
    if (fd >= 0 && plait_rendezvous_greet(&meeting, fd, GREET_S) == 0)
        rc = receive_view(c, number, fd);
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        plait_fate_note(c, number, seen);
    return rc;
}

/* Follow the first process with a lower number that leads, or lead. */
static int run_election(struct plait_election *c, struct plait_error *err)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    const struct plait_members *m = c->m;
    double began;
    int alive;

    do {
        alive = 0;
        began = plait_clock_now();
        if (m->told || plait_notice_came(&c->meeting, m->listener, c->callers))
            return was_left_out(m, err);
        for (int i = 0; i < m->n && m->present[i] < m->self; i++) {
            int number = m->present[i];

            if (c->peer[number].fate != PLAIT_FATE_ALIVE || alive == ASKED)
                continue;
            /* Do not ask a stopped process, nor one on a machine that was just
             * tried in vain. */
            if (!plait_fate_stopped(c, number) &&
                c->peer[number].missed < began && ask(c, number) == 0)
                return 0;
            if (c->away > 0)
                return was_cut_off(c, err);
            alive += c->peer[number].fate == PLAIT_FATE_ALIVE;
        }
        if (alive > 0)
            nanosleep(&pause, NULL);
    } while (alive > 0);
    return lead_election(c, err);
}

static struct plait_rendezvous meeting_of(const struct plait_members *m)
{
    struct plait_rendezvous meeting = {.name = "world",
                                       .key = key_of(m, m->epoch),
                                       .also = key_of(m, m->before),
                                       .rank = m->self,
                                       .size = m->size,
                                       .timeout_s = PLAIT_SLOW_S + ANSWER_S,
                                       .ids = m->ids,
                                       .newest = m->newest,
                                       .standing = true};

    memcpy(meeting.secret, m->secret, sizeof(m->secret));
    return meeting;
}

void plait_members_hear(struct plait_members *m, const unsigned char *head,
                        const unsigned char *proof)
{
    struct plait_rendezvous meeting = meeting_of(m);

    m->told |= plait_notice_take(&meeting, head, proof);
}

int plait_members_regroup(struct plait_members *m,
                          const struct plait_patience *patience,
                          struct plait_error *err)
{
    size_t n = (size_t)m->size;
    struct plait_election c = {
        .m = m,
        .meeting = meeting_of(m),
        .peer = calloc(n, sizeof(*c.peer)),
        .patience = patience,
        .began = plait_clock_now(),
        .callers = plait_notice_callers(),
        .fds = calloc(n, sizeof(*c.fds)),
    };
    int rc;

    c.meeting.timeout_s = patience->slow + ANSWER_S;
    c.meeting.look = look_around;
    c.meeting.stopped = plait_fate_hear;
    c.meeting.arg = &c;
    for (int r = 0; c.fds && r < m->size; r++)
        c.fds[r] = PLAIT_RENDEZVOUS_GONE;
    rc = c.peer && c.fds && c.callers ? run_election(&c, err)
                                      : plait_errorf(err, "out of memory");
    for (int r = 0; c.fds && r < m->size; r++)
        if (c.fds[r] >= 0)
            close(c.fds[r]);
    plait_guests_destroy(c.callers);
    free(c.peer);
    free(c.fds);
    return rc;
}

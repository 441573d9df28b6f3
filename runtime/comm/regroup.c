/* SPDX-License-Identifier: Apache-2.0 */
/* plait_members_regroup(): who is left. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/members.h"
#include "runtime/comm/notice.h"
#include "runtime/comm/trace.h"
#include "runtime/stuck/look.h"
#include "topology/base/hash.h"

/* A process that can be reached and does not come computes, or is stopped. */
#define SILENT_S 60
/* Of a machine that is away, nobody knows whether its processes live. */
#define AWAY_S 10
/* What the lowest takes to hear of the others, or to lose patience. */
#define ANSWER_S (SILENT_S + 30)
/* What one that leads takes to greet who asks, and how many that live may be
 * before it: they may be stopped, on another machine. */
enum { GREET_S = 2, ASKED = 4 };

/* STOPPED by a signal, so that it is in no other part, and learns that it was
 * left out before it does anything else. */
enum fate { ALIVE, ENDED, AWAY, STOPPED };

struct election {
    struct plait_members *m;
    struct plait_meeting meeting;
    enum fate *fate; /* [size] by number */
    double *since;   /* [size] it could not be reached; 0: it could */
    double *still;   /* [size] it was seen to be stopped; 0: it was not */
    double began;    /* to wait for the others */
    double patience; /* with one that is stopped */
    int tries;
    int *fds; /* [size] of the lowest, to the others */
};

static uint64_t key_of(const struct plait_members *m, uint64_t epoch)
{
    return plait_hash_text(plait_hash_text(PLAIT_HASH_START, m->jobid),
                           "regroup") +
           epoch;
}

/* What the lowest tells the others: behind it, the numbers by rank, and of
 * those that are left out though they live. */
struct view {
    uint64_t epoch;
    int32_t n, nout;
};

/* As far as this machine can see its processes. */
static bool is_stopped(const struct plait_members *m, int number)
{
    const struct plait_contact *c = &m->all[number];

    return c->space == m->all[m->self].space &&
           plait_stuck_state_of(c->pid) == PLAIT_STUCK_STOPPED;
}

static void note_still(struct election *c, int number)
{
    double now = plait_trace_now();

    if (!is_stopped(c->m, number))
        c->still[number] = 0;
    else if (c->still[number] <= 0)
        c->still[number] = now;
    if (c->still[number] > 0 && now - c->still[number] >= c->patience)
        c->fate[number] = STOPPED;
}

/* What a look at a process says of it; `seen` as plait_members_probe(). */
static void note_fate(struct election *c, int number, int seen)
{
    double now = plait_trace_now();

    if (seen == 0) {
        c->fate[number] = ENDED;
    } else if (seen > 0) {
        c->since[number] = 0;
        if (now - c->began > SILENT_S)
            c->fate[number] = AWAY;
        note_still(c, number);
    } else if (c->since[number] <= 0) {
        c->since[number] = now;
    } else if (now - c->since[number] > AWAY_S) {
        c->fate[number] = AWAY;
    }
}

/* -- the lowest ------------------------------------------------------------ */

static void look_around(void *arg, int *fds)
{
    struct election *c = arg;

    for (int r = c->m->self + 1; r < c->m->size; r++) {
        if (fds[r] != -1)
            continue;
        note_fate(c, r, plait_members_probe(c->m, r));
        if (c->fate[r] != ALIVE)
            fds[r] = PLAIT_RENDEZVOUS_GONE;
    }
}

/* Of two parts of a world that cannot reach each other, at most one goes on:
 * the larger one, or the one that has the lowest. Who has ended is in none. */
static int check_part(const struct election *c, int n, struct plait_error *err)
{
    const struct plait_members *m = c->m;
    int away = 0, lowest = m->size;

    for (int i = m->n - 1; i >= 0; i--)
        if (c->fate[m->present[i]] == AWAY) {
            away++;
            lowest = m->present[i];
        }
    if (n > away || (n == away && m->self < lowest))
        return 0;
    errno = EHOSTUNREACH;
    return plait_errorf(err,
                        "rank %d: %d other ranks live and do not answer: they "
                        "go on, or cannot be reached; ended",
                        m->self, away);
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

/* The others by rank: in place of one that is gone, the last. Returns how many
 * there are. */
static int fill_places(const struct election *c, int32_t *numbers)
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

/* Who does not get it asks again. */
static void send_view(const struct election *c, const struct view *v,
                      const int32_t *numbers)
{
    for (int r = 0; r < c->m->size; r++)
        if (c->fds[r] >= 0 && plait_write_all(c->fds[r], v, sizeof(*v)) == 0)
            plait_write_all(c->fds[r], numbers,
                            (size_t)(v->n + v->nout) * sizeof(*numbers));
}

/* Whether it is sure that process `number` will read that it was left out. */
static bool tell_out(struct election *c, int number)
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

/* What is stopped counts for no other part once it has been told. */
static int leave_out(struct election *c, int n, struct plait_error *err)
{
    const struct plait_members *m = c->m;

    if (check_part(c, n, err) < 0)
        return -1;
    for (int i = 0; i < m->n; i++)
        if (c->fate[m->present[i]] == STOPPED && !tell_out(c, m->present[i]))
            c->fate[m->present[i]] = AWAY;
    if (check_part(c, n, err) < 0)
        return -1;
    for (int i = 0; i < m->n; i++)
        if (c->fate[m->present[i]] == AWAY && c->since[m->present[i]] <= 0)
            tell_out(c, m->present[i]);
    return 0;
}

static int list_out(const struct election *c, int32_t *numbers)
{
    const struct plait_members *m = c->m;
    int n = 0;

    for (int i = 0; i < m->n; i++)
        if (c->fate[m->present[i]] == AWAY || c->fate[m->present[i]] == STOPPED)
            numbers[n++] = m->present[i];
    return n;
}

static int was_left_out(const struct plait_members *m, struct plait_error *err)
{
    errno = ESTALE;
    return plait_errorf(err,
                        "rank %d did not answer, and the others have gone on "
                        "without it; ended",
                        m->rank);
}

static int lead_election(struct election *c, struct plait_error *err)
{
    struct plait_members *m = c->m;
    struct view v = {.n = 0};
    int32_t *numbers = calloc((size_t)m->size, sizeof(*numbers));
    int rc = numbers ? 0 : plait_errorf(err, "out of memory");

    for (int i = 0; i < m->n; i++)
        if (m->present[i] > m->self && c->fate[m->present[i]] == ALIVE)
            c->fds[m->present[i]] = -1;
    c->meeting.root = m->self;
    c->began = plait_trace_now();
    if (rc == 0)
        rc = plait_rendezvous_gather(&c->meeting, m->listener, c->fds, err);
    if (rc < 0 && errno == ESTALE)
        was_left_out(m, err);
    if (rc == 0) {
        v.n = fill_places(c, numbers);
        rc = leave_out(c, v.n, err);
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

/* Each number once, and this process's among them. */
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

/* What the lowest says, on a connection that it has taken. */
static int receive_view(struct election *c, int fd)
{
    const struct timeval patience = {.tv_sec = ANSWER_S};
    struct plait_members *m = c->m;
    int32_t *numbers = calloc((size_t)m->size, sizeof(*numbers));
    struct view v;
    int rc = -1;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (numbers && plait_read_all(fd, &v, sizeof(v)) == 0 && v.n > 0 &&
        v.nout >= 0 && v.n <= m->size - v.nout &&
        plait_read_all(fd, numbers,
                       (size_t)(v.n + v.nout) * sizeof(*numbers)) == 0 &&
        is_sound(m, &v, numbers)) {
        take_members(m, &v, numbers);
        rc = 0;
    }
    free(numbers);
    return rc;
}

/* One try. 0: it leads, and has answered. */
static int ask(struct election *c, int number)
{
    const struct plait_members *m = c->m;
    int fd = plait_rendezvous_reach(plait_members_host(m, number),
                                    m->all[number].port, GREET_S);
    int seen = fd >= 0 ? 1 : errno == ECONNREFUSED ? 0 : -1, rc = -1;

    /* Where this one or that one has not heard of the world that it is in now,
     * they share the one before. */
    c->meeting.key = key_of(m, c->tries++ % 2 ? m->before : m->epoch);
    c->meeting.root = number;
    if (fd >= 0 && plait_rendezvous_greet(&c->meeting, fd) == 0)
        rc = receive_view(c, fd);
    c->meeting.key = key_of(m, m->epoch);
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        note_fate(c, number, seen);
    return rc;
}

/* The first of those before this one that lead, or this one. */
static int run_election(struct election *c, struct plait_error *err)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    const struct plait_members *m = c->m;
    int alive;

    do {
        alive = 0;
        if (m->told || plait_notice_came(&c->meeting, m->listener))
            return was_left_out(m, err);
        for (int i = 0; i < m->n && m->present[i] < m->self; i++) {
            if (c->fate[m->present[i]] != ALIVE || alive == ASKED)
                continue;
            if (ask(c, m->present[i]) == 0)
                return 0;
            alive += c->fate[m->present[i]] == ALIVE;
        }
        if (alive > 0)
            nanosleep(&pause, NULL);
    } while (alive > 0);
    return lead_election(c, err);
}

static struct plait_meeting meeting_of(const struct plait_members *m)
{
    struct plait_meeting meeting = {.name = "world",
                                    .key = key_of(m, m->epoch),
                                    .also = key_of(m, m->before),
                                    .rank = m->self,
                                    .size = m->size,
                                    .timeout_s = ANSWER_S,
                                    .standing = true};

    memcpy(meeting.secret, m->secret, sizeof(m->secret));
    return meeting;
}

void plait_members_hear(struct plait_members *m, const unsigned char *head,
                        const unsigned char *proof)
{
    struct plait_meeting meeting = meeting_of(m);

    m->told |= plait_notice_is(&meeting, head, proof);
}

int plait_members_regroup(struct plait_members *m, double patience_s,
                          struct plait_error *err)
{
    size_t n = (size_t)m->size;
    struct election c = {
        .m = m,
        .meeting = meeting_of(m),
        .fate = calloc(n, sizeof(*c.fate)),
        .since = calloc(n, sizeof(*c.since)),
        .still = calloc(n, sizeof(*c.still)),
        .patience = patience_s,
        .began = plait_trace_now(),
        .fds = calloc(n, sizeof(*c.fds)),
    };
    int rc;

    c.meeting.look = look_around;
    c.meeting.arg = &c;
    for (int r = 0; c.fds && r < m->size; r++)
        c.fds[r] = PLAIT_RENDEZVOUS_GONE;
    rc = c.fate && c.since && c.still && c.fds
             ? run_election(&c, err)
             : plait_errorf(err, "out of memory");
    for (int r = 0; c.fds && r < m->size; r++)
        if (c.fds[r] >= 0)
            close(c.fds[r]);
    free(c.fate);
    free(c.since);
    free(c.still);
    free(c.fds);
    return rc;
}

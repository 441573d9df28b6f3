/* SPDX-License-Identifier: Apache-2.0 */
/* plait_rendezvous_gather(): the end that listens. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/bootstrap/greeting.h"
#include "runtime/comm/bootstrap/notice.h"
#include "runtime/comm/bootstrap/rendezvous.h"
#include "topology/base/clock.h"
#include "topology/base/files.h"
#include "topology/base/guests.h"

/* A connection that has not sent its hello within this time is dropped, and one
 * that has not sent its proof so long after the answer. */
#define PATIENCE_S 5
/* How often the root calls look() and in_vain(). */
#define LOOK_S 0.1
/* KNOWN: connections at once whose hello is sealed by the secret, one a rank.
 * ACCEPTED: how many are accepted before those that have come are read again.
 * FILES: what the rest of the process may have open. */
enum { KNOWN = 1024, ACCEPTED = 256, FILES = 256 };

/* A rank that was answered. Strangers cannot make a hello of which a rank has
 * not made a newer one, so they take none of these places. */
struct known {
    int fd; /* -1: dropped */
    double until;
    struct plait_greeting greeting;
};

struct host {
    const struct plait_rendezvous *m;
    int *fds;
    double looked;
    bool out;                    /* the others go on without this process */
    bool vain;                   /* a rank that is missing will not come */
    struct plait_guests *guests; /* those without a hello */
    uint64_t *began;             /* [size] by rank: of its newest hello */
    int nknown;
    struct known known[KNOWN];
    struct pollfd poll[KNOWN + PLAIT_GUESTS_MOST + 1];
    struct plait_guest *polled[PLAIT_GUESTS_MOST];
};

static int64_t ms(double seconds)
{
    return (int64_t)(seconds * 1000);
}

/* -- ranks that were answered ---------------------------------------------- */

static void drop_known(struct known *k)
{
    if (k->fd >= 0)
        close(k->fd);
    k->fd = -1;
}

static void sweep_known(struct host *h)
{
    int n = 0;

    for (int i = 0; i < h->nknown; i++)
        if (h->known[i].fd >= 0)
            h->known[n++] = h->known[i];
    h->nknown = n;
}

static bool is_expected(const struct host *h, const struct plait_hello *hello)
{
    return hello->rank > (uint32_t)h->m->root && h->fds[hello->rank] == -1 &&
           hello->began > h->began[hello->rank];
}

/* Answers the hello. A rank that sends another one has given up the connection
 * on which the last one came. Takes over fd. */
static void answer(struct host *h, int fd,
                   const struct plait_greeting *greeting)
{
    struct known *k = &h->known[h->nknown];
    uint32_t rank = greeting->hello.rank;

    *k = (struct known){fd, plait_clock_now() + PATIENCE_S, *greeting};
    h->began[rank] = greeting->hello.began;
    for (int i = 0; i < h->nknown; i++)
        if (h->known[i].greeting.hello.rank == rank)
            drop_known(&h->known[i]);
    if (plait_greeting_reply(&k->greeting, h->m, fd) < 0)
        drop_known(k);
    else
        h->nknown++;
}

/* Reads what has come of the proof. */
static void read_known(struct host *h, struct known *k)
{
    int heard = plait_greeting_hear(&k->greeting, h->m, k->fd);
    int *fd = &h->fds[k->greeting.hello.rank];

    if (heard == 0)
        return;
    if (heard == 2 && *fd == -1 && plait_greeting_confirm(k->fd) == 0) {
        plait_greeting_settle(k->fd);
        *fd = k->fd;
        k->fd = -1;
    }
    drop_known(k);
}

/* -- guests ---------------------------------------------------------------- */

/* Reads what has come of the hello. */
static void read_guest(struct host *h, struct plait_guest *g)
{
    struct plait_greeting greeting, *own = g->own;
    int heard;

    if (h->nknown == KNOWN)
        return;
    heard = plait_greeting_hear(own, h->m, g->fd);
    greeting = *own;
    if (heard == 0)
        return;
    if (heard == PLAIT_GREETING_NOTICE)
        h->out |= plait_notice_take(h->m, &greeting.hello, greeting.seal);
    if (heard == 1 && is_expected(h, &greeting.hello))
        answer(h, plait_guests_take(h->guests, g), &greeting);
    else
        plait_guests_drop(h->guests, g);
}

/* Whether the listener cannot be used any more. Other errors are those of a
 * connection that is gone already. */
static bool is_broken(int error)
{
    return error == EBADF || error == EINVAL || error == ENOTSOCK ||
           error == EFAULT || error == EMFILE || error == ENFILE;
}

/* A rank's hello has come, as a rule, when its connection is accepted: it is
 * read before the connection could lose its place to another. -1 with errno. */
static int accept_guests(struct host *h, int listener)
{
    for (int i = 0; i < ACCEPTED && h->nknown < KNOWN; i++) {
        struct sockaddr_storage from;
        socklen_t n = sizeof(from);
        int fd = accept4(listener, (struct sockaddr *)&from, &n,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct plait_guest *g;

        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) &&
            plait_guests_make_room(h->guests))
            continue;
        if (fd < 0 && is_broken(errno))
            return -1;
        g = fd < 0
                ? NULL
                : plait_guests_add(h->guests, fd, &from, ms(plait_clock_now()));
        if (g)
            read_guest(h, g);
    }
    return 0;
}

/* -- rounds ---------------------------------------------------------------- */

static int count_missing(const struct host *h)
{
    int n = 0;

    for (int r = h->m->root + 1; r < h->m->size; r++)
        n += h->fds[r] == -1;
    return n;
}

static bool looks(const struct plait_rendezvous *m)
{
    return m->look || m->in_vain;
}

static void look_around(struct host *h)
{
    const struct plait_rendezvous *m = h->m;

    if (!looks(m) || plait_clock_now() - h->looked < LOOK_S)
        return;
    if (m->look)
        m->look(m->arg, h->fds);
    h->vain = m->in_vain && m->in_vain(m->arg) && count_missing(h) > 0;
    h->looked = plait_clock_now();
}

/* What to poll: the known ones, the guests, the listener. Returns how many
 * guests. While there is no place for another known one, guests wait. */
static int list_polled(struct host *h, int listener)
{
    bool room = h->nknown < KNOWN;
    struct plait_guest *g = plait_guests_oldest(h->guests);
    int n = 0;

    for (int i = 0; i < h->nknown; i++)
        h->poll[i] = (struct pollfd){h->known[i].fd, POLLIN, 0};
    for (; room && g; g = g->newer) {
        h->polled[n] = g;
        h->poll[h->nknown + n++] = (struct pollfd){g->fd, POLLIN, 0};
    }
    h->poll[h->nknown + n] = (struct pollfd){room ? listener : -1, POLLIN, 0};
    return n;
}

/* One round of poll() and accept(); -1 with errno. Whose time ran out after
 * `now`, while this process was stopped, may have sent what was due. */
static int serve_round(struct host *h, int listener, double deadline)
{
    double now = plait_clock_now(), left = deadline - now;
    double pause = looks(h->m) ? LOOK_S : 1;
    int nknown = h->nknown, n = list_polled(h, listener);

    if (left <= 0) {
        errno = ETIMEDOUT;
        return -1;
    }
    if (poll(h->poll, (nfds_t)(nknown + n + 1),
             (int)((left < pause ? left : pause) * 1000) + 1) < 0)
        return errno == EINTR ? 0 : -1;
    for (int i = 0; i < nknown; i++) {
        if (h->poll[i].revents)
            read_known(h, &h->known[i]);
        if (now > h->known[i].until)
            drop_known(&h->known[i]);
    }
    for (int i = 0; i < n; i++)
        if (h->poll[nknown + i].revents)
            read_guest(h, h->polled[i]);
    plait_guests_drop_before(h->guests, ms(now - PATIENCE_S));
    sweep_known(h);
    return accept_guests(h, listener);
}

static struct host *host_create(const struct plait_rendezvous *m, int *fds)
{
    struct host *h = calloc(1, sizeof(*h));

    if (!h)
        return NULL;
    plait_files_allow((size_t)m->size + KNOWN + PLAIT_GUESTS_MOST);
    h->m = m;
    h->fds = fds;
    h->began = calloc((size_t)m->size, sizeof(*h->began));
    h->guests =
        plait_guests_create(PLAIT_GUESTS_MOST, (size_t)m->size + KNOWN + FILES,
                            sizeof(struct plait_greeting));
    if (h->began && h->guests)
        return h;
    plait_guests_destroy(h->guests);
    free(h->began);
    free(h);
    return NULL;
}

static void host_destroy(struct host *h)
{
    for (int i = 0; i < h->nknown; i++)
        drop_known(&h->known[i]);
    plait_guests_destroy(h->guests);
    free(h->began);
    free(h);
}

/* Until all have come. -1 with errno; ECANCELED: in vain. */
static int serve(struct host *h, int listener, double deadline)
{
    for (;;) {
        look_around(h);
        if (h->out || h->vain) {
            errno = h->out ? ESTALE : ECANCELED;
            return -1;
        }
        if (count_missing(h) == 0)
            return 0;
        if (serve_round(h, listener, deadline) < 0 && !h->out)
            return -1;
    }
}

static int first_missing(const struct host *h)
{
    int r = h->m->root + 1;

    while (r < h->m->size && h->fds[r] != -1)
        r++;
    return r;
}

static void say_why(const struct host *h, int why, struct plait_error *err)
{
    const struct plait_rendezvous *m = h->m;

    if (why == ETIMEDOUT)
        plait_errorf(err,
                     "%s: %d of %d ranks did not connect within %g s, the "
                     "first of them rank %d",
                     m->name, count_missing(h), m->size, m->timeout_s,
                     first_missing(h));
    else if (why == ESTALE)
        plait_errorf(err, "%s: the job goes on without this rank", m->name);
    else if (why == ECANCELED)
        plait_errorf(err, "%s: a rank has ended", m->name);
    else
        plait_errorf(err, "%s: accept: %s", m->name, strerror(why));
}

int plait_rendezvous_gather(const struct plait_rendezvous *m, int listener,
                            int *fds, struct plait_error *err)
{
    double deadline = plait_clock_now() + m->timeout_s;
    struct host *h = host_create(m, fds);
    int rc, saved;

    if (!h)
        return plait_errorf(err, "%s: out of memory", m->name);
    rc = serve(h, listener, deadline);
    saved = errno;
    if (rc < 0)
        say_why(h, saved, err);
    host_destroy(h);
    errno = saved;
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of the links: how they are made and how they end. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/tcp/links_meet.h"
#include "runtime/comm/tcp/links_private.h"
#include "topology/base/clock.h"

/* A connection that has not proved the secret within this time is dropped. */
#define PATIENCE_S 5
/* How many connections are accepted, and how many of those without a hello are
 * looked at, before other things have their turn. */
enum { ACCEPTED = 256, EVENTS = 64 };
/* How long to wait after a failed attempt to connect to a peer. */
#define AGAIN_S 0.01
/* How long a peer whose connection broke is only suspected. News of the actual
 * loss comes along the tree by then, however busy the machines are. */
#define SUSPECT_S 5

/* -- the list -------------------------------------------------------------- */

/* poll[0] is for the gate. */
static int make_room(struct plait_links *l)
{
    size_t n = l->room ? 2 * (size_t)l->room : 16;
    struct plait_wire **wire;
    struct pollfd *poll;

    if (l->nwires < l->room)
        return 0;
    poll = realloc(l->poll, (n + 1) * sizeof(*poll));
    if (!poll)
        return -1;
    l->poll = poll;
    wire = realloc(l->wire, n * sizeof(*wire));
    if (!wire)
        return -1;
    l->wire = wire;
    l->room = (int)n;
    return 0;
}

struct plait_wire *plait_wire_add(struct plait_links *l, int fd, int peer,
                                  enum plait_wire_state state)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct plait_wire *w = calloc(1, sizeof(*w));
    bool added = false;

    pthread_mutex_lock(&l->lock);
    if (w && make_room(l) == 0 &&
        epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event) == 0) {
        w->fd = fd;
        w->at = l->nwires;
        w->peer = peer;
        w->state = state;
        w->since = plait_clock_now();
        l->poll[w->at + 1] = (struct pollfd){fd, POLLIN, 0};
        l->wire[l->nwires++] = w;
        added = true;
    }
    pthread_mutex_unlock(&l->lock);
    if (added) {
        l->nguests += state == PLAIT_WIRE_GUEST;
        if (plait_links_failure(l)) /* another thread has just given up */
            shutdown(fd, SHUT_RDWR);
        return w;
    }
    free(w);
    close(fd);
    if (state != PLAIT_WIRE_GUEST) /* the peer tries again */
        plait_links_lose(l, l->rank, "out of memory for a connection");
    return NULL;
}

void plait_wire_set_sending(struct plait_links *l, struct plait_wire *w,
                            bool sending)
{
    if (w->sending == sending)
        return;
    w->sending = sending;
    l->poll[w->at + 1].events = (short)(POLLIN | (sending ? POLLOUT : 0));
    if (sending)
        atomic_fetch_add(&l->sending, 1);
    else
        atomic_fetch_sub(&l->sending, 1);
}

void plait_wire_close(struct plait_links *l, struct plait_wire *w)
{
    struct plait_link *k = w->peer >= 0 ? l->link[w->peer] : NULL;

    if (w->fd < 0)
        return;
    plait_wire_set_sending(l, w, false);
    l->nguests -= w->state == PLAIT_WIRE_GUEST;
    if (k && k->way == w)
        k->way = NULL;
    pthread_mutex_lock(&l->lock);
    close(w->fd);
    w->fd = l->poll[w->at + 1].fd = -1;
    l->swept = false;
    pthread_mutex_unlock(&l->lock);
}

void plait_wires_sweep(struct plait_links *l)
{
    int n = 0;

    if (l->swept)
        return;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->nwires; i++) {
        struct plait_wire *w = l->wire[i];

        if (w->fd < 0) {
            if (w->early)
                w->early->wire = NULL;
            free(w);
            continue;
        }
        l->poll[n + 1] = l->poll[i + 1];
        l->wire[n] = w;
        w->at = n++;
    }
    l->nwires = n;
    l->swept = true;
    pthread_mutex_unlock(&l->lock);
}

void plait_wires_destroy(struct plait_links *l)
{
    for (int i = 0; i < l->nwires; i++)
        plait_wire_close(l, l->wire[i]);
    plait_wires_sweep(l);
    free(l->wire);
    free(l->poll);
}

struct plait_wire *plait_wire_with(const struct plait_links *l, int peer,
                                   enum plait_wire_state state)
{
    for (int i = 0; i < l->nwires; i++)
        if (l->wire[i]->peer == peer && l->wire[i]->state == state &&
            l->wire[i]->fd >= 0)
            return l->wire[i];
    return NULL;
}

bool plait_wire_any(const struct plait_links *l, int peer)
{
    return plait_wire_with(l, peer, PLAIT_WIRE_OPEN) ||
           plait_wire_with(l, peer, PLAIT_WIRE_GUEST) ||
           plait_wire_with(l, peer, PLAIT_WIRE_JOINING);
}

/* -- to a peer ------------------------------------------------------------- */

static void take_way(struct plait_links *l, struct plait_link *k,
                     struct plait_wire *w)
{
    k->way = w;
    if (!k->out)
        return;
    plait_wire_set_sending(l, w, true);
    plait_links_flush(l, k);
}

static void want_again(struct plait_links *l, struct plait_link *k, double when)
{
    k->again = when;
    if (k->wants)
        return;
    k->wants = true;
    k->next = l->wanting;
    l->wanting = k;
}

/* The parameters by which others connect to the port of `rank`. */
static struct plait_rendezvous meeting_of(const struct plait_links *l, int rank)
{
    struct plait_rendezvous m = l->meeting;

    m.key = l->key + (uint64_t)rank;
    m.root = rank;
    return m;
}

/* An attempt to connect has failed with `error`: try again, unless that is of
 * no use. For some seconds after a link comes up the machines behind it are
 * still unreachable, until their addresses are resolved anew. */
static void retry_peer(struct plait_links *l, struct plait_link *k, int error)
{
    double now = plait_clock_now();

    if (k->unreached == 0)
        k->unreached = now;
    if (error == ECONNREFUSED)
        plait_links_suspect(l, k->peer, "it has ended");
    else if (!plait_links_is_silent(error) ||
             now > k->unreached + PLAIT_LINKS_SILENCE_S)
        plait_links_lose(l, k->peer, plait_links_reason(error));
    want_again(l, k, now + AGAIN_S);
}

static void join_peer(struct plait_links *l, struct plait_link *k)
{
    const struct plait_members *all = l->members;
    const struct plait_rendezvous m = meeting_of(l, k->peer);
    int number = all->order[k->peer];
    int fd = plait_rendezvous_reach(plait_members_host(all, number),
                                    all->all[number].port, PATIENCE_S);
    struct plait_wire *w;

    if (fd < 0) {
        retry_peer(l, k, errno);
        return;
    }
    k->unreached = 0;
    w = plait_wire_add(l, fd, k->peer, PLAIT_WIRE_JOINING);
    if (w && plait_greeting_begin(&w->greeting, &m, fd) < 0)
        plait_wire_close(l, w);
    want_again(l, k, plait_clock_now() + AGAIN_S);
}

void plait_link_want(struct plait_links *l, struct plait_link *k,
                     double patience)
{
    struct plait_wire *w = plait_wire_with(l, k->peer, PLAIT_WIRE_OPEN);

    if (w)
        take_way(l, k, w);
    else if (patience > 0)
        want_again(l, k, plait_clock_now() + patience);
    else if (plait_wire_any(l, k->peer))
        want_again(l, k, 0);
    else
        join_peer(l, k);
}

/* Whether nothing more is to be done for it. */
static bool tend_link(struct plait_links *l, struct plait_link *k, double now)
{
    struct plait_wire *w = plait_wire_with(l, k->peer, PLAIT_WIRE_OPEN);

    if (w && !k->way)
        take_way(l, k, w);
    if (w || (!k->out && !k->posted))
        return true;
    if (now >= k->again && !plait_wire_any(l, k->peer))
        join_peer(l, k);
    return false;
}

static void tend_wanting(struct plait_links *l, double now)
{
    struct plait_link **at = &l->wanting, *k;

    while ((k = *at) && !plait_links_failure(l)) {
        if (!tend_link(l, k, now)) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        k->wants = false;
    }
}

/* -- from a peer ----------------------------------------------------------- */

/* A rank that was answered has some time for its proof. This process may not
 * have looked for long: what has come is read before it counts as late. */
static bool is_late(const struct plait_wire *w, double now)
{
    return w->fd >= 0 && w->state == PLAIT_WIRE_GUEST &&
           now > w->since + PATIENCE_S;
}

static void drop_late_wires(struct plait_links *l, double now)
{
    for (int i = 0; i < l->nwires && !plait_links_failure(l); i++) {
        struct plait_wire *w = l->wire[i];

        if (is_late(w, now) && !plait_wire_greet(l, w) && is_late(w, now))
            plait_wire_close(l, w);
    }
}

/* If two processes connect to each other at once, only the lower rank's
 * connection is kept. The higher rank's is closed here, and it waits for the
 * other. A hello that is not newer than the rank's last was not sent by it. */
static bool is_welcome(struct plait_links *l, const struct plait_hello *hello)
{
    int rank = (int)hello->rank;
    struct plait_link *k = rank == l->rank ? NULL : plait_links_of(l, rank);

    return k && hello->began > k->began &&
           !plait_wire_with(l, rank, PLAIT_WIRE_OPEN) &&
           !(rank > l->rank && plait_wire_with(l, rank, PLAIT_WIRE_JOINING));
}

/* A rank that sends another hello has given up the connection on which the last
 * one came. Takes over fd. */
static void answer(struct plait_links *l, int fd,
                   const struct plait_greeting *greeting)
{
    int rank = (int)greeting->hello.rank;
    struct plait_rendezvous m = meeting_of(l, l->rank);
    struct plait_wire *w;

    while ((w = plait_wire_with(l, rank, PLAIT_WIRE_GUEST)))
        plait_wire_close(l, w);
    w = plait_wire_add(l, fd, rank, PLAIT_WIRE_GUEST);
    if (!w)
        return;
    l->link[rank]->began = greeting->hello.began;
    w->greeting = *greeting;
    if (plait_greeting_reply(&w->greeting, &m, fd) < 0)
        plait_wire_close(l, w);
}

/* Reads what has come of a hello. */
static void hear_guest(struct plait_links *l, struct plait_guest *g)
{
    struct plait_rendezvous m = meeting_of(l, l->rank);
    struct plait_greeting greeting, *own = g->own;
    int heard = plait_greeting_hear(own, &m, g->fd);

    if (heard == 0)
        return;
    greeting = *own;
    if (heard == PLAIT_GREETING_NOTICE)
        plait_members_hear(l->members, (unsigned char *)&greeting.hello,
                           greeting.seal);
    epoll_ctl(l->gate, EPOLL_CTL_DEL, g->fd, NULL);
    if (heard == 1 && is_welcome(l, &greeting.hello))
        answer(l, plait_guests_take(l->guests, g), &greeting);
    else
        plait_guests_drop(l->guests, g);
}

/* The next connection; -1: none. */
static int accept_guest(struct plait_links *l, struct sockaddr_storage *from)
{
    socklen_t n;
    int fd;

    do {
        n = sizeof(*from);
        fd = accept4(l->members->listener, (struct sockaddr *)from, &n,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (fd < 0 && (errno == EMFILE || errno == ENFILE) &&
             plait_guests_make_room(l->guests));
    return fd;
}

/* As a rule the hello is there already. */
static void accept_guests(struct plait_links *l, double now)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct sockaddr_storage from;
    int fd;

    for (int i = 0; i < ACCEPTED && (fd = accept_guest(l, &from)) >= 0; i++) {
        struct plait_guest *g =
            plait_guests_add(l->guests, fd, &from, (int64_t)(now * 1000));

        event.data.ptr = g;
        if (g && epoll_ctl(l->gate, EPOLL_CTL_ADD, fd, &event) < 0)
            plait_guests_drop(l->guests, g);
        else if (g)
            hear_guest(l, g);
    }
}

/* What guests have sent is read first, so that none is dropped for its age or
 * to make room although its hello is there. */
void plait_wires_accept(struct plait_links *l)
{
    struct epoll_event event[EVENTS];
    double now = plait_clock_now();
    bool came = false;
    int n;

    do {
        n = epoll_wait(l->gate, event, EVENTS, 0);
        for (int i = 0; i < n && !plait_links_failure(l); i++)
            if (event[i].data.ptr)
                hear_guest(l, event[i].data.ptr);
            else
                came = true;
    } while (n == EVENTS && !came);
    plait_guests_drop_before(l->guests, (int64_t)((now - PATIENCE_S) * 1000));
    if (came && !plait_links_failure(l))
        accept_guests(l, now);
}

static void open_wire(struct plait_links *l, struct plait_wire *w)
{
    struct plait_link *k = plait_links_of(l, w->peer);
    struct plait_wire *mine;

    l->nguests -= w->state == PLAIT_WIRE_GUEST;
    w->state = PLAIT_WIRE_OPEN;
    w->got = 0;
    plait_greeting_settle(w->fd);
    plait_links_watch_machine(w->fd);
    while ((mine = plait_wire_with(l, w->peer, PLAIT_WIRE_JOINING)))
        plait_wire_close(l, mine);
    if (k && !k->way)
        take_way(l, k, w);
}

/* 1: proved; 0: not complete; -1: not a peer. */
static int hear_proof(const struct plait_links *l, struct plait_wire *w)
{
    struct plait_rendezvous m = meeting_of(l, l->rank);
    int heard = plait_greeting_hear(&w->greeting, &m, w->fd);

    if (heard == 2)
        return plait_greeting_confirm(w->fd) < 0 ? -1 : 1;
    return heard;
}

bool plait_wire_greet(struct plait_links *l, struct plait_wire *w)
{
    bool guest = w->state == PLAIT_WIRE_GUEST;
    struct plait_rendezvous m;
    int rc, saved;

    if (guest) {
        rc = hear_proof(l, w);
    } else {
        m = meeting_of(l, w->peer);
        rc = plait_greeting_finish(&w->greeting, &m, w->fd);
    }
    saved = errno;
    if (rc > 0)
        open_wire(l, w);
    else if (rc < 0)
        plait_wire_close(l, w);
    if (rc < 0 && !guest && saved == EACCES)
        plait_links_lose(l, w->peer, "another process answers at its port");
    return rc != 0;
}

/* -- both ------------------------------------------------------------------ */

bool plait_wires_tend(struct plait_links *l)
{
    const struct plait_guest *oldest = plait_guests_oldest(l->guests);
    double now;

    if (!l->wanting && l->nguests == 0 && l->suspect < 0 && !oldest)
        return false;
    now = plait_clock_now();
    if (oldest && (double)oldest->since < (now - PATIENCE_S) * 1000)
        plait_wires_accept(l);
    if (l->suspect >= 0 && now > l->suspected + SUSPECT_S)
        plait_links_lose(l, l->suspect, l->because);
    if (l->nguests > 0)
        drop_late_wires(l, now);
    tend_wanting(l, now);
    return plait_links_failure(l) != NULL;
}

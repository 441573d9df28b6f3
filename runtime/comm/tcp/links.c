/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/tcp/links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/tcp/links_meet.h"
#include "runtime/comm/tcp/links_private.h"
#include "topology/base/clock.h"
#include "topology/base/files.h"
#include "topology/base/hash.h"
#include "topology/base/text.h"

/* The longest time a goodbye may take, whatever the peers do. */
#define LINGER_S 2
/* Connections at once that have not sent a hello, and how many files the rest
 * of the process may have open beside the links. */
enum { GUESTS = 256, FILES = 256 };

/* -- failure ------------------------------------------------------------- */

const char *plait_links_failure(const struct plait_links *links)
{
    return atomic_load(&links->state) == PLAIT_LINKS_FAILED ? links->why : NULL;
}

const char *plait_links_difference(const struct plait_links *links)
{
    const char *why = plait_links_failure(links);

    return why && links->differ ? why : NULL;
}

/* What the peers are told when this rank gives up. */
struct news {
    struct plait_links_head head;
    char why[PLAIT_LINKS_WHY];
};

/* Tell the neighbours in the tree and the peers with connections which rank was
 * lost and why, then shut the connection down. */
static void end_wire(struct plait_wire *w, const struct news *news)
{
    size_t size = sizeof(news->head) + (size_t)news->head.tag;
    bool proved = w->state == PLAIT_WIRE_TREE || w->state == PLAIT_WIRE_OPEN;

    if (w->fd < 0)
        return;
    /* In the middle of a message it would be taken for data. */
    if (proved && !atomic_load(&w->mid))
        send(w->fd, news, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(w->fd, SHUT_RDWR);
}

/* tell: the peers take over the reason; else they learn only that the rank is
 * gone. */
static void give_up(struct plait_links *l, uint64_t lost, bool differ,
                    const char *why, bool tell)
{
    struct news news = {.head.bytes =
                            differ ? PLAIT_LINKS_DIFFER : PLAIT_LINKS_LOST,
                        .head.group = lost};
    int good = PLAIT_LINKS_GOOD;

    if (!atomic_compare_exchange_strong(&l->state, &good, PLAIT_LINKS_FAILING))
        return;
    snprintf(l->why, sizeof(l->why), "%s", why);
    plait_text_clean(l->why); /* the end of a long text may be half a letter */
    l->differ = differ;
    news.head.tag = tell ? strlen(l->why) : 0;
    memcpy(news.why, l->why, sizeof(news.why));
    atomic_store(&l->state, PLAIT_LINKS_FAILED);
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->nwires; i++) {
        end_wire(l->wire[i], &news);
        if (l->wire[i]->peer >= 0)
            plait_bells_ring(l->bells, l->wire[i]->peer);
    }
    pthread_mutex_unlock(&l->lock);
}

void plait_links_fail(struct plait_links *links, const char *why)
{
    give_up(links, (uint64_t)links->rank, false, why, false);
}

void plait_links_refuse(struct plait_links *links, const char *why)
{
    char text[PLAIT_LINKS_WHY];

    snprintf(text, sizeof(text), "rank %d: %s", links->rank, why);
    give_up(links, (uint64_t)links->rank, false, text, true);
}

void plait_links_differ(struct plait_links *links, const char *why)
{
    give_up(links, (uint64_t)links->rank, true, why, true);
}

void plait_links_hear(struct plait_links *l, int lost, bool differ,
                      const char *why)
{
    give_up(l, (uint64_t)lost, differ, why, true);
}

void plait_links_lose(struct plait_links *l, int peer, const char *why)
{
    char text[sizeof(l->why)];

    snprintf(text, sizeof(text), "rank %d is gone: %s", peer, why);
    give_up(l, (uint64_t)peer, false, text, true);
}

void plait_links_set_bells(struct plait_links *l, struct plait_bells *bells)
{
    l->bells = bells;
}

void plait_links_suspect(struct plait_links *l, int peer, const char *why)
{
    if (l->suspect >= 0)
        return;
    l->suspect = peer;
    l->suspected = plait_clock_now();
    snprintf(l->because, sizeof(l->because), "%s", why);
}

/* -- what goes out -------------------------------------------------------- */

struct plait_link *plait_links_of(struct plait_links *l, int peer)
{
    struct plait_link *k = l->link[peer];

    if (k)
        return k;
    k = l->link[peer] = calloc(1, sizeof(*k));
    if (!k) {
        plait_links_lose(l, l->rank, "out of memory");
        return NULL;
    }
    k->peer = peer;
    k->out_end = &k->out;
    return k;
}

/* n bytes of the first part, its head included, were sent. Whether it is
 * complete. */
static bool count_sent(struct plait_link *k, size_t n)
{
    struct plait_links_part *p = k->out;
    size_t rest = sizeof(struct plait_links_head) - k->sent;
    size_t of_head = n < rest ? n : rest;

    k->sent += of_head;
    p->done += n - of_head;
    if (n < rest || p->done < p->bytes)
        return false;
    k->sent = 0;
    k->out = p->next;
    if (!k->out)
        k->out_end = &k->out;
    plait_part_finish(p);
    return true;
}

static struct plait_links_head head_of(const struct plait_links_part *p)
{
    struct plait_links_head head = {
        .bytes = p->bytes, .group = p->group, .tag = p->tag};

    if (p->entry)
        head.call = p->entry->call;
    return head;
}

bool plait_links_flush(struct plait_links *l, struct plait_link *k)
{
    struct plait_wire *w = k->way;
    bool moved = false;

    while (k->out) {
        struct plait_links_part *p = k->out;
        struct plait_links_head head = head_of(p);
        struct iovec v[2] = {
            {(char *)&head + k->sent, sizeof(head) - k->sent},
            {p->at + p->done, p->bytes - p->done},
        };
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        ssize_t n = sendmsg(w->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN)
                plait_links_lose(l, k->peer, plait_links_reason(errno));
            plait_bells_ring(l->bells, k->peer);
            return moved;
        }
        moved = true;
        atomic_store(&w->mid, !count_sent(k, (size_t)n));
    }
    plait_wire_set_sending(l, w, false);
    plait_bells_ring(l->bells, k->peer);
    return moved;
}

void plait_links_send(struct plait_links *l, int peer,
                      struct plait_links_part *part)
{
    struct plait_link *k;

    part->done = 0;
    part->next = NULL;
    if (plait_links_failure(l) || !(k = plait_links_of(l, peer)))
        return;
    if (k->gone) {
        plait_links_lose(l, peer, "it has ended");
        return;
    }
    *k->out_end = part;
    k->out_end = &part->next;
    if (!k->way) {
        plait_link_want(l, k, 0);
    } else if (k->out == part) {
        plait_wire_set_sending(l, k->way, true);
        plait_links_flush(l, k);
    }
}

/* -- both ---------------------------------------------------------------- */

static bool serve_wire(struct plait_links *l, struct plait_wire *w, int events)
{
    struct plait_link *k;
    bool moved = false;

    if (w->state == PLAIT_WIRE_JOINING || w->state == PLAIT_WIRE_GUEST)
        return plait_wire_greet(l, w);
    if (events & ~POLLOUT)
        moved = plait_links_drain(l, w);
    k = l->link[w->peer];
    if (events & POLLOUT && w->fd >= 0 && k && k->way == w &&
        !plait_links_failure(l))
        moved |= plait_links_flush(l, k);
    return moved;
}

bool plait_links_move(struct plait_links *l)
{
    bool moved = false, room = !l->leaving;
    int n;

    if (plait_links_failure(l))
        return false;
    moved = plait_wires_tend(l);
    plait_wires_sweep(l);
    n = l->nwires;
    l->poll[0] = (struct pollfd){room ? l->gate : -1, POLLIN, 0};
    if (poll(l->poll, (nfds_t)n + 1, 0) <= 0)
        return moved;
    for (int i = 0; i < n && !plait_links_failure(l); i++)
        if (l->poll[i + 1].revents && l->wire[i]->fd >= 0)
            moved |= serve_wire(l, l->wire[i], l->poll[i + 1].revents);
    if (l->poll[0].revents && !plait_links_failure(l))
        plait_wires_accept(l);
    return moved || plait_links_failure(l);
}

bool plait_links_ring(const struct plait_links *l)
{
    return atomic_load(&l->sending) == 0 && !l->wanting && l->nguests == 0;
}

void plait_links_wait(struct plait_links *l, int ms)
{
    struct epoll_event event;

    if (atomic_load(&l->sending) == 0 && !plait_links_failure(l))
        epoll_wait(l->epoll, &event, 1, ms);
}

/* -- life ---------------------------------------------------------------- */

static struct plait_links *links_alloc(struct plait_members *m)
{
    struct plait_links *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    l->members = m;
    l->rank = m->rank;
    l->suspect = -1;
    l->swept = true;
    l->most_early =
        (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->gate = epoll_create1(EPOLL_CLOEXEC);
    l->guests = plait_guests_create(GUESTS, 2 * (size_t)m->n + FILES,
                                    sizeof(struct plait_greeting));
    l->link = calloc((size_t)m->n, sizeof(*l->link));
    l->poll = calloc(1, sizeof(*l->poll));
    l->meeting = (struct plait_rendezvous){
        .name = "world", .rank = m->rank, .size = m->n};
    memcpy(l->meeting.secret, m->secret, sizeof(m->secret));
    l->key =
        plait_hash_text(plait_hash_text(PLAIT_HASH_START, m->jobid), "links") +
        m->epoch;
    if (l->epoll < 0 || l->gate < 0 || !l->guests || !l->link || !l->poll) {
        plait_links_destroy(l);
        return NULL;
    }
    l->size = m->n;
    return l;
}

static void add_line(struct plait_links *l, int *fd, int peer)
{
    if (*fd < 0)
        return;
    plait_links_watch_machine(*fd);
    if (plait_links_of(l, peer))
        plait_wire_add(l, *fd, peer, PLAIT_WIRE_TREE);
    else
        close(*fd);
    *fd = -1;
}

/* Add the tree's connections, and the port that others connect to. */
static int add_lines(struct plait_links *l, struct plait_tcp_lines *lines)
{
    struct epoll_event event = {.events = EPOLLIN};

    add_line(l, &lines->up, lines->tree.parent);
    for (int i = 0; i < lines->tree.ways; i++)
        add_line(l, &lines->down[i], lines->tree.first[i]);
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->gate, &event) < 0)
        return -1;
    return epoll_ctl(l->gate, EPOLL_CTL_ADD, l->members->listener, &event);
}

struct plait_links *plait_links_create(struct plait_members *members,
                                       struct plait_comm *star,
                                       double timeout_s,
                                       struct plait_error *err)
{
    struct plait_tcp_lines lines;
    struct plait_links *l;
    int rc;

    /* At most a connection with each process and, for those of this node, a
     * descriptor to watch it. */
    plait_files_allow(2 * (size_t)members->n + GUESTS);
    l = links_alloc(members);
    rc = l ? 0 : plait_errorf(err, "out of memory");
    if (star)
        rc = plait_comm_agree_over(star, rc, err);
    if (rc < 0) {
        plait_links_destroy(l);
        return NULL;
    }
    rc = plait_links_meet(members, timeout_s, &lines, err);
    if (rc == 0 && add_lines(l, &lines) < 0)
        rc = plait_errorf(err, "epoll: %s", strerror(errno));
    if (rc == 0)
        return l;
    plait_tcp_lines_close(&lines);
    plait_links_fail(l, "it could not be set up");
    plait_links_destroy(l);
    return NULL;
}

/* Read until every peer has closed its connection too: closing a connection
 * with unread data would discard what the peer has not yet read from this
 * process. */
static void say_goodbye(struct plait_links *l)
{
    const struct plait_links_head head = {.bytes = PLAIT_LINKS_GOODBYE};
    double deadline = plait_clock_now() + LINGER_S;

    l->leaving = true;
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, l->gate, NULL);
    for (int i = 0; i < l->nwires; i++) {
        struct plait_wire *w = l->wire[i];

        if (w->state == PLAIT_WIRE_GUEST || w->state == PLAIT_WIRE_JOINING) {
            plait_wire_close(l, w);
            continue;
        }
        if (w->fd >= 0 && send(w->fd, &head, sizeof(head), MSG_NOSIGNAL) >= 0)
            shutdown(w->fd, SHUT_WR);
    }
    for (;;) {
        plait_wires_sweep(l);
        if (l->nwires == 0 || plait_clock_now() >= deadline ||
            plait_links_failure(l))
            return;
        plait_links_move(l);
        plait_links_wait(l, 1);
    }
}

static void link_destroy(struct plait_links *l, struct plait_link *k)
{
    while (k && k->unclaimed)
        plait_early_drop(l, k, NULL);
    free(k);
}

void plait_links_destroy(struct plait_links *l)
{
    int saved = errno;

    if (!l)
        return;
    if (l->size > 0 && !plait_links_failure(l))
        say_goodbye(l);
    plait_wires_destroy(l);
    for (int i = 0; i < l->size; i++)
        link_destroy(l, l->link[i]);
    plait_entered_destroy(l);
    plait_guests_destroy(l->guests);
    if (l->epoll >= 0)
        close(l->epoll);
    if (l->gate >= 0)
        close(l->gate);
    free(l->link);
    pthread_mutex_destroy(&l->lock);
    free(l);
    errno = saved;
}

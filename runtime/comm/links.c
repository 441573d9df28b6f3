/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/links.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/links_meet.h"
#include "runtime/comm/trace.h"

/* What is read from one peer before the others have their turn. */
#define BUDGET ((size_t)256 << 10)
/* A goodbye takes no longer than this, whatever the peers do. */
#define LINGER_S 2

/* In front of every message. */
struct head {
    uint64_t bytes, group, tag;
};

/* The heads of a goodbye, and of one that tells which rank (`group`) was lost:
 * no message has this many bytes. */
#define GOODBYE UINT64_MAX
#define LOST (UINT64_MAX - 1)

enum state { GOOD, FAILING, FAILED };

/* A message, or its beginning, that nobody waits for yet. */
struct early {
    struct early *next;
    struct head head;
    size_t done;
    char data[];
};

struct link {
    int fd; /* -1: this rank, or a peer that said goodbye */
    bool bye;
    /* What goes out, in order; `sent` bytes of the first one's head are. */
    struct plait_part *out, **out_end;
    size_t sent;
    /* What comes in: `got` bytes of its head, then it goes into either. */
    struct head head;
    size_t got;
    struct plait_part *into;
    struct early *early;
    struct plait_part *posted; /* wait for a message, in order */
    struct early *unclaimed;   /* in order, the last one may be incomplete */
};

struct plait_links {
    int rank, size, epoll;
    struct link *link;   /* [size] */
    struct pollfd *poll; /* [size] */
    _Atomic int sending; /* links with something to send */
    _Atomic int state;   /* enum state */
    char why[200];       /* when FAILED */
};

/* -- failure ------------------------------------------------------------- */

const char *plait_links_failure(const struct plait_links *links)
{
    return atomic_load(&links->state) == FAILED ? links->why : NULL;
}

static void give_up(struct plait_links *l, uint64_t lost, const char *why)
{
    const struct head head = {.bytes = LOST, .group = lost};
    int good = GOOD;

    if (!atomic_compare_exchange_strong(&l->state, &good, FAILING))
        return;
    snprintf(l->why, sizeof(l->why), "%s", why);
    atomic_store(&l->state, FAILED);
    for (int i = 0; i < l->size; i++) {
        if (l->link[i].fd < 0)
            continue;
        if (!l->link[i].out) /* else it would be taken for a message's end */
            send(l->link[i].fd, &head, sizeof(head),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(l->link[i].fd, SHUT_RDWR);
    }
}

void plait_links_fail(struct plait_links *links, const char *why)
{
    give_up(links, (uint64_t)links->rank, why);
}

static void lose_peer(struct plait_links *l, int peer, const char *why)
{
    char text[sizeof(l->why)];

    snprintf(text, sizeof(text), "rank %d is gone: %s", peer, why);
    give_up(l, (uint64_t)peer, text);
}

/* -- what goes out -------------------------------------------------------- */

static void finish_part(struct plait_part *part)
{
    --*part->pending;
}

/* Whether anything went. */
static bool flush_link(struct plait_links *l, int peer)
{
    struct link *k = &l->link[peer];
    bool moved = false;

    while (k->out) {
        struct plait_part *p = k->out;
        struct head head = {p->bytes, p->group, p->tag};
        struct iovec v[2] = {
            {(char *)&head + k->sent, sizeof(head) - k->sent},
            {p->at + p->done, p->bytes - p->done},
        };
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        ssize_t n = sendmsg(k->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        size_t of_head;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN)
                lose_peer(l, peer, strerror(errno));
            return moved;
        }
        moved = true;
        of_head = (size_t)n < v[0].iov_len ? (size_t)n : v[0].iov_len;
        k->sent += of_head;
        p->done += (size_t)n - of_head;
        if (k->sent < sizeof(head) || p->done < p->bytes)
            continue;
        k->sent = 0;
        k->out = p->next;
        if (!k->out) {
            k->out_end = &k->out;
            atomic_fetch_sub(&l->sending, 1);
        }
        finish_part(p);
    }
    return moved;
}

static bool is_usable(struct plait_links *l, int peer)
{
    if (plait_links_failure(l))
        return false;
    if (l->link[peer].fd < 0)
        lose_peer(l, peer, "it has ended");
    return l->link[peer].fd >= 0;
}

void plait_links_send(struct plait_links *l, int peer, struct plait_part *part)
{
    struct link *k = &l->link[peer];

    part->done = 0;
    part->next = NULL;
    if (!is_usable(l, peer))
        return;
    if (!k->out)
        atomic_fetch_add(&l->sending, 1);
    *k->out_end = part;
    k->out_end = &part->next;
    if (k->out == part)
        flush_link(l, peer);
}

/* -- what comes in -------------------------------------------------------- */

static bool fits(struct plait_links *l, int peer, const struct head *head,
                 const struct plait_part *part)
{
    char text[100];

    if (head->bytes == part->bytes)
        return true;
    snprintf(text, sizeof(text), "it sent %llu bytes where %zu were expected",
             (unsigned long long)head->bytes, part->bytes);
    lose_peer(l, peer, text);
    return false;
}

static bool is_for(const struct head *head, const struct plait_part *part)
{
    return head->group == part->group && head->tag == part->tag;
}

void plait_links_receive(struct plait_links *l, int peer,
                         struct plait_part *part)
{
    struct link *k = &l->link[peer];
    struct early **at = &k->unclaimed, *e;
    struct plait_part **end = &k->posted;

    part->done = 0;
    part->next = NULL;
    if (plait_links_failure(l))
        return;
    while (*at && !is_for(&(*at)->head, part))
        at = &(*at)->next;
    if ((e = *at)) {
        if (!fits(l, peer, &e->head, part))
            return;
        memcpy(part->at, e->data, e->done);
        part->done = e->done;
        if (k->early == e) { /* the rest follows */
            k->early = NULL;
            k->into = part;
        } else {
            finish_part(part);
        }
        *at = e->next;
        free(e);
        return;
    }
    if (!is_usable(l, peer))
        return;
    while (*end)
        end = &(*end)->next;
    *end = part;
}

/* The head is complete: find out where the message goes. */
static void begin_message(struct plait_links *l, int peer)
{
    struct link *k = &l->link[peer];
    struct plait_part **at = &k->posted;
    struct early **end = &k->unclaimed, *e;

    if (k->head.bytes == GOODBYE) {
        k->bye = true;
        k->got = 0;
        return;
    }
    if (k->head.bytes == LOST) {
        lose_peer(l,
                  k->head.group < (uint64_t)l->size ? (int)k->head.group : peer,
                  "it has ended");
        return;
    }
    while (*at && !is_for(&k->head, *at))
        at = &(*at)->next;
    if (*at) {
        k->into = *at;
        *at = k->into->next;
        fits(l, peer, &k->head, k->into);
        return;
    }
    e = malloc(sizeof(*e) + k->head.bytes);
    if (!e) {
        lose_peer(l, peer, "out of memory for its message");
        return;
    }
    e->next = NULL;
    e->head = k->head;
    e->done = 0;
    while (*end)
        end = &(*end)->next;
    *end = k->early = e;
}

/* Where the next bytes go, and how many. */
static char *inlet_of(struct link *k, size_t *bytes)
{
    size_t done;

    if (k->got < sizeof(k->head)) {
        *bytes = sizeof(k->head) - k->got;
        return (char *)&k->head + k->got;
    }
    done = k->into ? k->into->done : k->early->done;
    *bytes = k->head.bytes - done;
    return (k->into ? k->into->at : k->early->data) + done;
}

/* n more bytes have come. */
static void take_bytes(struct plait_links *l, int peer, size_t n)
{
    struct link *k = &l->link[peer];
    size_t done;

    if (k->got < sizeof(k->head)) {
        k->got += n;
        if (k->got < sizeof(k->head))
            return;
        begin_message(l, peer);
        if (k->bye || plait_links_failure(l))
            return;
    } else if (k->into) {
        k->into->done += n;
    } else {
        k->early->done += n;
    }
    done = k->into ? k->into->done : k->early->done;
    if (done < k->head.bytes)
        return;
    if (k->into)
        finish_part(k->into);
    k->into = NULL;
    k->early = NULL;
    k->got = 0;
}

/* The peer has closed its connection, or it broke. */
static void end_link(struct plait_links *l, int peer, const char *why)
{
    struct link *k = &l->link[peer];

    if (!k->bye || k->posted || k->into) {
        lose_peer(l, peer, k->bye ? "it has ended" : why);
        return;
    }
    if (k->out)
        atomic_fetch_sub(&l->sending, 1);
    k->out = NULL;
    k->out_end = &k->out;
    close(k->fd);
    k->fd = -1;
}

static bool drain_link(struct plait_links *l, int peer)
{
    struct link *k = &l->link[peer];
    size_t most, total = 0;

    while (total < BUDGET && !plait_links_failure(l)) {
        char *to = inlet_of(k, &most);
        ssize_t n = recv(k->fd, to, most, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            end_link(l, peer, n < 0 ? strerror(errno) : "it has ended");
            break;
        }
        total += (size_t)n;
        take_bytes(l, peer, (size_t)n);
    }
    return total > 0;
}

/* -- both ---------------------------------------------------------------- */

bool plait_links_move(struct plait_links *l)
{
    bool moved = false;

    if (plait_links_failure(l))
        return false;
    for (int i = 0; i < l->size; i++) {
        const struct link *k = &l->link[i];

        l->poll[i] = (struct pollfd){k->fd, POLLIN | (k->out ? POLLOUT : 0), 0};
    }
    if (poll(l->poll, (nfds_t)l->size, 0) <= 0)
        return false;
    for (int i = 0; i < l->size && !plait_links_failure(l); i++) {
        if (l->poll[i].revents & ~POLLOUT)
            moved |= drain_link(l, i);
        if (l->poll[i].revents & POLLOUT && !plait_links_failure(l) &&
            l->link[i].fd >= 0)
            moved |= flush_link(l, i);
    }
    return moved || plait_links_failure(l);
}

void plait_links_wait(struct plait_links *l, int ms)
{
    struct epoll_event event;

    if (atomic_load(&l->sending) == 0 && !plait_links_failure(l))
        epoll_wait(l->epoll, &event, 1, ms);
}

/* -- life ---------------------------------------------------------------- */

static struct plait_links *links_alloc(int rank, int size)
{
    struct plait_links *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->rank = rank;
    l->epoll = -1;
    l->link = calloc((size_t)size, sizeof(*l->link));
    l->poll = calloc((size_t)size, sizeof(*l->poll));
    if (!l->link || !l->poll) {
        plait_links_destroy(l);
        return NULL;
    }
    l->size = size;
    for (int i = 0; i < size; i++) {
        l->link[i].fd = -1;
        l->link[i].out_end = &l->link[i].out;
    }
    return l;
}

struct plait_links *plait_links_create(struct plait_members *members,
                                       double timeout_s,
                                       struct plait_error *err)
{
    int *fds = calloc((size_t)members->n, sizeof(*fds));
    struct plait_links *l = fds ? links_alloc(members->rank, members->n) : NULL;
    int rc;

    if (!l) {
        free(fds);
        plait_errorf(err, "out of memory");
        return NULL;
    }
    rc = plait_links_meet(members, timeout_s, fds, err);
    for (int i = 0; rc == 0 && i < l->size; i++)
        l->link[i].fd = fds[i];
    if (rc == 0)
        l->epoll = plait_links_epoll(fds, l->size);
    free(fds);
    if (rc == 0 && l->epoll < 0)
        rc = plait_errorf(err, "epoll: %s", strerror(errno));
    if (rc == 0)
        return l;
    plait_links_fail(l, "it could not be set up");
    plait_links_destroy(l);
    return NULL;
}

/* Read until every peer has closed its connection too: closing with something
 * unread would take away from the peer what this process has sent it. */
static void say_goodbye(struct plait_links *l)
{
    const struct head head = {.bytes = GOODBYE};
    double deadline = plait_trace_now() + LINGER_S;
    int open = 0;

    for (int i = 0; i < l->size; i++) {
        int fd = l->link[i].fd;

        if (fd >= 0 && send(fd, &head, sizeof(head), MSG_NOSIGNAL) < 0)
            continue;
        if (fd >= 0)
            shutdown(fd, SHUT_WR);
        open += fd >= 0;
    }
    while (open > 0 && plait_trace_now() < deadline &&
           !plait_links_failure(l)) {
        plait_links_move(l);
        plait_links_wait(l, 1);
        open = 0;
        for (int i = 0; i < l->size; i++)
            open += l->link[i].fd >= 0;
    }
}

static void free_early(struct link *k)
{
    struct early *e;

    while ((e = k->unclaimed)) {
        k->unclaimed = e->next;
        free(e);
    }
}

void plait_links_destroy(struct plait_links *l)
{
    int saved = errno;

    if (!l)
        return;
    if (!plait_links_failure(l))
        say_goodbye(l);
    for (int i = 0; i < l->size; i++) {
        free_early(&l->link[i]);
        if (l->link[i].fd >= 0)
            close(l->link[i].fd);
    }
    if (l->epoll >= 0)
        close(l->epoll);
    free(l->link);
    free(l->poll);
    free(l);
    errno = saved;
}

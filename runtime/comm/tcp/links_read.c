/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in from the peers. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/comm/tcp/links_meet.h"
#include "runtime/comm/tcp/links_private.h"
#include "runtime/trace/trace.h"

/* How much is read from one peer before the others have their turn. */
#define BUDGET ((size_t)256 << 10)

bool plait_links_fits(struct plait_links *l, int peer,
                      const struct plait_links_head *head,
                      const struct plait_part *part)
{
    char text[100];

    if (head->bytes == part->bytes)
        return true;
    snprintf(text, sizeof(text), "it sent %llu bytes where %zu were expected",
             (unsigned long long)head->bytes, part->bytes);
    plait_links_lose(l, peer, text);
    return false;
}

static bool is_for(const struct plait_links_head *head,
                   const struct plait_part *part)
{
    return head->group == part->group && head->tag == part->tag;
}

/* Whether the message, or its beginning, had come before its receive. */
static bool claim_early(struct plait_links *l, struct plait_link *k,
                        struct plait_part *part)
{
    struct plait_early **at = &k->unclaimed, *e;

    while (*at && !is_for(&(*at)->head, part))
        at = &(*at)->next;
    if (!(e = *at))
        return false;
    if (!plait_links_fits(l, k->peer, &e->head, part))
        return true;
    memcpy(part->at, e->data, e->done);
    part->done = e->done;
    if (e->wire) { /* the rest follows */
        e->wire->early = NULL;
        e->wire->into = part;
    } else if (e->done == e->head.bytes) {
        plait_part_finish(part);
    }
    /* Else its connection broke: the receive waits until the peer, which has
     * been suspected since then, or another rank counts as lost. */
    *at = e->next;
    free(e);
    return true;
}

void plait_links_receive(struct plait_links *l, int peer,
                         struct plait_part *part)
{
    struct plait_link *k;
    struct plait_part **end;

    part->done = 0;
    part->next = NULL;
    if (plait_links_failure(l) || !(k = plait_links_of(l, peer)) ||
        claim_early(l, k, part))
        return;
    if (k->gone && !plait_wire_any(l, peer)) {
        plait_links_lose(l, peer, "it has ended");
        return;
    }
    for (end = &k->posted; *end; end = &(*end)->next)
        ;
    *end = part;
    /* The sender makes the connection. If it does not, connecting to it shows
     * why. */
    if (!k->way)
        plait_link_want(l, k, PLAIT_LINKS_WATCH_S);
}

static void say_lost(struct plait_links *l, const struct plait_wire *w)
{
    uint64_t rank = w->head.group;

    plait_links_lose(l, rank < (uint64_t)l->size ? (int)rank : w->peer,
                     "it has ended");
}

/* The head is complete: find out where the message goes. */
static void begin_message(struct plait_links *l, struct plait_wire *w)
{
    struct plait_link *k = plait_links_of(l, w->peer);
    struct plait_part **at;
    struct plait_early **end, *e;

    if (!k)
        return;
    if (w->head.bytes == PLAIT_LINKS_GOODBYE) {
        w->bye = k->gone = true;
        w->got = 0;
        return;
    }
    if (w->head.bytes == PLAIT_LINKS_LOST) {
        say_lost(l, w);
        return;
    }
    for (at = &k->posted; *at && !is_for(&w->head, *at); at = &(*at)->next)
        ;
    if (*at) {
        w->into = *at;
        *at = w->into->next;
        plait_links_fits(l, w->peer, &w->head, w->into);
        return;
    }
    e = malloc(sizeof(*e) + w->head.bytes);
    if (!e) {
        plait_links_lose(l, w->peer, "out of memory for its message");
        return;
    }
    e->next = NULL;
    e->wire = w;
    e->head = w->head;
    e->done = 0;
    for (end = &k->unclaimed; *end; end = &(*end)->next)
        ;
    *end = w->early = e;
}

/* Where the next bytes go, and how many. */
static char *inlet_of(struct plait_wire *w, size_t *bytes)
{
    size_t done;

    if (w->got < sizeof(w->head)) {
        *bytes = sizeof(w->head) - w->got;
        return (char *)&w->head + w->got;
    }
    done = w->into ? w->into->done : w->early->done;
    *bytes = w->head.bytes - done;
    return (w->into ? w->into->at : w->early->data) + done;
}

static void end_message(struct plait_wire *w)
{
    if (w->into)
        plait_part_finish(w->into);
    else
        w->early->wire = NULL;
    w->into = NULL;
    w->early = NULL;
    w->got = 0;
}

/* n more bytes have come. */
static void take_bytes(struct plait_links *l, struct plait_wire *w, size_t n)
{
    size_t done;

    if (w->got < sizeof(w->head)) {
        w->got += n;
        if (w->got < sizeof(w->head))
            return;
        begin_message(l, w);
        if (w->bye || plait_links_failure(l))
            return;
    } else if (w->into) {
        w->into->done += n;
    } else {
        w->early->done += n;
    }
    done = w->into ? w->into->done : w->early->done;
    if (done == w->head.bytes)
        end_message(w);
}

/* Fail if something is still expected from, or to be sent to, a peer that has
 * said goodbye. */
static void check_gone(struct plait_links *l, struct plait_link *k)
{
    if (k->gone && (k->posted || k->out) && !plait_wire_any(l, k->peer))
        plait_links_lose(l, k->peer, "it has ended");
}

/* The peer has closed its connection, or it broke. On a connection of the tree
 * that means that the peer is lost. Other connections may break, even within a
 * message, because the peer has given up over another loss, of which the tree
 * has not told this rank yet: then the peer is only suspected. */
static void end_wire(struct plait_links *l, struct plait_wire *w,
                     const char *why)
{
    struct plait_link *k = plait_links_of(l, w->peer);
    bool broke = !w->bye, tree = w->state == PLAIT_WIRE_TREE;

    if (!k)
        return;
    if (tree ? broke : w->bye && w->into) {
        plait_links_lose(l, w->peer, w->bye ? "it has ended" : why);
        return;
    }
    if (broke && !l->leaving)
        plait_links_suspect(l, w->peer, why);
    plait_wire_close(l, w);
    if (!l->leaving)
        check_gone(l, k);
}

/* A machine answers for a process that has ended: without an answer the machine
 * is down. */
static const char *why_ended(ssize_t n)
{
    return n == 0 ? "it has ended" : plait_links_reason(errno);
}

bool plait_links_drain(struct plait_links *l, struct plait_wire *w)
{
    size_t most, total = 0;

    while (total < BUDGET && !plait_links_failure(l)) {
        char *to = inlet_of(w, &most);
        ssize_t n = recv(w->fd, to, most, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            end_wire(l, w, why_ended(n));
            break;
        }
        total += (size_t)n;
        take_bytes(l, w, (size_t)n);
    }
    return total > 0;
}

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
#include "topology/base/text.h"

/* How much is read from one peer before the others have their turn. */
#define BUDGET ((size_t)256 << 10)
/* The memory with which a message that nobody waits for begins. */
#define EARLY_ROOM ((size_t)1 << 20)

static bool fits_part(struct plait_links *l, int peer,
                      const struct plait_links_head *head,
                      const struct plait_links_part *part)
{
    char text[100];

    if (part->entry && !plait_entry_alike(l, peer, head, part->entry))
        return false;
    if (head->bytes == part->bytes)
        return true;
    snprintf(text, sizeof(text), "it sent %llu bytes where %zu were expected",
             (unsigned long long)head->bytes, part->bytes);
    plait_links_lose(l, peer, text);
    return false;
}

static bool is_for(const struct plait_links_head *head,
                   const struct plait_links_part *part)
{
    return head->group == part->group && head->tag == part->tag;
}

/* -- early messages -------------------------------------------------------- */

void plait_early_drop(struct plait_links *l, struct plait_link *k,
                      struct plait_early *before)
{
    struct plait_early **at = before ? &before->next : &k->unclaimed, *e = *at;

    *at = e->next;
    if (k->unclaimed_last == e)
        k->unclaimed_last = before;
    l->early -= e->head.bytes;
    k->nunclaimed--;
    if (!k->unclaimed) {
        *k->early_at = k->early;
        if (k->early)
            k->early->early_at = k->early_at;
    }
    free(e->data);
    free(e);
}

/* The peer is not trusted with this process's memory: what it announces is
 * bounded. */
static bool is_bearable(struct plait_links *l, const struct plait_link *k,
                        const struct plait_links_head *head)
{
    char text[100];

    if (head->bytes > PLAIT_LINKS_BYTES_MOST)
        snprintf(text, sizeof(text), "it announced a message of %llu bytes",
                 (unsigned long long)head->bytes);
    else if (head->bytes > l->most_early - l->early)
        snprintf(text, sizeof(text),
                 "messages that nobody waits for take half of the memory");
    else if (k->nunclaimed == PLAIT_LINKS_EARLY_MOST)
        snprintf(text, sizeof(text), "it sent %d messages nobody waits for",
                 PLAIT_LINKS_EARLY_MOST);
    else
        return true;
    plait_links_lose(l, k->peer, text);
    return false;
}

/* A message for which no receive is posted has begun. */
static void begin_early(struct plait_links *l, struct plait_link *k,
                        struct plait_wire *w)
{
    size_t bytes = (size_t)w->head.bytes;
    struct plait_early *e;

    if (!plait_entry_check(l, k->peer, &w->head) ||
        !is_bearable(l, k, &w->head))
        return;
    e = calloc(1, sizeof(*e));
    if (e)
        e->room = bytes < EARLY_ROOM ? bytes : EARLY_ROOM;
    if (!e || !(e->data = malloc(e->room + 1))) {
        free(e);
        plait_links_lose(l, w->peer, "out of memory for its message");
        return;
    }
    e->wire = w;
    e->head = w->head;
    l->early += bytes;
    k->nunclaimed++;
    if (k->unclaimed_last) {
        k->unclaimed_last->next = e;
    } else {
        k->unclaimed = e;
        k->early = l->early_link;
        k->early_at = &l->early_link;
        if (k->early)
            k->early->early_at = &k->early;
        l->early_link = k;
    }
    k->unclaimed_last = w->early = e;
}

/* Twice the memory for a message of which there is more than there was room
 * for. */
static void grow_early(struct plait_links *l, struct plait_wire *w)
{
    struct plait_early *e = w->early;
    size_t bytes = (size_t)e->head.bytes;
    size_t room = e->room < bytes / 2 ? 2 * e->room : bytes;
    char *data = realloc(e->data, room + 1);

    if (!data) {
        plait_links_lose(l, w->peer, "out of memory for its message");
        return;
    }
    e->data = data;
    e->room = room;
}

/* Whether the message, or its beginning, had come before its receive. */
static bool claim_early(struct plait_links *l, struct plait_link *k,
                        struct plait_links_part *part)
{
    struct plait_early *before = NULL, *e;

    for (e = k->unclaimed; e && !is_for(&e->head, part); e = e->next)
        before = e;
    if (!e)
        return false;
    if (!fits_part(l, k->peer, &e->head, part))
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
    plait_early_drop(l, k, before);
    return true;
}

void plait_links_receive(struct plait_links *l, int peer,
                         struct plait_links_part *part)
{
    struct plait_link *k;
    struct plait_links_part **end;

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

/* The peer has given up: its reason follows. */
static void expect_news(struct plait_links *l, struct plait_wire *w)
{
    size_t bytes = (size_t)w->head.tag;
    uint64_t rank = w->head.group;

    if (w->head.tag == 0 || w->head.tag >= sizeof(w->news)) {
        plait_links_lose(l, rank < (uint64_t)l->size ? (int)rank : w->peer,
                         "it has ended");
        return;
    }
    w->differs = w->head.bytes == PLAIT_LINKS_DIFFER;
    w->head.bytes = bytes;
    w->unheard = 1;
    w->heard = (struct plait_links_part){
        .at = w->news, .bytes = bytes, .pending = &w->unheard};
    w->into = &w->heard;
}

static void hear_news(struct plait_links *l, struct plait_wire *w)
{
    uint64_t rank = w->head.group;

    w->news[w->heard.bytes] = '\0';
    plait_text_clean(w->news);
    plait_links_hear(l, rank < (uint64_t)l->size ? (int)rank : w->peer,
                     w->differs, w->news);
}

/* The head is complete: find out where the message goes. */
static void begin_message(struct plait_links *l, struct plait_wire *w)
{
    struct plait_link *k = plait_links_of(l, w->peer);
    struct plait_links_part **at;

    if (!k)
        return;
    if (w->head.bytes == PLAIT_LINKS_GOODBYE) {
        w->bye = k->gone = true;
        w->got = 0;
        return;
    }
    if (w->head.bytes == PLAIT_LINKS_LOST ||
        w->head.bytes == PLAIT_LINKS_DIFFER) {
        expect_news(l, w);
        return;
    }
    for (at = &k->posted; *at && !is_for(&w->head, *at); at = &(*at)->next)
        ;
    if (*at) {
        w->into = *at;
        *at = w->into->next;
        fits_part(l, w->peer, &w->head, w->into);
        return;
    }
    begin_early(l, k, w);
}

/* Where the next bytes go, and how many. */
static char *inlet_of(struct plait_wire *w, size_t *bytes)
{
    if (w->got < sizeof(w->head)) {
        *bytes = sizeof(w->head) - w->got;
        return (char *)&w->head + w->got;
    }
    if (w->into) {
        *bytes = w->into->bytes - w->into->done;
        return w->into->at + w->into->done;
    }
    *bytes = w->early->room - w->early->done;
    return w->early->data + w->early->done;
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
        if (w->early->done == w->early->room &&
            w->early->room < w->early->head.bytes)
            grow_early(l, w);
    }
    done = w->into ? w->into->done : w->early->done;
    if (done < w->head.bytes)
        return;
    if (w->into == &w->heard)
        hear_news(l, w);
    else
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

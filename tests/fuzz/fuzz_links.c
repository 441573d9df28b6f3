/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "runtime/comm/tcp/links_private.h"
#include "topology/base/text.h"

/* What a rank that has proved itself, or anybody where there is no secret,
 * sends over its connection: heads and what follows them, cut anywhere. The
 * first byte selects the kind of connection, whether the message of group 1 and
 * tag 2 is waited for before it comes or asked for later, whether a collective
 * is under way, and how the bytes are cut. */

enum { RANKS = 3, PEER = 1, BYTES = 8, MOST = 32 << 20 };
enum { TREE = 1, POSTED = 2, ENTERED = 4, CUT = 8 };

static struct plait_contact contacts[RANKS] = {
    {.host = "a"}, {.host = "b"}, {.host = "c"}};
static int order[RANKS] = {0, 1, 2};
static struct plait_members members = {
    .size = RANKS, .n = RANKS, .all = contacts, .order = order};

static struct plait_links *make_links(void)
{
    struct plait_links *l = calloc(1, sizeof(*l));

    if (!l)
        abort();
    pthread_mutex_init(&l->lock, NULL);
    l->members = &members;
    l->size = RANKS;
    l->suspect = -1;
    l->swept = true;
    l->most_early = MOST;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->gate = -1;
    l->guests = plait_guests_create(8, 8, sizeof(struct plait_greeting));
    l->link = calloc(RANKS, sizeof(*l->link));
    l->poll = calloc(1, sizeof(*l->poll));
    if (l->epoll < 0 || !l->guests || !l->link || !l->poll)
        abort();
    return l;
}

static void check(const struct plait_links *l)
{
    const char *why = plait_links_failure(l);
    uint64_t early = 0;

    if (why && (strlen(why) >= PLAIT_LINKS_WHY || !plait_text_is_clean(why)))
        __builtin_trap();
    for (int i = 0; i < RANKS; i++)
        for (struct plait_early *e = l->link[i] ? l->link[i]->unclaimed : NULL;
             e; e = e->next) {
            if (e->done > e->room || e->room > e->head.bytes)
                __builtin_trap();
            early += e->head.bytes;
        }
    if (early != l->early || early > MOST)
        __builtin_trap();
}

/* Reads all that has come; the connection may end. */
static void drain(struct plait_links *l)
{
    for (int i = 0; i < l->nwires; i++)
        while (l->wire[i]->fd >= 0 && plait_links_drain(l, l->wire[i]))
            ;
    plait_wires_sweep(l);
    check(l);
}

static void receive(struct plait_links *l, struct plait_links_part *part)
{
    struct plait_link *k = plait_links_of(l, PEER);

    /* Without a connection one would be made. */
    if (k && plait_wire_any(l, PEER)) {
        k->way = plait_wire_with(l, PEER, PLAIT_WIRE_OPEN);
        plait_links_receive(l, PEER, part);
    }
    check(l);
}

static void feed(struct plait_links *l, int fd, const uint8_t *data,
                 size_t size, int flags)
{
    size_t cut = flags & CUT && size > 0 ? data[0] % size : size;

    if (send(fd, data, cut, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        drain(l);
    if (cut < size && !plait_links_failure(l) &&
        send(fd, data + cut, size - cut, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        drain(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int flags = size ? data[0] : 0, pending = 1, fd[2];
    char buffer[BYTES];
    struct plait_entry entry = {.group = 1,
                                .tag = 3,
                                .call = {.what = 5, .number = 6},
                                .name = "world"};
    struct plait_links_part part = {.group = 1,
                                    .tag = 2,
                                    .at = buffer,
                                    .bytes = BYTES,
                                    .pending = &pending};
    struct plait_links *l;

    if (size < 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, fd) < 0)
        return 0;
    l = make_links();
    plait_links_of(l, PEER);
    plait_wire_add(l, fd[1], PEER,
                   flags & TREE ? PLAIT_WIRE_TREE : PLAIT_WIRE_OPEN);
    if (flags & ENTERED)
        plait_links_enter(l, &entry);
    if (flags & POSTED)
        receive(l, &part);
    feed(l, fd[0], data + 1, size - 1, flags);
    if (!(flags & POSTED) && !plait_links_failure(l))
        receive(l, &part);
    close(fd[0]);
    drain(l);
    if (pending < 0 || (pending == 0 && part.done != BYTES))
        __builtin_trap();
    if (flags & ENTERED)
        plait_links_leave(&entry);
    plait_links_fail(l, "the end");
    plait_links_destroy(l);
    return 0;
}

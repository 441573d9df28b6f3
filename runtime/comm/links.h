/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_LINKS_H
#define PLAIT_RUNTIME_COMM_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/bells.h"
#include "runtime/comm/members.h"

/* Messages between any two processes of a world over TCP, matched by (peer,
 * group, tag) and among equals by order. Two have a connection from their first
 * message on; and a tree of connections joins all, which carries no messages.
 *
 * As soon as one peer is lost, all is: every connection is shut down, and the
 * tree tells those that had none with it, so that the others fail at once too,
 * also those that wait for somebody who is alive and waits for the lost one.
 * Nobody is left waiting. */
struct plait_links;

/* One end of a message. The caller keeps it where it is, and the buffer, until
 * it is done; *pending is counted down then. */
struct plait_part {
    uint64_t group, tag;
    char *at;
    size_t bytes;
    int *pending;
    /* the links' own: */
    size_t done;
    struct plait_part *next;
};

/* Of those that are present; `members` outlives it. Collective. NULL with errno
 * and err. */
struct plait_links *plait_links_create(struct plait_members *members,
                                       double timeout_s,
                                       struct plait_error *err);
/* Says goodbye, so that nobody takes it for a loss. NULL-safe. */
void plait_links_destroy(struct plait_links *links);

/* Of the same world, and for as long as the links live: who is sent something
 * is woken. Before the first message. */
void plait_links_set_bells(struct plait_links *links,
                           struct plait_bells *bells);

/* These three by one thread at a time. */
void plait_links_send(struct plait_links *links, int peer,
                      struct plait_part *part);
void plait_links_receive(struct plait_links *links, int peer,
                         struct plait_part *part);
/* Move what can be moved now. Whether anything was. */
bool plait_links_move(struct plait_links *links);

/* Until a peer has sent something, so many milliseconds at most, and not at all
 * while there is something to send. By any thread. */
void plait_links_wait(struct plait_links *links, int ms);

/* Whether all that can come from near peers rings the bell: not what makes a
 * connection, or makes room for what is to be sent. As those three. */
bool plait_links_ring(const struct plait_links *links);

/* Why nothing moves any more, NULL: nothing has failed. By any thread. */
const char *plait_links_failure(const struct plait_links *links);
/* Give up: the peers are lost to this process, and it to them. As above; the
 * first reason stays. */
void plait_links_fail(struct plait_links *links, const char *why);

#endif

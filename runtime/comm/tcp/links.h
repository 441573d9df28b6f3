/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_TCP_LINKS_H
#define PLAIT_RUNTIME_COMM_TCP_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/call.h"
#include "runtime/comm/members.h"
#include "runtime/comm/shm/bells.h"

/* Messages between any two processes of a world over TCP, matched by (peer,
 * group, tag), and by order where those are equal. Two processes connect at
 * their first message. In addition a tree of connections, which carries no
 * messages, joins all processes.
 *
 * The loss of one peer fails everything: every connection is shut down, and the
 * tree informs processes that had no connection to the lost one. So all
 * processes fail at once, also those that wait for one that is alive and itself
 * waits for the lost one. */
struct plait_links;

/* A collective that this rank is in, or was: a peer that sends something for
 * another one under the same number of the group makes all ranks fail, with a
 * line that names both. */
struct plait_entry {
    uint64_t group, tag;
    struct plait_call call;
    const char *name; /* of the group */
    /* private: */
    struct plait_entry *next, **at;
    struct plait_entered *of;
};

/* One end of a message. The caller must not move it, nor touch the buffer,
 * until it is done; then *pending is decremented. */
struct plait_links_part {
    uint64_t group, tag;
    char *at;
    size_t bytes;
    int *pending;
    const struct plait_entry *entry; /* that it is a part of; NULL: none */
    /* private: */
    size_t done;
    struct plait_links_part *next;
};

/* Connects the members that are present. `members` must outlive the links.
 * `star`, if there is one yet, has the same ranks: over it they agree that none
 * lacks memory for this, before they wait for each other. Collective. NULL with
 * errno and err. */
struct plait_links *plait_links_create(struct plait_members *members,
                                       struct plait_comm *star,
                                       double timeout_s,
                                       struct plait_error *err);
/* Says goodbye, so that the peers do not take it for a loss. `links` may be
 * NULL. */
void plait_links_destroy(struct plait_links *links);

/* Sets the world's bells, which must outlive the links: a peer that is sent
 * something is woken. Call once the bells exist; until then nobody sleeps on
 * one. */
void plait_links_set_bells(struct plait_links *links,
                           struct plait_bells *bells);

/* Call these five by one thread at a time. enter: before the first part of a
 * collective, and where it moves by other means. leave: when it is done; does
 * nothing for one that was not entered. */
void plait_links_enter(struct plait_links *links, struct plait_entry *entry);
void plait_links_leave(struct plait_entry *entry);
void plait_links_send(struct plait_links *links, int peer,
                      struct plait_links_part *part);
void plait_links_receive(struct plait_links *links, int peer,
                         struct plait_links_part *part);
/* Moves what can be moved now. Whether anything was. */
bool plait_links_move(struct plait_links *links);

/* Waits up to `ms` milliseconds until a peer has sent something; returns at
 * once while there is something to send. Any thread. */
void plait_links_wait(struct plait_links *links, int ms);

/* Whether a sleeping rank would hear its bell for all that its near peers may
 * do. False while connections are made or data waits for room in a socket, as
 * these ring no bell. By one thread at a time, as those five. */
bool plait_links_ring(const struct plait_links *links);

/* Why nothing moves any more; NULL: nothing has failed. Any thread. */
const char *plait_links_failure(const struct plait_links *links);
/* Gives up: this process and its peers are lost to each other. Any thread. The
 * first reason is kept. */
void plait_links_fail(struct plait_links *links, const char *why);
/* The same, and `why` is the reason on all ranks. */
void plait_links_refuse(struct plait_links *links, const char *why);
/* The same, because ranks have entered different collectives: `why` says
 * which. */
void plait_links_differ(struct plait_links *links, const char *why);
/* The reason if it was that; else NULL. Any thread. */
const char *plait_links_difference(const struct plait_links *links);

#endif

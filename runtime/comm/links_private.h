/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_LINKS_PRIVATE_H
#define PLAIT_RUNTIME_COMM_LINKS_PRIVATE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/comm/greeting.h"
#include "runtime/comm/links.h"

/* What links.c (messages and life), links_read.c (what comes in) and
 * links_wires.c (connections) share. */

/* In front of every message. */
struct plait_links_head {
    uint64_t bytes, group, tag;
};

/* The heads of a goodbye, and of one that tells which rank (`group`) was lost:
 * no message has this many bytes. */
#define PLAIT_LINKS_GOODBYE UINT64_MAX
#define PLAIT_LINKS_LOST (UINT64_MAX - 1)

/* How long who waits for a message waits for its sender to connect. */
#define PLAIT_LINKS_WATCH_S 0.05

enum plait_links_state {
    PLAIT_LINKS_GOOD,
    PLAIT_LINKS_FAILING,
    PLAIT_LINKS_FAILED
};

/* A message, or its beginning, that nobody waits for yet. */
struct plait_early {
    struct plait_early *next;
    struct plait_wire *wire; /* that the rest comes by; NULL: it is whole */
    struct plait_links_head head;
    size_t done;
    char data[];
};

enum plait_wire_state {
    PLAIT_WIRE_TREE,    /* to a neighbour in the tree: no messages */
    PLAIT_WIRE_JOINING, /* by this rank, and not proved */
    PLAIT_WIRE_GUEST,   /* by another one, and not proved */
    PLAIT_WIRE_OPEN
};

/* A connection. */
struct plait_wire {
    int fd, at; /* its place in the list; fd -1: closed */
    int peer;   /* -1: not known */
    enum plait_wire_state state;
    bool bye;         /* the peer has said so */
    bool sending;     /* there is something to send */
    _Atomic bool mid; /* a part of a message is sent, the rest is not */
    double since;     /* when a guest came */
    struct plait_greeting greeting;
    /* What comes in: `got` bytes of its head, then it goes into either. */
    struct plait_links_head head;
    size_t got;
    struct plait_part *into;
    struct plait_early *early;
};

/* What there is with a peer. */
struct plait_link {
    int peer;
    bool gone;              /* it has said goodbye */
    struct plait_wire *way; /* that messages to it go by; NULL: none yet */
    struct plait_part *out, **out_end; /* in order */
    size_t sent;                       /* bytes of the first one's head */
    struct plait_part *posted;         /* wait for a message, in order */
    struct plait_early *unclaimed; /* in order, the last may be incomplete */
    bool wants;                    /* among those that want a connection */
    double again;                  /* when to make one */
    struct plait_link *next;
};

struct plait_links {
    struct plait_members *members;
    struct plait_bells *bells;    /* NULL: nobody sleeps on one */
    struct plait_meeting meeting; /* how others come to this rank */
    uint64_t key;
    int rank, size, epoll;
    struct plait_link **link; /* [size] NULL: nothing yet */
    struct plait_link *wanting;
    pthread_mutex_t lock;     /* of the list, against plait_links_fail() */
    struct plait_wire **wire; /* [nwires] */
    struct pollfd *poll;      /* [nwires + 1]; the first is the port's */
    int nwires, room, nguests;
    bool swept; /* no wire of the list is closed */
    bool leaving;
    int suspect; /* a peer whose connection broke, -1: none */
    double suspected;
    char because[80];
    _Atomic int sending; /* wires with something to send */
    _Atomic int state;   /* enum plait_links_state */
    char why[200];       /* when FAILED */
};

/* One that the caller waits for less. */
static inline void plait_part_finish(struct plait_part *part)
{
    --*part->pending;
}

/* -- links.c --------------------------------------------------------------- */

void plait_links_lose(struct plait_links *l, int peer, const char *why);
/* It may have given up because another one was lost, of which the tree tells:
 * it is lost if nothing is heard. */
void plait_links_suspect(struct plait_links *l, int peer, const char *why);
/* NULL: out of memory, and all is given up. */
struct plait_link *plait_links_of(struct plait_links *l, int peer);
/* Whether anything went. */
bool plait_links_flush(struct plait_links *l, struct plait_link *k);

/* -- links_read.c ---------------------------------------------------------- */

/* Whether anything came. */
bool plait_links_drain(struct plait_links *l, struct plait_wire *w);
bool plait_links_fits(struct plait_links *l, int peer,
                      const struct plait_links_head *head,
                      const struct plait_part *part);

/* -- links_wires.c --------------------------------------------------------- */

/* Takes the connection, also on failure: NULL, and all is given up. */
struct plait_wire *plait_wire_add(struct plait_links *l, int fd, int peer,
                                  enum plait_wire_state state);
void plait_wire_close(struct plait_links *l, struct plait_wire *w);
void plait_wire_set_sending(struct plait_links *l, struct plait_wire *w,
                            bool sending);
/* A connection with this peer in that state; NULL: none. */
struct plait_wire *plait_wire_with(const struct plait_links *l, int peer,
                                   enum plait_wire_state state);
/* Whether one is there or coming that has, or may bring, its messages. */
bool plait_wire_any(const struct plait_links *l, int peer);
/* Something is to be sent to this peer, or to come from it, and there is no
 * way yet: make one, or after `patience` seconds without one of the peer's. */
void plait_link_want(struct plait_links *l, struct plait_link *k,
                     double patience);
/* What is due; and who is there or has said more. Whether anything moved. */
bool plait_wires_tend(struct plait_links *l);
bool plait_wire_greet(struct plait_links *l, struct plait_wire *w);
void plait_wires_accept(struct plait_links *l);
/* Takes out and frees those that are closed. */
void plait_wires_sweep(struct plait_links *l);
void plait_wires_destroy(struct plait_links *l);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_TCP_LINKS_PRIVATE_H
#define PLAIT_RUNTIME_COMM_TCP_LINKS_PRIVATE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/bootstrap/greeting.h"
#include "runtime/comm/tcp/links.h"
#include "topology/base/guests.h"

/* What links.c (messages and life), links_enter.c (collectives), links_read.c
 * (what comes in) and links_wires.c (connections) share.
 *
 * A link is what this rank has to do with one peer: parts to send, receives
 * that wait for a message, and messages that came before their receive. A wire
 * is a connection. A link is made at the first message and stays; wires come
 * and go. At most one wire of a link is its way, which carries what is sent to
 * the peer; messages are read from each that is open.
 *
 * Making a wire. Sender or receiver connects to the port that the peer keeps
 * open, and both prove the step's secret (bootstrap/greeting.h). At the peer it
 * is a guest of the gate until its hello is there, then a wire in state GUEST
 * until it has given its proof, then OPEN. The receiver first waits
 * PLAIT_LINKS_WATCH_S for the sender. If both connect at once, the connection
 * of the lower rank stays: the higher rank's is turned away, and it takes the
 * other.
 *
 * A message is a head and its bytes. If its receive is posted, they are read
 * into its buffer; otherwise into memory that grows as they come (struct
 * plait_early). Reading always goes on, so two ranks that send to each other at
 * once do not wait in a circle, whatever the sockets hold. What a peer may make
 * this rank store is bounded.
 *
 * The loss of a rank. Every rank has a wire to its neighbours in a tree of all
 * ranks, which bears no messages. If it breaks, the neighbour is lost. Then
 * this rank fails: it tells all peers which rank was lost and why, and shuts
 * its wires down; they do the same, so that the news reaches every rank within
 * the height of the tree. A broken wire outside of the tree proves nothing, as
 * the peer may have failed over that very news; it is only suspected for
 * SUSPECT_S. There is no way back from the state FAILED: the world is
 * destroyed, and a new one is made of those that are left (regroup.c).
 *
 * Threads. One thread at a time sends, receives and moves. Any thread may wait,
 * fail the links and ask whether they have failed, so `state` and `sending` are
 * atomic, `why` is written before the state becomes FAILED, and `lock` keeps
 * the list of wires and their descriptors as they are while a failing thread
 * goes through it. */

/* In front of every message. */
struct plait_links_head {
    uint64_t bytes, group, tag;
    struct plait_call call; /* of a collective; else 0 */
};

/* In place of a length: a goodbye, the news that rank `group` was lost, and
 * that ranks have entered different collectives. The news go on with `tag`
 * bytes of text, the reason. */
#define PLAIT_LINKS_GOODBYE UINT64_MAX
#define PLAIT_LINKS_LOST (UINT64_MAX - 1)
#define PLAIT_LINKS_DIFFER (UINT64_MAX - 2)
#define PLAIT_LINKS_WHY 320
/* A peer that announces a longer message, or has so many for which no receive
 * is posted, is lost. Their bytes together are bounded by this machine's
 * memory: links_read.c. */
#define PLAIT_LINKS_BYTES_MOST (UINT64_C(1) << 40)
#define PLAIT_LINKS_EARLY_MOST (1 << 20)

/* How long a receiver waits for its sender to connect before it connects
 * itself. */
#define PLAIT_LINKS_WATCH_S 0.05

enum plait_links_state {
    PLAIT_LINKS_GOOD,
    PLAIT_LINKS_FAILING,
    PLAIT_LINKS_FAILED
};

/* A message, or its beginning, for which no receive is posted yet. */
struct plait_early {
    struct plait_early *next;
    struct plait_wire *wire; /* brings the rest; NULL: it is complete, or its
                              * connection broke */
    struct plait_links_head head;
    size_t done, room; /* bytes that have come, and that there is memory for:
                        * a length alone claims none */
    char *data;        /* [room] */
};

/* What this rank has entered in a group. It enters a group's collectives in
 * their order, but may leave them in another. */
struct plait_entered {
    struct plait_entered *next;
    uint64_t group, last;               /* the newest that it has entered */
    struct plait_call left[PLAIT_PAST]; /* the newest that it has left, by
                                           number modulo PLAIT_PAST */
    char name[32];
};

enum plait_wire_state {
    PLAIT_WIRE_TREE,    /* to a neighbour in the tree: no messages */
    PLAIT_WIRE_JOINING, /* made by this rank, not confirmed yet */
    PLAIT_WIRE_GUEST,   /* made by another rank, which was answered and has not
                         * sent its proof */
    PLAIT_WIRE_OPEN
};

/* A connection. */
struct plait_wire {
    int fd, at; /* index in the list; fd -1: closed */
    int peer;   /* -1: not known yet */
    enum plait_wire_state state;
    bool bye;         /* the peer has said goodbye */
    bool sending;     /* there is something to send */
    _Atomic bool mid; /* a message is sent in part */
    double since;     /* when it was made */
    struct plait_greeting greeting;
    /* The message that comes in: `got` bytes of its head are there; its data
     * then goes into one of these. */
    struct plait_links_head head;
    size_t got;
    struct plait_links_part *into;
    struct plait_early *early;
    /* The text of news goes into `news`. */
    struct plait_links_part heard;
    int unheard;
    bool differs;
    char news[PLAIT_LINKS_WHY];
};

/* Messages to and from one peer. */
struct plait_link {
    int peer;
    bool gone;              /* it has said goodbye */
    struct plait_wire *way; /* carries messages to it; NULL: none yet */
    struct plait_links_part *out, **out_end; /* parts to send, in order */
    size_t sent;                     /* bytes of the first part's head that
                                        are sent */
    struct plait_links_part *posted; /* receives without a message yet, in
                                  order */
    struct plait_early *unclaimed;   /* messages without a receive, in order;
                                        the last may be incomplete */
    struct plait_early *unclaimed_last;
    int nunclaimed;
    struct plait_link *early, **early_at; /* the list of those with such ones */
    bool wants;                           /* is in the list of those that want a
                                             connection */
    double again;                         /* when to try to connect again */
    uint64_t began;                       /* of its newest hello */
    double unreached;                     /* since when attempts fail; 0: not */
    struct plait_link *next;
};

struct plait_links {
    struct plait_members *members;
    struct plait_bells *bells;       /* NULL: nobody sleeps on a bell */
    struct plait_rendezvous meeting; /* how others connect to this rank */
    uint64_t key;
    int rank, size, epoll;
    struct plait_link **link; /* [size] NULL: nothing yet */
    struct plait_link *wanting;
    pthread_mutex_t lock;     /* of the list: any thread may fail the links */
    struct plait_wire **wire; /* [nwires] */
    struct pollfd *poll;      /* [nwires + 1]; [0]: the gate */
    /* Anybody may connect. What has not sent a hello that only a rank can make
     * stays here; the gate, an epoll, watches these and the listener. */
    struct plait_guests *guests;
    int gate;
    int nwires, room, nguests;
    bool swept; /* no wire of the list is closed */
    bool leaving;
    int suspect; /* a peer whose connection broke, -1: none */
    double suspected;
    char because[80];
    struct plait_link *early_link; /* peers with messages without a receive */
    uint64_t early; /* bytes of messages without a receive, and the most */
    uint64_t most_early;
    _Atomic int sending;          /* wires with something to send */
    _Atomic int state;            /* enum plait_links_state */
    bool differ;                  /* ranks have entered different collectives */
    char why[PLAIT_LINKS_WHY];    /* both valid when FAILED */
    struct plait_entry *entered;  /* collectives under way */
    struct plait_entered *groups; /* of all collectives so far */
};

/* One part less that the caller waits for. */
static inline void plait_part_finish(struct plait_links_part *part)
{
    --*part->pending;
}

/* -- links.c --------------------------------------------------------------- */

void plait_links_lose(struct plait_links *l, int peer, const char *why);
/* What a peer has told: the reason that failed it. */
void plait_links_hear(struct plait_links *l, int lost, bool differ,
                      const char *why);
/* The connection to a peer broke. The peer may have given up because another
 * rank was lost, of which the tree brings news; if none comes, the peer itself
 * counts as lost. */
void plait_links_suspect(struct plait_links *l, int peer, const char *why);
/* The link to a peer, made if needed. NULL: out of memory, and the links have
 * failed. */
struct plait_link *plait_links_of(struct plait_links *l, int peer);
/* Whether anything was sent. */
bool plait_links_flush(struct plait_links *l, struct plait_link *k);

/* -- links_enter.c --------------------------------------------------------- */

/* Whether the peer, which has sent this head, is in the same collective. Else
 * the links have failed. */
bool plait_entry_alike(struct plait_links *l, int peer,
                       const struct plait_links_head *head,
                       const struct plait_entry *entry);
/* The same for a message that nobody waits for: it shows which collective its
 * sender is in, or was. */
bool plait_entry_check(struct plait_links *l, int peer,
                       const struct plait_links_head *head);
void plait_entered_destroy(struct plait_links *l);

/* -- links_read.c ---------------------------------------------------------- */

/* Takes the message after `before` (NULL: the first) off the list of those
 * without a receive, and frees it. */
void plait_early_drop(struct plait_links *l, struct plait_link *k,
                      struct plait_early *before);

/* Whether anything was received. */
bool plait_links_drain(struct plait_links *l, struct plait_wire *w);

/* -- links_wires.c --------------------------------------------------------- */

/* Takes over the connection, also on failure: then NULL and, unless another
 * rank made the connection, the links have failed. */
struct plait_wire *plait_wire_add(struct plait_links *l, int fd, int peer,
                                  enum plait_wire_state state);
void plait_wire_close(struct plait_links *l, struct plait_wire *w);
void plait_wire_set_sending(struct plait_links *l, struct plait_wire *w,
                            bool sending);
/* A connection with this peer in that state; NULL: none. */
struct plait_wire *plait_wire_with(const struct plait_links *l, int peer,
                                   enum plait_wire_state state);
/* Whether there is, or may soon be, a connection for messages of this peer. */
bool plait_wire_any(const struct plait_links *l, int peer);
/* There is something to send to this peer or to receive from it, and no
 * connection for it yet: take or make one. patience: seconds to wait first for
 * the peer to make one. */
void plait_link_want(struct plait_links *l, struct plait_link *k,
                     double patience);
/* tend: do what is due, such as connecting. greet: go on with an unproved
 * connection. Both return whether anything moved. */
bool plait_wires_tend(struct plait_links *l);
bool plait_wire_greet(struct plait_links *l, struct plait_wire *w);
/* Something has come to the gate. */
void plait_wires_accept(struct plait_links *l);
/* Removes closed connections from the list and frees them. */
void plait_wires_sweep(struct plait_links *l);
void plait_wires_destroy(struct plait_links *l);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_BEAT_H
#define PLAIT_RUNTIME_STUCK_BEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/stuck/wire.h"

/* The messages between the nodes of a run: that they are alive and, when the
 * run hangs, what their ranks do. Pure: this file has the format and the table
 * of who is alive; heartbeat.c sends and receives. Integers are
 * little-endian. */

enum plait_beat_kind {
    PLAIT_BEAT_ALIVE = 1, /* when each node was last heard */
    PLAIT_BEAT_ASK,       /* please send the state of your ranks */
    PLAIT_BEAT_RANK,      /* the state of one rank, the answer to ASK */
    PLAIT_BEAT_END,       /* a hang was reported: the run ends */
    PLAIT_BEAT_OVER,      /* the same, and no rank may go on without others */
    PLAIT_BEAT_LAST = PLAIT_BEAT_OVER
};

enum {
    PLAIT_BEAT_HEAD = 36,
    PLAIT_BEAT_NODES = 600, /* per message, so that it fits into a packet */
    PLAIT_BEAT_MOST = PLAIT_BEAT_HEAD + PLAIT_STUCK_WIRE_MOST
};

/* A message. Its body for ALIVE has two bytes a node: the age of its last sign
 * of life, and the rank that speaks for it. */
struct plait_beat {
    enum plait_beat_kind kind;
    uint64_t run;     /* the same for all nodes */
    uint64_t number;  /* rises from each message of a node to the next */
    int node;         /* the sender */
    int first, count; /* ALIVE: range of nodes; RANK: 0, ranks of the node */
    const unsigned char *body;
    size_t size; /* of body; ALIVE: 2 * count */
};

/* Returns the number of bytes, -1 where `room` is too small. */
int plait_beat_pack(const struct plait_beat *beat, unsigned char *to,
                    size_t room);
/* Accepts any bytes. `body` points into them. -1: they are not a message. */
int plait_beat_unpack(const unsigned char *from, size_t size,
                      struct plait_beat *beat);

/* -- who is alive ---------------------------------------------------------- */

/* Gossip: every node sends one message a round, in round k to the node 2^k
 * after its own, where k cycles through the powers of two below the number of
 * nodes. After as many rounds as there are powers all nodes know what one has
 * heard. */
#define PLAIT_BEAT_ROUND_S 0.25

struct plait_beat_table {
    int n, self;
    double *heard;          /* [n] when any node last heard it, in this clock */
    uint64_t *number;       /* [n] of the last message received from it */
    unsigned char *speaker; /* [n] index of the rank that speaks for it */
};

/* All nodes count as heard at `now`. -1: out of memory. Call
 * plait_beat_table_clear() after a failure too. */
int plait_beat_table_init(struct plait_beat_table *t, int n, int self,
                          double now);
void plait_beat_table_clear(struct plait_beat_table *t);
/* Count all nodes as heard at `now`, where this process has just begun to
 * listen and would mistake them for silent. */
void plait_beat_table_reset(struct plait_beat_table *t, double now);
/* Enter a message; its sender is heard at `now`. False for one of this node's
 * own, of an unknown node, or one that is not newer than the last. */
bool plait_beat_table_take(struct plait_beat_table *t,
                           const struct plait_beat *beat, double now);
/* Write count pairs of bytes, the body of an ALIVE message for the nodes from
 * `first` on. */
void plait_beat_table_tell(const struct plait_beat_table *t, int first,
                           int count, double now, unsigned char *body);

/* The node that `self` sends to in this round; how many seconds a node of n may
 * go unheard before it counts as silent. */
int plait_beat_target(int n, int self, int64_t round);
double plait_beat_limit(int n);

#endif

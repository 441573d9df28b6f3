/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_BEAT_H
#define PLAIT_RUNTIME_STUCK_BEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/stuck/wire.h"

/* What the nodes of a run tell each other: that they are alive, and when it
 * hangs, what their ranks do. Pure: messages and what follows from them; who
 * sends them is heartbeat.c's. Little-endian bytes. */

enum plait_beat_kind {
    PLAIT_BEAT_ALIVE = 1, /* when nodes were last heard */
    PLAIT_BEAT_ASK,       /* for the ranks of a node */
    PLAIT_BEAT_RANK,      /* one of them */
    PLAIT_BEAT_END,       /* a hang was reported: the run ends */
    PLAIT_BEAT_LAST = PLAIT_BEAT_END
};

enum {
    PLAIT_BEAT_HEAD = 36,
    PLAIT_BEAT_NODES = 600, /* of one message: it fits into a packet */
    PLAIT_BEAT_MOST = PLAIT_BEAT_HEAD + PLAIT_STUCK_WIRE_MOST
};

/* Two bytes for a node: its age, and which of its ranks speaks for it. */
struct plait_beat {
    enum plait_beat_kind kind;
    uint64_t run;     /* the same for all nodes */
    uint64_t number;  /* rises from message to message of a node */
    int node;         /* that sends it */
    int first, count; /* ALIVE: of nodes; RANK: 0, and those of the node */
    const unsigned char *body;
    size_t size; /* of body: 2 * count of ALIVE */
};

/* The number of bytes; -1: there is no room. */
int plait_beat_pack(const struct plait_beat *beat, unsigned char *to,
                    size_t room);
/* Takes any bytes; `body` points into them. -1: they are no message. */
int plait_beat_unpack(const unsigned char *from, size_t size,
                      struct plait_beat *beat);

/* -- who is alive ---------------------------------------------------------- */

/* Every node sends one message a round: in round k to the node 2^k after it,
 * k going round the powers below the number of nodes. What one has heard is
 * in all of them after as many rounds as there are powers. */
#define PLAIT_BEAT_ROUND_S 0.25

struct plait_beat_table {
    int n, self;
    double *heard;          /* [n] when anybody last heard it, by `now` */
    uint64_t *number;       /* [n] of the last message that came from it */
    unsigned char *speaker; /* [n] which of its ranks speaks */
};

/* All were heard `now`. -1: out of memory; plait_beat_table_clear() in any
 * case. */
int plait_beat_table_init(struct plait_beat_table *t, int n, int self,
                          double now);
void plait_beat_table_clear(struct plait_beat_table *t);
/* Forget who was silent: this process has only begun to listen. */
void plait_beat_table_reset(struct plait_beat_table *t, double now);
/* Whether the message is of another node and none that was here before; that
 * node is heard now. */
bool plait_beat_table_take(struct plait_beat_table *t,
                           const struct plait_beat *beat, double now);
/* count pairs of bytes of the nodes from `first` on. */
void plait_beat_table_tell(const struct plait_beat_table *t, int first,
                           int count, double now, unsigned char *body);

/* The node that `self` sends to in this round, and for how many seconds of n
 * nodes one may not be heard without being silent. */
int plait_beat_target(int n, int self, int64_t round);
double plait_beat_limit(int n);

#endif

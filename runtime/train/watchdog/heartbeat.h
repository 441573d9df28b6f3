/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_HEARTBEAT_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/stuck/beat.h"
#include "runtime/stuck/judge.h"

/* Nodes tell each other that they are alive, by UDP, which no transfer that
 * hangs can hold up: one message a quarter of a second for each node
 * (runtime/stuck/beat.h), from the rank that speaks for it. When a run hangs, a
 * node is asked what its ranks do. Messages carry an HMAC with the job step's
 * secret, if there is one. Without addresses, or where no messages arrive, less
 * is known, and nothing fails. */

/* Where a rank can be reached: its local addresses on the route to rank 0. */
struct plait_heartbeat_address {
    unsigned char v6[16], v4[4]; /* network order */
    uint8_t has6, has4;
    uint16_t port; /* 0: nowhere */
};

struct plait_heartbeat_site {
    int world, node, nnodes;
    const int *node_of; /* [world] nodes are numbered by their lowest ranks */
    const struct plait_heartbeat_address *at; /* [world] */
    uint64_t run;                             /* tells runs apart */
    const char *secret;                       /* "": none */
    /* Called on the heartbeat's thread: whether this process is to speak for
     * its node, and what a rank of the node does. */
    bool (*speaks)(void *arg);
    void (*look)(void *arg, int rank, struct plait_stuck_rank *out);
    void *arg;
};

/* Opens a socket. *mine: where others reach it, the local addresses of the
 * route to the host `toward`. On that host itself they are loopback addresses,
 * which others replace by plait_heartbeat_correct(). -1 with errno. */
int plait_heartbeat_open(const char *toward,
                         struct plait_heartbeat_address *mine);
/* Replaces loopback addresses in at[n] by those at which this process reaches
 * `toward`. */
void plait_heartbeat_correct(const char *toward, int n,
                             struct plait_heartbeat_address *at);

struct plait_heartbeat;

/* Starts a thread that sends and receives as `rank`. Takes the socket, and
 * copies what the site points to. NULL with errno, and the socket is closed. */
struct plait_heartbeat *
plait_heartbeat_create(int fd, int rank,
                       const struct plait_heartbeat_site *site);
/* The number of that thread; 0: it has not begun yet. */
int plait_heartbeat_thread(const struct plait_heartbeat *hb);
void plait_heartbeat_destroy(struct plait_heartbeat *hb);

/* For how long nothing was heard of a node; 0: it is alive. known: count only
 * nodes that were heard before; 0 where nothing ever arrived, as in a process
 * that does not speak for its node. */
double plait_heartbeat_silence(struct plait_heartbeat *hb, int node,
                               bool known);
/* Whether all other nodes were heard before and are silent now. */
bool plait_heartbeat_alone(struct plait_heartbeat *hb);
/* Asks the other nodes, for at most `seconds`, what their ranks do, and fills
 * in ranks[world] for those that answer. A rank of a silent node becomes
 * SILENT. */
void plait_heartbeat_ask(struct plait_heartbeat *hb, double seconds,
                         struct plait_stuck_rank *ranks);
/* Tells all nodes that the run ends; they pass it on. kind: PLAIT_BEAT_END, or
 * PLAIT_BEAT_OVER. */
void plait_heartbeat_end(struct plait_heartbeat *hb, enum plait_beat_kind kind);
/* Whether another node has said so, or more. */
bool plait_heartbeat_ended(const struct plait_heartbeat *hb,
                           enum plait_beat_kind kind);

/* -- heartbeat_socket.c ---------------------------------------------------- */

/* The socket, which sends and receives single messages. Each is sealed by an
 * HMAC for the node that it is for: somebody who has recorded one can send it
 * again to that node only, which ignores a number that is not new. */
struct plait_heartbeat_link {
    int fd, node; /* node: this process's */
    bool v6;      /* the socket is of that family */
    struct plait_heartbeat_address mine;
    char secret[65];
};

enum { PLAIT_HEARTBEAT_SEAL = 32 }; /* bytes after a message */

void plait_heartbeat_link_init(struct plait_heartbeat_link *link, int fd,
                               int node,
                               const struct plait_heartbeat_address *mine,
                               const char *secret);
/* To the process of `node` at that address. `message` has room for the seal. */
void plait_heartbeat_send(const struct plait_heartbeat_link *link, int node,
                          const struct plait_heartbeat_address *to,
                          unsigned char *message, int size);
/* The size of a message without its seal; 0: what came is not valid; -1:
 * nothing has come. `from` is where an answer would go. */
int plait_heartbeat_receive(const struct plait_heartbeat_link *link,
                            unsigned char *message, int room,
                            struct plait_heartbeat_address *from);

#endif

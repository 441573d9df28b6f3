/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_WATCHDOG_HEARTBEAT_H
#define PLAIT_RUNTIME_TRAIN_WATCHDOG_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/stuck/judge.h"

/* Nodes tell each other that they are alive, by UDP, which no transfer that
 * hangs can hold up: one message a quarter of a second for each node
 * (runtime/stuck/beat.h), from the rank that speaks for it. When a run hangs,
 * a node is asked what its ranks do. Messages bear an HMAC by the step's
 * secret, where there is one. Without addresses, or where nothing comes
 * through, less is known, and nothing fails. */

/* Where a rank can be reached, from the address that leads to rank 0. */
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
    /* Whether this process is to speak for its node, and what a rank of the
     * node does; on a thread. */
    bool (*speaks)(void *arg);
    void (*look)(void *arg, int rank, struct plait_stuck_rank *out);
    void *arg;
};

/* A socket, and where others reach it: by the local addresses of a way to the
 * host `toward`. An address of this machine for itself is not known to others,
 * who reach that host by its name. -1 with errno. */
int plait_heartbeat_open(const char *toward,
                         struct plait_heartbeat_address *mine);
/* Of an address that is the sender's machine for itself: what this process
 * reaches `toward` by. */
void plait_heartbeat_correct(const char *toward, int n,
                             struct plait_heartbeat_address *at);

struct plait_heartbeat;

/* Of `rank`. Takes the socket, and what the site points to is copied. From now
 * on a thread speaks and listens. NULL with errno, and the socket is closed. */
struct plait_heartbeat *
plait_heartbeat_create(int fd, int rank,
                       const struct plait_heartbeat_site *site);
void plait_heartbeat_destroy(struct plait_heartbeat *hb);

/* For how long nothing was heard of a node; 0: it is alive. known: of one that
 * had been heard; 0 where nothing ever came through, as to a process that does
 * not speak for its node. */
double plait_heartbeat_silence(struct plait_heartbeat *hb, int node,
                               bool known);
/* None of the other nodes has been heard for so long that it is silent. */
bool plait_heartbeat_alone(struct plait_heartbeat *hb);
/* Asks the other nodes, for at most `seconds`, what their ranks do:
 * ranks[world] of those that answer. A rank of a silent node becomes SILENT. */
void plait_heartbeat_ask(struct plait_heartbeat *hb, double seconds,
                         struct plait_stuck_rank *ranks);
/* All nodes are told that the run ends, and pass it on. */
void plait_heartbeat_end(struct plait_heartbeat *hb);
/* Another node has said so. */
bool plait_heartbeat_ended(struct plait_heartbeat *hb);

/* -- heartbeat_socket.c ---------------------------------------------------- */

/* What is sent: one message, sealed. */
struct plait_heartbeat_link {
    int fd;
    bool v6; /* the socket is of that family */
    struct plait_heartbeat_address mine;
    char secret[65];
};

enum { PLAIT_HEARTBEAT_SEAL = 32 }; /* bytes behind a message */

void plait_heartbeat_link_init(struct plait_heartbeat_link *link, int fd,
                               const struct plait_heartbeat_address *mine,
                               const char *secret);
/* `message` has room for the seal. */
void plait_heartbeat_send(const struct plait_heartbeat_link *link,
                          const struct plait_heartbeat_address *to,
                          unsigned char *message, int size);
/* The size of a message without its seal; 0: what came is none; -1: nothing
 * has come. `from` is where an answer would go. */
int plait_heartbeat_receive(const struct plait_heartbeat_link *link,
                            unsigned char *message, int room,
                            struct plait_heartbeat_address *from);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_MEMBERS_H
#define PLAIT_RUNTIME_COMM_MEMBERS_H

#include <limits.h>
#include <stdbool.h>

#include "runtime/comm/bootstrap/rendezvous.h"
#include "runtime/comm/comm.h"

/* The processes with which a world over sockets began. Each keeps a port open
 * as long as it lives and knows the ports of all others, so that those that are
 * left after some have died can find each other and form a new world. */

/* Where a process can be reached. */
struct plait_contact {
    int32_t port, pid;
    uint64_t space;          /* namespace that the pid belongs to */
    uint64_t id;             /* random: notices bear their receiver's */
    unsigned char cpus[128]; /* cpu_set_t: cores that it may use */
    char host[HOST_NAME_MAX + 1];
};

struct plait_members {
    int listener;
    int self, size;            /* this process's number, fixed; how many
                                  began */
    struct plait_contact *all; /* [size] by number */
    int *present, n;           /* [n] numbers of the world's processes,
                                  ascending */
    int *order;                /* [n] the same numbers, by rank */
    int rank;                  /* of this process */
    uint64_t epoch;  /* of this world: tells its messages from older ones */
    uint64_t before; /* of the world before, which others may still believe
                        in; 0: this is the first */
    uint64_t *ids, *newest; /* [size] as of struct plait_rendezvous */
    bool *out;              /* [size] left out of this world though alive */
    bool told; /* this process was told that it is left out (notice.h) */
    char jobid[64];
    char secret[PLAIT_SECRET_SIZE];
};

/* Collective over `star`, whose ranks are those of `launch`. NULL with err. */
struct plait_members *plait_members_create(struct plait_comm *star,
                                           const struct plait_launch *launch,
                                           struct plait_error *err);
/* NULL-safe. */
void plait_members_destroy(struct plait_members *m);

/* The host name by which this process reaches that one. */
const char *plait_members_host(const struct plait_members *m, int number);
/* Whether this process can see that the other one is gone, whoever listens at
 * its port since then. */
bool plait_members_ended(const struct plait_members *m, int number);
/* 1: a process listens there; 0: it has ended; -1: not known. */
int plait_members_probe(const struct plait_members *m, int number);

/* -- regroup.c ------------------------------------------------------------- */

/* How many seconds to wait for processes that do not come. */
struct plait_patience {
    double stopped;     /* that a signal has stopped, as a process of their
                           machine has seen */
    double away;        /* whose machine cannot be reached */
    double slow;        /* that can be reached */
    const bool *silent; /* [size] by number: their machine has been silent so
                           long that one failed attempt is enough; NULL: none */
};
enum { PLAIT_AWAY_S = 10, PLAIT_SLOW_S = 60 };

/* After a transfer has failed: the processes of the world that are left agree
 * on who they are, led by the one with the lowest number. They keep their
 * ranks, except that the last ones take the ranks of those that are gone. A
 * process that does not come is left out; a stopped one is told so, and learns
 * it when it is continued. 0; -1 with err where this process cannot go on: it
 * was left out, or belongs to a minority that the others may have left
 * behind. */
int plait_members_regroup(struct plait_members *m,
                          const struct plait_patience *patience,
                          struct plait_error *err);
/* Handles what has come to this process's port and may be a notice
 * (notice.h). */
void plait_members_hear(struct plait_members *m, const unsigned char *head,
                        const unsigned char *proof);

/* -- comm.c ---------------------------------------------------------------- */

/* Takes the members out of a world over sockets. The world still uses them, so
 * they must outlive it. NULL for any other world. */
struct plait_members *plait_comm_take_members(struct plait_comm *world);
/* How many cores the ranks of a world over sockets share, if there are more
 * ranks than cores; else 0. *ranks: how many ranks share them. */
int plait_comm_shared_cores(const struct plait_comm *world, int *ranks);
/* From now on this rank of a world over sockets only waits, and should use no
 * processor time. */
void plait_comm_rest(struct plait_comm *world);
/* From now on every transfer of a world over sockets fails, also on its peers,
 * as if a process was lost; with NCCL over it, those fail too. Any thread. */
void plait_comm_break(struct plait_comm *world);
/* Whether a world over sockets has lost a process, by what its peers have sent
 * until now. Any thread. */
bool plait_comm_look(struct plait_comm *world);

/* -- socket.c -------------------------------------------------------------- */

/* The world of the members that are present; `m` must outlive it. Collective;
 * NULL with err. */
struct plait_comm *plait_members_world(struct plait_members *m,
                                       const struct plait_ops *ops,
                                       struct plait_device *dev,
                                       double timeout_s,
                                       struct plait_error *err);

#endif

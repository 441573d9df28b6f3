/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_MEMBERS_H
#define PLAIT_RUNTIME_COMM_MEMBERS_H

#include <limits.h>
#include <stdbool.h>

#include "runtime/comm/comm.h"
#include "runtime/comm/rendezvous.h"

/* The processes that a world over sockets began with. Each keeps a port open
 * as long as it lives, and knows everybody's: those that are left when some
 * have died find each other again, and make a world of their own. */

/* Where a process can be reached. */
struct plait_contact {
    int32_t port, pid;
    uint64_t space;          /* where that pid is one */
    unsigned char cpus[128]; /* cpu_set_t: where it may compute */
    char host[HOST_NAME_MAX + 1];
};

struct plait_members {
    int listener;
    int self, size;            /* its number, from the start; how many began */
    struct plait_contact *all; /* [size] by number */
    int *present, n;           /* [n] the numbers of the world, ascending */
    int *order;                /* [n] the same by rank */
    int rank;                  /* its own */
    uint64_t epoch;  /* of this world: tells its messages from older ones */
    uint64_t before; /* of the one before, 0: this is the first: somebody may
                        not have heard of this one */
    bool *out;       /* [size] left out of this world though they live */
    bool told;       /* this process was (notice.h) */
    char jobid[64];
    char secret[PLAIT_SECRET_SIZE];
};

/* Collective over `star`, which has the ranks of `launch`. NULL with err. */
struct plait_members *plait_members_create(struct plait_comm *star,
                                           const struct plait_launch *launch,
                                           struct plait_error *err);
/* NULL-safe. */
void plait_members_destroy(struct plait_members *m);

/* The host by which this process reaches that one. */
const char *plait_members_host(const struct plait_members *m, int number);
/* 1: a process listens there; 0: it has ended; -1: nobody knows. */
int plait_members_probe(const struct plait_members *m, int number);

/* -- regroup.c ------------------------------------------------------------- */

/* For how many seconds others are waited for that do not come. */
struct plait_patience {
    double stopped; /* by a signal, as a process of their machine has seen */
    double away;    /* their machine cannot be reached */
    double slow;    /* they can be reached */
    const bool *silent; /* [size] by number: nothing has been heard of their
                           machine for so long that one vain try is enough;
                           NULL: of none */
};
enum { PLAIT_AWAY_S = 10, PLAIT_SLOW_S = 60 };

/* After a transfer has failed: those of the world that are left agree on who
 * they are, led by the lowest of them. They keep their ranks, but for the last
 * ones, which take those of the dead. Who does not come is left out; where it
 * is stopped it is told, and learns it when it is continued. 0; -1 with err
 * where this process cannot go on: it was left out, or is one of the fewer that
 * the others may have left behind. */
int plait_members_regroup(struct plait_members *m,
                          const struct plait_patience *patience,
                          struct plait_error *err);
/* What has come to this process's port and may be a notice (notice.h). */
void plait_members_hear(struct plait_members *m, const unsigned char *head,
                        const unsigned char *proof);

/* -- socket.c -------------------------------------------------------------- */

/* Of a world over sockets, which gives them away, and still connects its ranks
 * by them: they outlive it. NULL: of any other. */
struct plait_members *plait_comm_take_members(struct plait_comm *world);
/* The cores of this rank, where more ranks of such a world than those share
 * them, 0 elsewhere; *ranks: how many there are. */
int plait_comm_shared_cores(const struct plait_comm *world, int *ranks);
/* This rank of such a world only waits from here on, at no processor's cost. */
void plait_comm_rest(struct plait_comm *world);
/* Every transfer of such a world fails from here on, also those of its peers,
 * as where one of them is lost; so does every one of NCCL's over it. By any
 * thread. */
void plait_comm_break(struct plait_comm *world);
/* Whether such a world has lost one, by what its peers have sent until now. By
 * any thread. */
bool plait_comm_look(struct plait_comm *world);
/* The world of those that are present; `m` outlives it. Collective; NULL with
 * err. */
struct plait_comm *plait_members_world(struct plait_members *m,
                                       const struct plait_ops *ops,
                                       struct plait_device *dev,
                                       double timeout_s,
                                       struct plait_error *err);

#endif

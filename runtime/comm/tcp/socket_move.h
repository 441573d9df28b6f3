/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_TCP_SOCKET_MOVE_H
#define PLAIT_RUNTIME_COMM_TCP_SOCKET_MOVE_H

#include "runtime/comm/backend.h"
#include "runtime/comm/shm/engine.h"
#include "runtime/comm/tcp/links.h"

/* A transfer over the links, step by step. Large collectives use rings, in
 * which a rank receives from one neighbour only. Small ones go from every rank
 * to every other at once or, with many ranks, in rounds that double what each
 * rank has. A broadcast uses a binomial tree. The order of additions depends
 * only on the number of ranks and the length, and all ranks get the same
 * bits. */

/* The ranks of a group, and what tells its messages from those of others. */
struct plait_socket_group {
    struct plait_links *links;
    const char *name;
    uint64_t id;
    int rank, size;
    const int *peer; /* [size] their ranks in the world */
};

struct plait_socket_move {
    const struct plait_socket_group *group;
    struct plait_transfer t;
    size_t each; /* bytes of an element */
    uint64_t tag;
    struct plait_entry *entry; /* of a collective, else NULL */
    bool failed;               /* valid when it is done */
    /* private: */
    bool (*next)(struct plait_socket_move *m);
    int step, pending;
    struct plait_links_part *parts;
    char *tmp;
};

/* The group's collective `call`, as others see it until it is left. */
void plait_socket_entry(struct plait_entry *entry,
                        const struct plait_socket_group *group,
                        const struct plait_call *call);
/* entry: of a collective, entered and left by the caller; messages have none.
 * -1: out of memory, and nothing is left to free. */
int plait_socket_begin(struct plait_socket_move *m,
                       const struct plait_socket_group *group,
                       const struct plait_transfer *t, size_t each,
                       struct plait_entry *entry);
enum plait_moved plait_socket_advance(struct plait_socket_move *m);
/* Frees the transfer's memory once it is done. */
void plait_socket_end(struct plait_socket_move *m);

#endif

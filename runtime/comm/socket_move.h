/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SOCKET_MOVE_H
#define PLAIT_RUNTIME_COMM_SOCKET_MOVE_H

#include "runtime/comm/comm_private.h"
#include "runtime/comm/engine.h"
#include "runtime/comm/links.h"

/* A transfer over the links, step by step: large ones by rings, in which each
 * rank hears its neighbour alone, small ones from every rank to every other at
 * once or, of many ranks, in rounds that double what each has, a broadcast by a
 * binomial tree. Sums are added in an order that depends
 * on the number of ranks and the length alone, and all ranks get the same bits.
 */

/* Which ranks, and how their messages are told from others'. */
struct plait_socket_group {
    struct plait_links *links;
    uint64_t id;
    int rank, size;
    const int *peer; /* [size] their ranks in the world */
};

struct plait_socket_move {
    const struct plait_socket_group *group;
    struct plait_transfer t;
    size_t each; /* bytes of an element */
    uint64_t tag;
    bool failed; /* when it is done */
    /* its own: */
    bool (*next)(struct plait_socket_move *m);
    int step, pending;
    struct plait_part *parts;
    char *tmp;
};

/* `number` counts the collectives of the group; messages do not need it. -1:
 * out of memory, and nothing is left. */
int plait_socket_begin(struct plait_socket_move *m,
                       const struct plait_socket_group *group,
                       const struct plait_transfer *t, size_t each,
                       uint64_t number);
enum plait_moved plait_socket_advance(struct plait_socket_move *m);
/* After it is done. */
void plait_socket_end(struct plait_socket_move *m);

#endif

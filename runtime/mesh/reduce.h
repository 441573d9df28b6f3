/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_REDUCE_H
#define PLAIT_REDUCE_H

#include <stdbool.h>

#include "runtime/parallel/parallel.h"

/* Sums of gradients over the ranks that share weights, on their way beside
 * the backward of the next blocks. A way has up to three legs:
 *
 *   whole         all-reduce
 *   hierarchical  reduce-scatter in the node, all-reduce across nodes of
 *                 each rank's part, all-gather in the node
 *   parts         reduce-scatter; where the parts have replicas, all-reduce
 *                 of the part over them
 *   parts by node reduce-scatter in the node, then across nodes of each
 *                 rank's share
 *
 * Groups of one rank are no leg. All legs work in place: a reduce-scatter
 * leaves each rank its part of what the leg before has left, in the group's
 * order. */
enum plait_leg { PLAIT_LEG_SUM, PLAIT_LEG_SCATTER, PLAIT_LEG_GATHER };

struct plait_route {
    int n;     /* legs */
    int parts; /* 1: the sum is wanted and made whole */
    int part;  /* this rank's */
    enum plait_leg leg[3];
    struct plait_comm *comm[3];
};

void plait_route_whole(struct plait_route *route, struct plait_comm *comm);
void plait_route_hierarchical(struct plait_route *route,
                              const struct plait_nodewise *nodes);
/* replicas: NULL where there are none */
void plait_route_parts(struct plait_route *route, struct plait_comm *comm,
                       struct plait_comm *replicas);
void plait_route_parts_by_node(struct plait_route *route,
                               const struct plait_nodewise *nodes);

struct plait_reduction {
    const struct plait_route *route;
    float *grad; /* [n], of it the whole or the part becomes the sum */
    void *wire;  /* [n] bf16 that travels instead; NULL: grad itself */
    size_t n;    /* a multiple of route->parts */
    int leg;     /* under way */
    struct plait_request *req;
};

/* Whether anything would travel; start() is for those alone. */
static inline bool plait_route_travels(const struct plait_route *route)
{
    return route->n > 0;
}

/* Start the first leg; *r is zeroed or finished. */
int plait_reduction_start(struct plait_parallel *par, struct plait_reduction *r,
                          const struct plait_route *route, float *grad,
                          void *wire, size_t n);
/* To be called now and then, at the same places on all ranks: on to the next
 * leg, if the one under way is not the last. */
int plait_reduction_advance(struct plait_parallel *par,
                            struct plait_reduction *r);
/* The sum is in grad for the work on the queue from here on; nothing where
 * nothing is under way. */
int plait_reduction_finish(struct plait_parallel *par,
                           struct plait_reduction *r);

#endif

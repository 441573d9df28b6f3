/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MESH_REDUCE_H
#define PLAIT_RUNTIME_MESH_REDUCE_H

#include <stdbool.h>

#include "runtime/mesh/mesh.h"

/* Sums of gradients over the ranks that share weights, made while the next
 * blocks' backward computes. The path of a sum is one to three collectives:
 *
 *   whole         all-reduce
 *   hierarchical  reduce-scatter intra-node, all-reduce inter-node of each
 *                 rank's part, all-gather intra-node
 *   parts         reduce-scatter; where the parts have replicas, all-reduce
 *                 of the part over them
 *   parts by node reduce-scatter intra-node, then inter-node of each rank's
 *                 part
 *
 * A step over a group of one rank is left out: there is nothing to send. All
 * steps work in place: a reduce-scatter leaves each rank its part of what the
 * step before has left, in the group's order. */
enum plait_reduction_op {
    PLAIT_REDUCTION_ALL_REDUCE,
    PLAIT_REDUCTION_REDUCE_SCATTER,
    PLAIT_REDUCTION_ALL_GATHER
};

struct plait_reduction_path {
    int nsteps;
    int parts; /* 1: every rank gets the whole sum */
    int part;  /* this rank's */
    enum plait_reduction_op op[3];
    struct plait_comm *comm[3];
};

void plait_reduction_path_whole(struct plait_reduction_path *path,
                                struct plait_comm *comm);
void plait_reduction_path_hierarchical(struct plait_reduction_path *path,
                                       const struct plait_hierarchy *nodes);
/* replicas: NULL where there are none */
void plait_reduction_path_parts(struct plait_reduction_path *path,
                                struct plait_comm *comm,
                                struct plait_comm *replicas);
void plait_reduction_path_parts_by_node(struct plait_reduction_path *path,
                                        const struct plait_hierarchy *nodes);

struct plait_reduction {
    const struct plait_reduction_path *path;
    float *grad; /* [n]; the whole or this rank's part becomes the sum */
    void *wire;  /* [n] bf16 copy that is sent; NULL: grad itself is */
    size_t n;    /* a multiple of path->parts */
    int step;    /* under way */
    struct plait_request *req;
};

/* false: all groups have one rank; plait_reduction_start() needs a step. */
static inline bool
plait_reduction_path_has_steps(const struct plait_reduction_path *path)
{
    return path->nsteps > 0;
}

/* Start the first step; *r is zeroed or finished. */
int plait_reduction_start(struct plait_mesh *mesh, struct plait_reduction *r,
                          const struct plait_reduction_path *path, float *grad,
                          void *wire, size_t n);
/* To be called now and then, at the same places on all ranks: on to the next
 * step, if the one under way is not the last. */
int plait_reduction_advance(struct plait_mesh *mesh, struct plait_reduction *r);
/* The sum is in grad for the work on the queue from here on; nothing where
 * nothing is under way. */
int plait_reduction_finish(struct plait_mesh *mesh, struct plait_reduction *r);

#endif

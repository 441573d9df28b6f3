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
 * steps work in place: a reduce-scatter leaves each rank its part, in the
 * group's order, of the range that the step before has left. */
enum plait_reduction_op {
    PLAIT_REDUCTION_ALL_REDUCE,
    PLAIT_REDUCTION_REDUCE_SCATTER,
    PLAIT_REDUCTION_ALL_GATHER
};

struct plait_reduction_path {
    int nsteps;
    int parts; /* 1: every rank gets the whole sum */
    int part;  /* this rank's part */
    enum plait_reduction_op op[3];
    struct plait_comm *comm[3];
};

void plait_reduction_path_whole(struct plait_reduction_path *path,
                                struct plait_comm *comm);
void plait_reduction_path_hierarchical(struct plait_reduction_path *path,
                                       const struct plait_hierarchy *nodes);
/* replicas: NULL: the parts have none */
void plait_reduction_path_parts(struct plait_reduction_path *path,
                                struct plait_comm *comm,
                                struct plait_comm *replicas);
void plait_reduction_path_parts_by_node(struct plait_reduction_path *path,
                                        const struct plait_hierarchy *nodes);

struct plait_reduction {
    const struct plait_reduction_path *path;
    float *grad; /* [n]; the sum replaces all of it or this rank's part */
    void *wire;  /* [n] bf16 copy to send; NULL: grad itself is sent */
    size_t n;    /* a multiple of path->parts */
    int step;    /* the step under way */
    struct plait_request *req;
};

/* False where all groups have one rank: plait_reduction_start() must not be
 * called then. */
static inline bool
plait_reduction_path_has_steps(const struct plait_reduction_path *path)
{
    return path->nsteps > 0;
}

/* Starts the first step. *r is zeroed or finished. */
int plait_reduction_start(struct plait_mesh *mesh, struct plait_reduction *r,
                          const struct plait_reduction_path *path, float *grad,
                          void *wire, size_t n);
/* Goes on to the next step, if there is one. Call it now and then, at the same
 * places on all ranks. */
int plait_reduction_advance(struct plait_mesh *mesh, struct plait_reduction *r);
/* Work queued from here on finds the sum in grad. Does nothing if no reduction
 * is under way. */
int plait_reduction_finish(struct plait_mesh *mesh, struct plait_reduction *r);

#endif

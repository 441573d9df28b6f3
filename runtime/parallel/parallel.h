/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PARALLEL_H
#define PLAIT_PARALLEL_H

#include "kernels/kernels.h"
#include "runtime/comm/comm.h"
#include "topology/config.h"
#include "topology/launch.h"
#include "topology/layout.h"

/* Where this process stands among the others: device, coordinate, groups.
 * Made once in train/, handed to everything below; it owns the
 * groups and nobody else creates or destroys one. */
struct plait_parallel {
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_queue *q; /* the compute queue */
    struct plait_layout layout;
    struct plait_coord coord;
    int rank, world_size;
    struct plait_comm *world;
    struct plait_comm *group[PLAIT_NGROUPS]; /* never NULL: self if alone */
    struct plait_comm *embedding; /* first and last stage, for tied
                                     embeddings; NULL where not a member and
                                     where pp is 1 */
    struct plait_trace *trace; /* NULL: none; not owned */
};

/* Splits the world, which stays the caller's, into groups; coordinates
 * follow from the rank. Collective. */
struct plait_parallel *plait_parallel_create(const struct plait_ops *ops,
                                             struct plait_device *dev,
                                             struct plait_comm *world,
                                             const struct plait_layout *layout,
                                             struct plait_error *err);
void plait_parallel_destroy(struct plait_parallel *par);

/* Note what all groups transfer in `trace`, which outlives par. */
void plait_parallel_set_trace(struct plait_parallel *par,
                              struct plait_trace *trace);

#endif

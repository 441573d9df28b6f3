/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PARALLEL_H
#define PLAIT_PARALLEL_H

#include "kernels/kernels.h"
#include "runtime/comm/comm.h"
#include "topology/config.h"
#include "topology/gpu_types.h"
#include "topology/launch.h"
#include "topology/layout.h"

/* A group whose members stand several to a node on several nodes, in two:
 * those on this node, and those that have this rank's place on every node.
 * Both NULL where it is not divided. */
struct plait_nodewise {
    struct plait_comm *inside, *across;
};

/* Which parts of a training step are recorded as graphs of the device and
 * then repeated, and why the others are not. */
struct plait_graphs {
    bool passes;   /* forward and backward of a micro-batch */
    bool last;     /* that of the last micro-batch of a step too */
    bool optim;    /* the norm of the gradients, and the optimizer */
    bool all;      /* nothing less will do */
    bool failed;   /* the device could not, though it should: now none is */
    char why[200]; /* what keeps a part from it; "" if nothing does */
};

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
    uint64_t node; /* equal for ranks on one node and for no others */
    struct plait_comm *world;
    struct plait_comm *group[PLAIT_NGROUPS]; /* self if alone; NULL where
                                                nobody needed it */
    struct plait_comm *embedding;            /* first and last stage, for tied
                                                embeddings; NULL where not a member and
                                                where pp is 1 */
    struct plait_nodewise dense, expert;     /* of DP_CP and of EXPERT_DP */
    struct plait_graphs graphs; /* none unless train/ chooses some */
    struct plait_gpu_type gpu;  /* what the cost model knows about devices
                                   and links here: the tables' figures until
                                   somebody knows better */
    struct plait_trace *trace;  /* NULL: none; not owned */
};

/* Splits the world, which stays the caller's, into the groups that every
 * model uses: TP, CP, PP and DP_CP; coordinates follow from the rank.
 * Collective. */
struct plait_parallel *plait_parallel_create(const struct plait_ops *ops,
                                             struct plait_device *dev,
                                             struct plait_comm *world,
                                             const struct plait_layout *layout,
                                             struct plait_error *err);
void plait_parallel_destroy(struct plait_parallel *par);

/* plait_comm_alloc() and its free, whose rules hold, for what the groups
 * transfer. */
void *plait_parallel_alloc(struct plait_parallel *par, size_t bytes);
void plait_parallel_free(struct plait_parallel *par, void *ptr);

/* Makes those of the groups (a bit for each, 1u << PLAIT_GROUP_EP) that are
 * not there yet: a communicator costs memory and time to connect, so none is
 * made before its first use. Splitting is collective over the world: all
 * ranks ask for the same groups in the same order. */
int plait_parallel_need(struct plait_parallel *par, unsigned groups,
                        struct plait_error *err);

/* Divides DP_CP and EXPERT_DP by nodes where `config` makes use of it.
 * `node` is equal for ranks on one node and for no others. Collective; what
 * the nodes do not allow is refused on all ranks alike. */
int plait_parallel_divide(struct plait_parallel *par,
                          const struct plait_parallel_config *config,
                          uint64_t node, struct plait_error *err);

/* Whether a sum of so many bytes over ranks of several nodes is to be made in
 * steps: what `how` says, or with auto what costs less (topology/cost.h). */
bool plait_nodewise_pays(const struct plait_parallel *par,
                         const struct plait_nodewise *nodes,
                         enum plait_all_reduce how, size_t bytes);

/* All communicators below the world, i from 0 to PLAIT_NCOMMS - 1: the
 * groups, the embedding's, the divided ones; NULL: not there. Their names in
 * the same order. */
#define PLAIT_NCOMMS (PLAIT_NGROUPS + 5)
struct plait_comm *plait_parallel_comm(const struct plait_parallel *par, int i);
extern const char *const plait_parallel_comm_names[PLAIT_NCOMMS];

/* Note what all groups transfer in `trace`, which outlives par. */
void plait_parallel_set_trace(struct plait_parallel *par,
                              struct plait_trace *trace);

#endif

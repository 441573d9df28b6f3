/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MESH_MESH_H
#define PLAIT_RUNTIME_MESH_MESH_H

#include "runtime/comm/comm.h"
#include "runtime/trace/activity.h"
#include "topology/job/gpu_types.h"
#include "topology/job/job_config.h"
#include "topology/layout/launch.h"
#include "topology/layout/layout.h"

/* A group with several members on each of several nodes, split in two: its
 * members on this node, and those at this rank's position in every node.
 * Both NULL where it is not split. plait_mesh_divide() says where an NVLink
 * domain of several counts as a node. */
struct plait_hierarchy {
    struct plait_comm *intra_node, *inter_node;
};

/* Which parts of a training step are captured as graphs of the device and
 * replayed, and why the other parts are not. */
struct plait_graphs {
    bool passes;    /* forward and backward of a micro-batch */
    bool last;      /* also those of the last micro-batch of a step */
    bool optim;     /* the norm of the gradients, and the optimizer */
    bool all;       /* train.graph on: the whole step or an error */
    bool failed;    /* a capture failed: nothing is captured from then on */
    bool transfers; /* transfers are captured too: ranks must agree */
    bool apart;     /* replicas train apart: each captures by itself */
    bool held;      /* neither capture nor replay now, as while matrix products
                       may change */
    bool ahead;     /* ZeRO 1 and 2 gather new weights during the next step */
    char why[200];  /* why a part is not captured; "" if all are, or where
                       another rank has the reason */
};

/* This process's device, coordinate and groups. Made once in train/ and passed
 * to everything below; it owns the groups, and nothing else creates or destroys
 * one. */
struct plait_mesh {
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_queue *q;     /* the compute queue */
    struct plait_queue *aside; /* for what follows a transfer beside it; NULL
                                  where transfers are the host's work */
    struct plait_layout layout;
    struct plait_coord coord;
    int rank, world_size;
    uint64_t node; /* equal for ranks on one node and for no others: they share
                      memory, files and a fate */
    uint64_t domain; /* equal for ranks that need no network between them and
                        for no others: those of a node, or of an NVLink domain
                        of several; plait_comm_set_network() */
    struct plait_comm *world;
    struct plait_comm *group[PLAIT_NGROUPS]; /* of one rank too; NULL until it
                                                is needed */
    /* For each kind of group that every model uses: in how many domains a group
     * is, at most. The same on all ranks. */
    int domains[PLAIT_NGROUPS];
    bool in_turn; /* plait_comm_overlaps() is false with a node's driver */
    int *members; /* [world_size] room for a group's ranks; private */
    /* First and last stage, for tied embeddings; NULL on other stages and where
     * pp is 1. */
    struct plait_comm *embedding;
    /* All ranks of this pipeline stage: tp * cp * dp. NULL until
     * plait_mesh_need_stage(). */
    struct plait_comm *stage;
    struct plait_hierarchy dense, expert; /* DP_CP and EXPERT_DP, split */
    struct plait_graphs graphs;   /* all false until plait_graphs_choose() */
    struct plait_gpu_type gpu;    /* figures of devices and links for the cost
                                     model: from its tables, unless train/ sets
                                     measured ones */
    struct plait_gpu_facts facts; /* of dev, once train/ has set them; all 0
                                     if it is no GPU */
    struct plait_listeners listeners; /* to what this rank does; not owned */
};

/* Splits the world, which the caller keeps, into the groups that every model
 * uses: TP, CP, PP and DP_CP. The coordinate follows from the rank.
 * Collective. */
struct plait_mesh *plait_mesh_create(const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     struct plait_comm *world,
                                     const struct plait_layout *layout,
                                     struct plait_error *err);
void plait_mesh_destroy(struct plait_mesh *mesh);

/* plait_comm_alloc() and plait_comm_free() for buffers that the groups
 * transfer; their rules hold. */
void *plait_mesh_alloc(struct plait_mesh *mesh, size_t bytes);
void plait_mesh_free(struct plait_mesh *mesh, void *ptr);

/* Creates those of the groups (one bit each, 1u << PLAIT_GROUP_EP) that do not
 * exist yet. A communicator costs memory and time to connect, so none is
 * created before it is needed. Splitting is collective over the world: all
 * ranks ask for the same groups in the same order. */
int plait_mesh_need(struct plait_mesh *mesh, unsigned groups,
                    struct plait_error *err);
/* The same for mesh->stage. */
int plait_mesh_need_stage(struct plait_mesh *mesh, struct plait_error *err);

/* Splits DP_CP and EXPERT_DP (mesh->dense, ->expert) where `config` makes use
 * of it: by mesh->node for parallel.shard_group node, else by mesh->domain.
 * Collective: if the ranks' places do not allow it, all ranks fail alike. */
int plait_mesh_divide(struct plait_mesh *mesh,
                      const struct plait_parallel_config *config,
                      struct plait_error *err);

/* Whether to sum so many bytes over ranks of several nodes in hierarchical
 * steps: as `how` demands or, with auto, if that costs less
 * (topology/plan/cost.h). */
bool plait_hierarchy_is_faster(const struct plait_mesh *mesh,
                               const struct plait_hierarchy *nodes,
                               enum plait_all_reduce how, size_t bytes);

/* The bucket size, in bytes, for the gradients of DP_CP: by the cost model
 * (topology/plan/cost.h), given the links between its ranks. */
size_t plait_mesh_bucket_bytes(const struct plait_mesh *mesh,
                               const struct plait_parallel_config *config);

/* All communicators below the world, i from 0 to PLAIT_NCOMMS - 1: the groups,
 * embedding, stage, and those split by nodes; NULL: does not exist. The names
 * are in the same order. */
#define PLAIT_NCOMMS (PLAIT_NGROUPS + 6)
struct plait_comm *plait_mesh_comm(const struct plait_mesh *mesh, int i);
extern const char *const plait_mesh_comm_names[PLAIT_NCOMMS];

/* Whether all ranks have started the same transfers: this rank's part of a sum
 * over the world that is 0 if so, and what is called, by all ranks, if it is
 * not (runtime/comm/compare.h). */
double plait_mesh_share(const struct plait_mesh *mesh);
int plait_mesh_tell(const struct plait_mesh *mesh);

/* Record the transfers of all groups in `trace`, which must outlive mesh. */
void plait_mesh_set_trace(struct plait_mesh *mesh, struct plait_trace *trace);

#endif

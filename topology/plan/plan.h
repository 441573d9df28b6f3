/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PLAN_PLAN_H
#define PLAIT_TOPOLOGY_PLAN_PLAN_H

#include "topology/api/plait/plan.h" /* enum plait_placement */
#include "topology/base/error.h"
#include "topology/fabric/fabric.h"
#include "topology/layout/layout.h"
#include "topology/node/node.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which task runs where, with which rank. Placement is free in the order of the
 * nodes, the order of the GPUs inside each node, and the rank order where the
 * user gave none; RANK / LOCAL_WORLD_SIZE = NODE_RANK and RANK %
 * LOCAL_WORLD_SIZE = LOCAL_RANK hold wherever nodes have equally many tasks. */

struct plait_traffic; /* traffic.h: bytes per axis per step */
struct plait_gpu_type;

struct plait_plan_request {
    struct plait_layout layout; /* may hold PLAIT_AUTO */
    int order_given;            /* the user chose layout.order */
    int order_free;             /* ... or leaves it to the planner */
    enum plait_placement placement;
    int nnodes;
    const char *const *nodes;            /* names, in Slurm's order */
    const int *tasks;                    /* per node, in the same order */
    const struct plait_fabric *fabric;   /* NULL: flat */
    const struct plait_node *node;       /* what a node looks like; NULL:
                                            only its number of tasks is known */
    const struct plait_traffic *traffic; /* NULL: defaults */
    const struct plait_gpu_type *gpu;    /* gpu_types.h; NULL: h100 */
};

struct plait_plan {
    struct plait_layout layout; /* resolved */
    enum plait_placement placement;
    int nnodes;
    int *node_rank;  /* [nnodes] node index (Slurm's order) -> NODE_RANK */
    int *first_rank; /* [nnodes] node index -> RANK of its LOCAL_RANK 0 */
    int *tasks;      /* [nnodes] tasks on that node */
    int *domain;     /* [nnodes] node index -> its NVLink domain, numbered from
                        1, as blocks of the fabric join them; 0: not known */
};

/* Whether the fabric has all nodes that are to be placed by it; else -1, with a
 * warning that names one, and the request has no fabric any more: the nodes
 * stay in Slurm's order. plait_plan_create() refuses what this was not asked
 * about. */
int plait_plan_check_fabric(struct plait_plan_request *request,
                            struct plait_error *warning);

/* Place the layout: choose the order of the nodes (place.c says how). The
 * rank order is kept as it is even where the user gave none: Megatron-LM and
 * others compute their groups from RANK alone, by that very order, and would
 * silently mix up a layout in another one. Where order_free says that the
 * trainer follows PLAIT_ORDER, the cheapest of the orders that begin with tp
 * is taken, layout.order unless another one costs less.
 * Deterministic: the same request gives the same plan on every host. */
struct plait_plan *plait_plan_create(const struct plait_plan_request *request,
                                     struct plait_error *err);
void plait_plan_destroy(struct plait_plan *plan);

/* Does a rank order that begins with another axis than tp put a tp group on
 * several nodes? plait_plan_create() refuses that, unless the placement is
 * linear: then -1, with a warning in err that names one of the nodes. `nodes`
 * are those of the request. */
int plait_plan_check_order(const struct plait_plan *plan,
                           const char *const *nodes, struct plait_error *err);

/* One printable line without blanks, made of runs, not lists: < 4 KiB for
 * 4,096 nodes. Caller frees. NULL with errno. */
char *plait_plan_encode(const struct plait_plan *plan);
/* Decode the whole plan; only tests need that. NULL, with the reason in err. */
struct plait_plan *plait_plan_decode(const char *text, struct plait_error *err);

/* The part of an encoded plan that node `index` (in Slurm's order) needs,
 * without decoding the rest. */
struct plait_plan_part {
    struct plait_layout layout;
    int nnodes;
    int node_rank, first_rank, tasks;
    int domain; /* as in the plan */
};
int plait_plan_decode_part(const char *text, int index,
                           struct plait_plan_part *part,
                           struct plait_error *err);

#ifdef __cplusplus
}
#endif
#endif

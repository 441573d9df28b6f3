/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/mesh/mesh.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/comm/compare.h"
#include "runtime/comm/consensus.h"
#include "topology/plan/cost.h"

enum {
    EMBEDDING = PLAIT_NGROUPS,
    STAGE,
    DENSE_INTRA_NODE,
    DENSE_INTER_NODE,
    EXPERT_INTRA_NODE,
    EXPERT_INTER_NODE,
};

#define USED_ALWAYS                                                       \
    (1u << PLAIT_GROUP_TP | 1u << PLAIT_GROUP_CP | 1u << PLAIT_GROUP_PP | \
     1u << PLAIT_GROUP_DP_CP)

const char *const plait_mesh_comm_names[PLAIT_NCOMMS] = {
    [PLAIT_GROUP_TP] = "tp",
    [PLAIT_GROUP_CP] = "cp",
    [PLAIT_GROUP_EP] = "ep",
    [PLAIT_GROUP_DP] = "dp",
    [PLAIT_GROUP_PP] = "pp",
    [PLAIT_GROUP_DP_CP] = "dp-cp",
    [PLAIT_GROUP_EXPERT_DP] = "expert-dp",
    [PLAIT_GROUP_TP_PP] = "tp-pp",
    [EMBEDDING] = "embedding",
    [STAGE] = "stage",
    [DENSE_INTRA_NODE] = "dp-cp-inside",
    [DENSE_INTER_NODE] = "dp-cp-across",
    [EXPERT_INTRA_NODE] = "expert-dp-inside",
    [EXPERT_INTER_NODE] = "expert-dp-across",
};

static const enum plait_comm_axis group_axis[PLAIT_NGROUPS] = {
    [PLAIT_GROUP_TP] = PLAIT_COMM_AXIS_TP,
    [PLAIT_GROUP_CP] = PLAIT_COMM_AXIS_CP,
    [PLAIT_GROUP_EP] = PLAIT_COMM_AXIS_EP,
    [PLAIT_GROUP_DP] = PLAIT_COMM_AXIS_DP,
    [PLAIT_GROUP_PP] = PLAIT_COMM_AXIS_PP,
    [PLAIT_GROUP_DP_CP] = PLAIT_COMM_AXIS_DP,
    [PLAIT_GROUP_EXPERT_DP] = PLAIT_COMM_AXIS_DP,
    [PLAIT_GROUP_TP_PP] = PLAIT_COMM_AXIS_NONE,
};

/* Groups of one kind are disjoint, so the lowest member serves as color. */
static int split_group(struct plait_mesh *mesh, enum plait_group group,
                       struct plait_error *err)
{
    plait_layout_group(&mesh->layout, group, mesh->rank, mesh->members);
    return plait_comm_split(
        mesh->world,
        &(struct plait_split){.color = mesh->members[0],
                              .key = mesh->rank,
                              .axis = group_axis[group],
                              .name = plait_mesh_comm_names[group]},
        &mesh->group[group], err);
}

static int split_embedding(struct plait_mesh *mesh, struct plait_error *err)
{
    int pp = mesh->layout.size[PLAIT_PP], at = mesh->coord.at[PLAIT_PP];
    struct plait_coord first = mesh->coord;
    int color = -1;

    if (pp == 1)
        return 0;
    first.at[PLAIT_PP] = 0;
    if (at == 0 || at == pp - 1)
        color = plait_layout_rank(&mesh->layout, &first);
    return plait_comm_split(
        mesh->world,
        &(struct plait_split){.color = color,
                              .key = at,
                              .axis = PLAIT_COMM_AXIS_EMBEDDING,
                              .name = plait_mesh_comm_names[EMBEDDING]},
        &mesh->embedding, err);
}

int plait_mesh_need(struct plait_mesh *mesh, unsigned groups,
                    struct plait_error *err)
{
    int rc = 0;

    for (int i = 0; i < PLAIT_NGROUPS && rc == 0; i++)
        if (groups & 1u << i && !mesh->group[i])
            rc = split_group(mesh, i, err);
    if (mesh->listeners.trace)
        plait_mesh_set_trace(mesh, mesh->listeners.trace);
    return rc;
}

int plait_mesh_need_stage(struct plait_mesh *mesh, struct plait_error *err)
{
    if (mesh->stage)
        return 0;
    if (plait_comm_split(
            mesh->world,
            &(struct plait_split){.color = mesh->coord.at[PLAIT_PP],
                                  .key = mesh->rank,
                                  .name = plait_mesh_comm_names[STAGE]},
            &mesh->stage, err) < 0)
        return -1;
    if (mesh->listeners.trace)
        plait_comm_set_trace(mesh->stage, mesh->listeners.trace);
    return 0;
}

static int driver_version(const struct plait_mesh *mesh)
{
    struct plait_gpu_facts facts;

    return mesh->ops->gpu_facts && mesh->ops->gpu_facts(0, &facts) == 0
               ? facts.driver
               : 0;
}

/* What all ranks must know alike, though nodes differ. */
static int agree_on_nodes(struct plait_mesh *mesh, struct plait_error *err)
{
    double most[PLAIT_NGROUPS + 1];

    for (int i = 0; i < PLAIT_NGROUPS; i++)
        most[i] = mesh->group[i] ? plait_comm_domains(mesh->group[i]) : 1;
    most[PLAIT_NGROUPS] =
        !plait_comm_overlaps(mesh->world, driver_version(mesh));
    if (plait_comm_host_all_reduce(mesh->world, most, PLAIT_NGROUPS + 1,
                                   PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(mesh->world));
    mesh->in_turn = most[PLAIT_NGROUPS] > 0;
    for (int i = 0; i < PLAIT_NGROUPS; i++)
        mesh->domains[i] = (int)most[i];
    return 0;
}

/* What this rank makes without the others. */
static int make_own(struct plait_mesh *mesh, const struct plait_ops *ops,
                    struct plait_device *dev, struct plait_comm *world,
                    const struct plait_layout *layout, struct plait_error *err)
{
    mesh->ops = mesh->listeners.ops = ops;
    mesh->dev = dev;
    mesh->world = world;
    mesh->layout = *layout;
    mesh->rank = plait_comm_rank(world);
    mesh->world_size = plait_comm_size(world);
    if (plait_layout_world(layout) != mesh->world_size) {
        plait_errorf(err, "the layout is for %d ranks, the world has %d",
                     plait_layout_world(layout), mesh->world_size);
        errno = EINVAL;
        return -1;
    }
    plait_layout_coord(layout, mesh->rank, &mesh->coord);
    plait_gpu_type_find(ops->gpu ? "h100" : "cpu", &mesh->gpu, err);
    mesh->members = calloc(mesh->world_size, sizeof(*mesh->members));
    if (!mesh->members)
        return plait_errorf(err, "out of memory");
    mesh->q = ops->queue_create(dev, 0);
    if (plait_comm_records(world))
        mesh->aside = ops->queue_create(dev, 0);
    if (!mesh->q || (plait_comm_records(world) && !mesh->aside))
        return plait_errorf(err, "cannot create the compute queue");
    return 0;
}

struct plait_mesh *plait_mesh_create(const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     struct plait_comm *world,
                                     const struct plait_layout *layout,
                                     struct plait_error *err)
{
    struct plait_mesh *mesh = calloc(1, sizeof(*mesh));
    int rc = mesh ? make_own(mesh, ops, dev, world, layout, err)
                  : plait_errorf(err, "out of memory");

    if (plait_error_consensus(world, rc, err) < 0 ||
        plait_mesh_need(mesh, USED_ALWAYS, err) < 0 ||
        split_embedding(mesh, err) < 0 || agree_on_nodes(mesh, err) < 0)
        goto error;
    return mesh;

error:
    plait_mesh_destroy(mesh);
    return NULL;
}

void *plait_mesh_alloc(struct plait_mesh *mesh, size_t bytes)
{
    return plait_comm_alloc(mesh->world, mesh->ops, mesh->dev, bytes);
}

void plait_mesh_free(struct plait_mesh *mesh, void *ptr)
{
    plait_comm_free(mesh->world, mesh->ops, mesh->dev, ptr);
}

/* -- nodes --------------------------------------------------------------- */

/* How many members of a group are on each of its nodes; 0 if that differs
 * between nodes or the members of a node are not consecutive. */
static int members_per_node(const int *members, int n, const uint64_t *node)
{
    int run = 1;

    while (run < n && node[members[run]] == node[members[0]])
        run++;
    if (n % run)
        return 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if ((node[members[i]] == node[members[j]]) != (i / run == j / run))
                return 0;
    return run;
}

/* The same for all groups of one kind; 0 if they differ. */
static int common_per_node(const struct plait_mesh *mesh,
                           enum plait_group group, const uint64_t *node)
{
    int common = 0, *members = mesh->members;

    for (int rank = 0; rank < mesh->world_size; rank++) {
        int n = plait_layout_group(&mesh->layout, group, rank, members), run;

        if (members[0] != rank)
            continue;
        run = members_per_node(members, n, node);
        if (run == 0 || (common && run != common))
            return 0;
        common = run;
    }
    return common;
}

static int divide_group(struct plait_mesh *mesh, enum plait_group group,
                        int run, struct plait_hierarchy *to,
                        struct plait_error *err)
{
    int first =
        group == PLAIT_GROUP_DP_CP ? DENSE_INTRA_NODE : EXPERT_INTRA_NODE;
    int i = plait_comm_rank(mesh->group[group]), *members = mesh->members;

    plait_layout_group(&mesh->layout, group, mesh->rank, members);
    if (plait_comm_split(
            mesh->world,
            &(struct plait_split){.color = members[i / run * run],
                                  .key = mesh->rank,
                                  .axis = PLAIT_COMM_AXIS_DP,
                                  .name = plait_mesh_comm_names[first]},
            &to->intra_node, err) < 0)
        return -1;
    return plait_comm_split(
        mesh->world,
        &(struct plait_split){.color = members[i % run],
                              .key = mesh->rank,
                              .axis = PLAIT_COMM_AXIS_DP,
                              .name = plait_mesh_comm_names[first + 1]},
        &to->inter_node, err);
}

/* Whether to split the dense group, which has `run` members on each node; -1 if
 * the configuration demands it and the nodes do not allow it. */
static int wants_dense(const struct plait_mesh *mesh,
                       const struct plait_parallel_config *c, int run,
                       struct plait_error *err)
{
    int n = plait_comm_size(mesh->group[PLAIT_GROUP_DP_CP]);
    bool node = c->shard_group == PLAIT_SHARD_NODE;
    const char *what =
        node ? "parallel.shard_group node" : "parallel.all_reduce hierarchical";
    const char *place = node ? "node" : "node or NVLink domain";

    if (run > 1 && run < n)
        return 1;
    if (!node && c->all_reduce == PLAIT_ALL_REDUCE_AUTO)
        return 0;
    if (node && run == n)
        return 0; /* all are on one node: nothing to split */
    errno = EINVAL;
    if (run == 0)
        return plait_errorf(err,
                            "%s: the %d ranks that share weights are not "
                            "spread evenly over each %s, in consecutive runs",
                            what, n, place);
    return plait_errorf(err,
                        "%s: each %s has %d of the %d ranks that share "
                        "weights; it must be more than one, on more than one "
                        "%s",
                        what, place, run, n, place);
}

static int divide_both(struct plait_mesh *mesh,
                       const struct plait_parallel_config *c,
                       const uint64_t *node, struct plait_error *err)
{
    int run = common_per_node(mesh, PLAIT_GROUP_DP_CP, node);
    int rc = wants_dense(mesh, c, run, err), n;

    if (rc <= 0)
        return rc;
    if (divide_group(mesh, PLAIT_GROUP_DP_CP, run, &mesh->dense, err) < 0)
        return -1;
    if (!mesh->group[PLAIT_GROUP_EXPERT_DP])
        return 0;
    /* With one copy of an expert per node there is no intra-node step: its
     * gradients are summed in a single step, and it is not sharded within the
     * node. */
    n = plait_comm_size(mesh->group[PLAIT_GROUP_EXPERT_DP]);
    run = common_per_node(mesh, PLAIT_GROUP_EXPERT_DP, node);
    if (run == 0 || run == n ||
        (run == 1 && c->shard_group != PLAIT_SHARD_NODE))
        return 0;
    return divide_group(mesh, PLAIT_GROUP_EXPERT_DP, run, &mesh->expert, err);
}

int plait_mesh_divide(struct plait_mesh *mesh,
                      const struct plait_parallel_config *config,
                      struct plait_error *err)
{
    /* Shards are kept on a node where the user says so; sums are faster where
     * their first step needs no network. */
    uint64_t mine =
        config->shard_group == PLAIT_SHARD_NODE ? mesh->node : mesh->domain;
    uint64_t *places;
    int rc;

    if (config->shard_group == PLAIT_SHARD_ALL &&
        (config->all_reduce == PLAIT_ALL_REDUCE_FLAT ||
         config->grad_sync == PLAIT_GRAD_NAIVE))
        return 0;
    places = plait_gather_values(mesh->world, &mine, sizeof(mine), err);
    rc = places ? divide_both(mesh, config, places, err) : -1;
    free(places);
    return rc;
}

bool plait_hierarchy_is_faster(const struct plait_mesh *mesh,
                               const struct plait_hierarchy *nodes,
                               enum plait_all_reduce how, size_t bytes)
{
    int local, nnodes;

    if (!nodes->intra_node || how == PLAIT_ALL_REDUCE_FLAT)
        return false;
    local = plait_comm_size(nodes->intra_node);
    nnodes = plait_comm_size(nodes->inter_node);
    if (local == 1 || nnodes == 1)
        return false;
    return how == PLAIT_ALL_REDUCE_HIERARCHICAL ||
           plait_cost_allreduce_hierarchical(local, nnodes, bytes, &mesh->gpu) <
               plait_cost_allreduce_flat(local, nnodes, bytes, &mesh->gpu);
}

size_t plait_mesh_bucket_bytes(const struct plait_mesh *mesh,
                               const struct plait_parallel_config *config)
{
    int ranks = plait_comm_size(mesh->group[PLAIT_GROUP_DP_CP]);
    int domains = mesh->domains[PLAIT_GROUP_DP_CP];

    return (size_t)plait_cost_bucket(config->bucket_mib, ranks / domains,
                                     domains, &mesh->gpu);
}

/* -- all communicators --------------------------------------------------- */

struct plait_comm *plait_mesh_comm(const struct plait_mesh *mesh, int i)
{
    switch (i) {
    case EMBEDDING:
        return mesh->embedding;
    case STAGE:
        return mesh->stage;
    case DENSE_INTRA_NODE:
        return mesh->dense.intra_node;
    case DENSE_INTER_NODE:
        return mesh->dense.inter_node;
    case EXPERT_INTRA_NODE:
        return mesh->expert.intra_node;
    case EXPERT_INTER_NODE:
        return mesh->expert.inter_node;
    default:
        return mesh->group[i];
    }
}

void plait_mesh_set_trace(struct plait_mesh *mesh, struct plait_trace *trace)
{
    mesh->listeners.trace = trace;
    for (int i = 0; i < PLAIT_NCOMMS; i++)
        if (plait_mesh_comm(mesh, i))
            plait_comm_set_trace(plait_mesh_comm(mesh, i), trace);
}

void plait_mesh_destroy(struct plait_mesh *mesh)
{
    int saved = errno;

    if (!mesh)
        return;
    for (int i = PLAIT_NCOMMS - 1; i >= 0; i--)
        plait_comm_destroy(plait_mesh_comm(mesh, i));
    if (mesh->q)
        mesh->ops->queue_destroy(mesh->q);
    if (mesh->aside)
        mesh->ops->queue_destroy(mesh->aside);
    free(mesh->members);
    free(mesh);
    errno = saved;
}

/* The world comes last. */
static void list_comms(const struct plait_mesh *mesh,
                       struct plait_comm *comms[PLAIT_NCOMMS + 1])
{
    for (int i = 0; i < PLAIT_NCOMMS; i++)
        comms[i] = plait_mesh_comm(mesh, i);
    comms[PLAIT_NCOMMS] = mesh->world;
}

double plait_mesh_share(const struct plait_mesh *mesh)
{
    struct plait_comm *comms[PLAIT_NCOMMS + 1];

    list_comms(mesh, comms);
    return plait_compare_share(comms, PLAIT_NCOMMS + 1);
}

int plait_mesh_tell(const struct plait_mesh *mesh)
{
    struct plait_comm *comms[PLAIT_NCOMMS + 1];

    list_comms(mesh, comms);
    return plait_compare_tell(mesh->world, comms, PLAIT_NCOMMS + 1);
}

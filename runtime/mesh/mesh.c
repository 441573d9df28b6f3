/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/parallel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cost.h"

enum {
    EMBEDDING = PLAIT_NGROUPS,
    DENSE_INSIDE,
    DENSE_ACROSS,
    EXPERT_INSIDE,
    EXPERT_ACROSS,
};

#define USED_ALWAYS                                                       \
    (1u << PLAIT_GROUP_TP | 1u << PLAIT_GROUP_CP | 1u << PLAIT_GROUP_PP | \
     1u << PLAIT_GROUP_DP_CP)

const char *const plait_parallel_comm_names[PLAIT_NCOMMS] = {
    [PLAIT_GROUP_TP] = "tp",
    [PLAIT_GROUP_CP] = "cp",
    [PLAIT_GROUP_EP] = "ep",
    [PLAIT_GROUP_DP] = "dp",
    [PLAIT_GROUP_PP] = "pp",
    [PLAIT_GROUP_DP_CP] = "dp-cp",
    [PLAIT_GROUP_EXPERT_DP] = "expert-dp",
    [PLAIT_GROUP_TP_PP] = "tp-pp",
    [EMBEDDING] = "embedding",
    [DENSE_INSIDE] = "dp-cp-inside",
    [DENSE_ACROSS] = "dp-cp-across",
    [EXPERT_INSIDE] = "expert-dp-inside",
    [EXPERT_ACROSS] = "expert-dp-across",
};

/* Groups of one kind are disjoint: the lowest member names the group. */
static int split_group(struct plait_parallel *par, enum plait_group group,
                       int *members, struct plait_error *err)
{
    plait_layout_group(&par->layout, group, par->rank, members);
    return plait_comm_split(par->world, members[0], par->rank,
                            plait_parallel_comm_names[group],
                            &par->group[group], err);
}

static int split_embedding(struct plait_parallel *par, struct plait_error *err)
{
    int pp = par->layout.size[PLAIT_PP], at = par->coord.at[PLAIT_PP];
    struct plait_coord first = par->coord;
    int color = -1;

    if (pp == 1)
        return 0;
    first.at[PLAIT_PP] = 0;
    if (at == 0 || at == pp - 1)
        color = plait_layout_rank(&par->layout, &first);
    return plait_comm_split(par->world, color, at,
                            plait_parallel_comm_names[EMBEDDING],
                            &par->embedding, err);
}

int plait_parallel_need(struct plait_parallel *par, unsigned groups,
                        struct plait_error *err)
{
    int *members = calloc(par->world_size, sizeof(*members)), rc = 0, i;

    if (!members)
        return plait_errorf(err, "out of memory");
    for (i = 0; i < PLAIT_NGROUPS && rc == 0; i++)
        if (groups & 1u << i && !par->group[i])
            rc = split_group(par, i, members, err);
    free(members);
    if (par->trace)
        plait_parallel_set_trace(par, par->trace);
    return rc;
}

struct plait_parallel *plait_parallel_create(const struct plait_ops *ops,
                                             struct plait_device *dev,
                                             struct plait_comm *world,
                                             const struct plait_layout *layout,
                                             struct plait_error *err)
{
    struct plait_parallel *par = calloc(1, sizeof(*par));

    if (!par) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    par->ops = ops;
    par->dev = dev;
    par->world = world;
    par->layout = *layout;
    par->rank = plait_comm_rank(world);
    par->world_size = plait_comm_size(world);
    if (plait_layout_world(layout) != par->world_size) {
        plait_errorf(err, "the layout is for %d ranks, the world has %d",
                     plait_layout_world(layout), par->world_size);
        errno = EINVAL;
        goto error;
    }
    plait_layout_coord(layout, par->rank, &par->coord);
    plait_gpu_type_find(ops->gpu ? "h100" : "cpu", &par->gpu, err);
    par->q = ops->queue_create(dev, 0);
    if (!par->q) {
        plait_errorf(err, "cannot create the compute queue");
        goto error;
    }
    if (plait_parallel_need(par, USED_ALWAYS, err) < 0 ||
        split_embedding(par, err) < 0)
        goto error;
    return par;

error:
    plait_parallel_destroy(par);
    return NULL;
}

void *plait_parallel_alloc(struct plait_parallel *par, size_t bytes)
{
    return plait_comm_alloc(par->world, par->ops, par->dev, bytes);
}

void plait_parallel_free(struct plait_parallel *par, void *ptr)
{
    plait_comm_free(par->world, par->ops, par->dev, ptr);
}

/* -- nodes --------------------------------------------------------------- */

/* How many members of a group stand on each of its nodes, one node's behind
 * the other's; 0 if they do not. */
static int run_of(const int *members, int n, const uint64_t *node)
{
    int run = 1, i, j;

    while (run < n && node[members[run]] == node[members[0]])
        run++;
    if (n % run)
        return 0;
    for (i = 0; i < n; i++)
        for (j = 0; j < i; j++)
            if ((node[members[i]] == node[members[j]]) != (i / run == j / run))
                return 0;
    return run;
}

/* The same for all groups of one kind; 0 if they differ. */
static int common_run(const struct plait_parallel *par, enum plait_group group,
                      const uint64_t *node, int *members)
{
    int common = 0, rank;

    for (rank = 0; rank < par->world_size; rank++) {
        int n = plait_layout_group(&par->layout, group, rank, members), run;

        if (members[0] != rank)
            continue;
        run = run_of(members, n, node);
        if (run == 0 || (common && run != common))
            return 0;
        common = run;
    }
    return common;
}

static int divide(struct plait_parallel *par, enum plait_group group, int run,
                  int *members, struct plait_nodewise *to,
                  struct plait_error *err)
{
    int first = group == PLAIT_GROUP_DP_CP ? DENSE_INSIDE : EXPERT_INSIDE;
    int i = plait_comm_rank(par->group[group]);

    plait_layout_group(&par->layout, group, par->rank, members);
    if (plait_comm_split(par->world, members[i / run * run], par->rank,
                         plait_parallel_comm_names[first], &to->inside,
                         err) < 0)
        return -1;
    return plait_comm_split(par->world, members[i % run], par->rank,
                            plait_parallel_comm_names[first + 1], &to->across,
                            err);
}

/* Whether to divide the dense group, whose nodes have `run` of its members
 * each; -1 if that is asked for and impossible. */
static int wants_dense(const struct plait_parallel *par,
                       const struct plait_parallel_config *c, int run,
                       struct plait_error *err)
{
    int n = plait_comm_size(par->group[PLAIT_GROUP_DP_CP]);
    bool node = c->shard_group == PLAIT_SHARD_NODE;
    const char *what =
        node ? "parallel.shard_group node" : "parallel.all_reduce hierarchical";

    if (run > 1 && run < n)
        return 1;
    if (!node && c->all_reduce == PLAIT_ALL_REDUCE_AUTO)
        return 0;
    if (node && run == n)
        return 0; /* all are on one node */
    errno = EINVAL;
    if (run == 0)
        return plait_errorf(err,
                            "%s: the %d ranks that share weights are not "
                            "spread evenly over the nodes, one node's behind "
                            "the other's",
                            what, n);
    return plait_errorf(err,
                        "%s: each node has %d of the %d ranks that share "
                        "weights; it wants more than one, on more than one "
                        "node",
                        what, run, n);
}

static int divide_both(struct plait_parallel *par,
                       const struct plait_parallel_config *c,
                       const uint64_t *node, int *members,
                       struct plait_error *err)
{
    int run = common_run(par, PLAIT_GROUP_DP_CP, node, members);
    int rc = wants_dense(par, c, run, err), n;

    if (rc <= 0)
        return rc;
    if (divide(par, PLAIT_GROUP_DP_CP, run, members, &par->dense, err) < 0)
        return -1;
    if (!par->group[PLAIT_GROUP_EXPERT_DP])
        return 0;
    /* Experts that no node has twice are not sharded there, or summed in one
     * step. */
    n = plait_comm_size(par->group[PLAIT_GROUP_EXPERT_DP]);
    run = common_run(par, PLAIT_GROUP_EXPERT_DP, node, members);
    if (run == 0 || run == n ||
        (run == 1 && c->shard_group != PLAIT_SHARD_NODE))
        return 0;
    return divide(par, PLAIT_GROUP_EXPERT_DP, run, members, &par->expert, err);
}

int plait_parallel_divide(struct plait_parallel *par,
                          const struct plait_parallel_config *config,
                          uint64_t node, struct plait_error *err)
{
    uint64_t *nodes;
    int *members, rc = -1;

    if (config->shard_group == PLAIT_SHARD_ALL &&
        (config->all_reduce == PLAIT_ALL_REDUCE_FLAT ||
         config->grad_sync == PLAIT_GRAD_NAIVE))
        return 0;
    nodes = calloc(par->world_size, sizeof(*nodes));
    members = calloc(par->world_size, sizeof(*members));
    if (!nodes || !members)
        plait_errorf(err, "out of memory");
    else if (plait_comm_host_all_gather(par->world, &node, nodes,
                                        sizeof(node)) < 0)
        plait_errorf(err, "%s", plait_comm_error(par->world));
    else
        rc = divide_both(par, config, nodes, members, err);
    free(nodes);
    free(members);
    return rc;
}

bool plait_nodewise_pays(const struct plait_parallel *par,
                         const struct plait_nodewise *nodes,
                         enum plait_all_reduce how, size_t bytes)
{
    int inside, across;

    if (!nodes->inside || how == PLAIT_ALL_REDUCE_FLAT)
        return false;
    inside = plait_comm_size(nodes->inside);
    across = plait_comm_size(nodes->across);
    if (inside == 1 || across == 1)
        return false;
    return how == PLAIT_ALL_REDUCE_HIERARCHICAL ||
           plait_cost_allreduce_hierarchical(inside, across, bytes, &par->gpu) <
               plait_cost_allreduce_flat(inside, across, bytes, &par->gpu);
}

/* -- all of them --------------------------------------------------------- */

struct plait_comm *plait_parallel_comm(const struct plait_parallel *par, int i)
{
    switch (i) {
    case EMBEDDING:
        return par->embedding;
    case DENSE_INSIDE:
        return par->dense.inside;
    case DENSE_ACROSS:
        return par->dense.across;
    case EXPERT_INSIDE:
        return par->expert.inside;
    case EXPERT_ACROSS:
        return par->expert.across;
    default:
        return par->group[i];
    }
}

void plait_parallel_set_trace(struct plait_parallel *par,
                              struct plait_trace *trace)
{
    int i;

    par->trace = trace;
    for (i = 0; i < PLAIT_NCOMMS; i++)
        if (plait_parallel_comm(par, i))
            plait_comm_set_trace(plait_parallel_comm(par, i), trace);
}

void plait_parallel_destroy(struct plait_parallel *par)
{
    int saved = errno;
    int i;

    if (!par)
        return;
    for (i = PLAIT_NCOMMS - 1; i >= 0; i--)
        plait_comm_destroy(plait_parallel_comm(par, i));
    if (par->q)
        par->ops->queue_destroy(par->q);
    free(par);
    errno = saved;
}

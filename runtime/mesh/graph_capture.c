/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/mesh/graph_capture.h"

#include <errno.h>
#include <stdio.h>

#include "kernels/kernels.h"
#include "topology/job/recorded.h"

/* Recording is refused here, before the first step, for every reason that
 * follows from the configuration; the device's own refusal is found out when it
 * records. Either way all ranks must do the same: a rank that replays a graph
 * with transfers and one that queues them would wait for each other if the
 * order of their transfers differed. So after a capture the ranks that transfer
 * with each other agree whether all have a graph, and one rank without it makes
 * all give theirs up for good.
 *
 * A capture itself sends nothing, but the communicators have counted its
 * transfers. They are taken out of the counters and added at each replay. */

static const char no_graphs[] = "the device has no graphs";
static const char next_step[] = "weights are gathered during the next step";

/* Whether transfers of several groups may be under way at once: of several
 * axes, or of one that has several groups. Gradients are summed over cp, too,
 * beside its rings; over several nodes in two groups; those of experts in their
 * own. */
static bool has_groups(const struct plait_mesh *mesh)
{
    const int *size = mesh->layout.size;

    if (size[PLAIT_CP] > 1 ||
        (size[PLAIT_DP] > 1 &&
         (mesh->dense.intra_node || mesh->expert.intra_node ||
          mesh->group[PLAIT_GROUP_EXPERT_DP])))
        return true;
    return (size[PLAIT_TP] > 1) + (size[PLAIT_DP] > 1) + (size[PLAIT_PP] > 1) >
           1;
}

/* Why transfers cannot be captured, NULL if they can. A graph may start
 * transfers that have no fixed order in another order on each rank, and the
 * ranks would wait for each other. */
static const char *against_transfers(const struct plait_job_config *c,
                                     const struct plait_mesh *mesh)
{
    if (!plait_comm_records(mesh->world))
        return "MPI transfers are made by the host";
    if (c->train.graph != PLAIT_GRAPH_ON && has_groups(mesh) &&
        !plait_comm_orders(mesh->world))
        return "without NCCL_LAUNCH_ORDER_IMPLICIT, of NCCL 2.26, transfers of "
               "several groups have no order in a graph";
    return NULL;
}

/* Why forward and backward cannot be captured, NULL if they can. */
static const char *against_passes(const struct plait_job_config *c,
                                  const struct plait_mesh *mesh)
{
    const int *size = mesh->layout.size;
    const char *why = plait_recorded_not(c, &mesh->layout);

    if (!mesh->ops->graph_begin)
        return no_graphs;
    if (why)
        return why;
    if (size[PLAIT_TP] > 1 || size[PLAIT_CP] > 1 || c->parallel.zero > 1)
        return against_transfers(c, mesh);
    return NULL;
}

static const char *against_optim(const struct plait_job_config *c,
                                 const struct plait_mesh *mesh)
{
    if (!mesh->ops->graph_begin)
        return no_graphs;
    if (c->parallel.offload)
        return plait_recorded_not(c, &mesh->layout);
    if (plait_optimizers[c->optim.kind].uneven)
        return "the host takes part in the optimizer's step";
    if (c->parallel.zero)
        return against_transfers(c, mesh);
    return NULL;
}

/* The last micro-batch differs from the others: gradients are reduced during
 * its backward. */
static const char *against_last(const struct plait_job_config *c,
                                const struct plait_mesh *mesh)
{
    if (mesh->layout.size[PLAIT_DP] == 1)
        return NULL;
    if (plait_sync_parts(&c->sync))
        return "the replicas' meetings are not recorded";
    if (c->train.graph != PLAIT_GRAPH_ON && has_groups(mesh) && mesh->in_turn)
        return "before NCCL 2.27.3 and CUDA 12.9's driver the transfers of a "
               "graph come one after another, and gradients are not reduced "
               "beside the backward";
    return against_transfers(c, mesh);
}

/* Whether they do, and something moves the data meanwhile. */
static bool gathers_ahead(const struct plait_job_config *c,
                          const struct plait_mesh *mesh,
                          struct plait_recorded recorded)
{
    int unit = c->train.micro_batch * mesh->layout.size[PLAIT_DP];

    return plait_comm_advances(mesh->world) &&
           plait_gathers_ahead(c, &mesh->layout, &mesh->gpu,
                               c->train.global_batch / unit, recorded);
}

int plait_graphs_choose(struct plait_graphs *graphs,
                        const struct plait_job_config *config,
                        const struct plait_mesh *mesh, struct plait_error *err)
{
    const char *passes = against_passes(config, mesh);
    const char *last = passes ? passes : against_last(config, mesh);
    bool off = config->train.graph == PLAIT_GRAPH_OFF;
    bool ahead = gathers_ahead(
        config, mesh, (struct plait_recorded){!passes && !off, !last && !off});
    const char *optim = ahead ? next_step : against_optim(config, mesh);
    const char *why = last ? last : optim;
    const char *also = last && optim && last != optim ? optim : NULL;

    *graphs =
        (struct plait_graphs){.why = "train.graph is off", .ahead = ahead};
    if (off)
        return 0;
    if (config->train.graph == PLAIT_GRAPH_ON && why) {
        errno = ENOTSUP;
        return plait_errorf(err,
                            "train.graph on: %s; with auto, plait records "
                            "what it can",
                            why);
    }
    graphs->passes = !passes;
    graphs->last = !last;
    graphs->optim = !optim;
    graphs->all = config->train.graph == PLAIT_GRAPH_ON;
    graphs->transfers = mesh->world_size > 1 && plait_comm_records(mesh->world);
    graphs->apart = plait_sync_parts(&config->sync);
    snprintf(graphs->why, sizeof(graphs->why), "%s%s%s", why ? why : "",
             also ? "; " : "", also ? also : "");
    return 0;
}

/* -- statistics ---------------------------------------------------------- */

static struct plait_comm *comm_at(const struct plait_mesh *mesh, int i)
{
    return i < PLAIT_NCOMMS ? plait_mesh_comm(mesh, i) : mesh->world;
}

static void read_counts(const struct plait_mesh *mesh,
                        struct plait_comm_stats *counts)
{
    for (int i = 0; i <= PLAIT_NCOMMS; i++)
        if (comm_at(mesh, i))
            plait_comm_stats(comm_at(mesh, i), &counts[i]);
}

/* `sent` becomes what was counted since `before`. The counters are set back, as
 * the capture itself has sent nothing. */
static void take_counts(const struct plait_mesh *mesh,
                        const struct plait_comm_stats *before,
                        struct plait_comm_stats *sent)
{
    read_counts(mesh, sent);
    for (int i = 0; i <= PLAIT_NCOMMS; i++) {
        if (!comm_at(mesh, i))
            continue;
        sent[i].calls -= before[i].calls;
        sent[i].bytes -= before[i].bytes;
        sent[i].tally = plait_tally_since(before[i].tally, sent[i].tally);
        plait_comm_set_stats(comm_at(mesh, i), &before[i]);
    }
}

static void count_replay(const struct plait_mesh *mesh,
                         const struct plait_comm_stats *sent)
{
    for (int i = 0; i <= PLAIT_NCOMMS; i++) {
        struct plait_comm *comm = comm_at(mesh, i);
        struct plait_comm_stats now;

        if (!comm || sent[i].calls == 0)
            continue;
        plait_comm_stats(comm, &now);
        now.calls += sent[i].calls;
        now.bytes += sent[i].bytes;
        now.tally = plait_tally_join(now.tally, sent[i].tally);
        plait_comm_set_stats(comm, &now);
    }
}

/* -- capture and replay -------------------------------------------------- */

/* *first: the lowest rank of those asked that could not capture, -1: none. All
 * ranks of a transfer must agree on whether it is part of a graph. Stages need
 * not agree, nor replicas that train apart: they capture at different times,
 * and no graph transfers between them. */
static int find_failure(const struct plait_mesh *mesh, bool failed, int *first)
{
    int others = mesh->graphs.apart ? PLAIT_GROUP_CP : PLAIT_GROUP_DP_CP;
    double most = failed ? mesh->world_size - mesh->rank : 0;

    if (mesh->graphs.transfers &&
        (plait_comm_host_all_reduce(mesh->group[PLAIT_GROUP_TP], &most, 1,
                                    PLAIT_MAX) < 0 ||
         plait_comm_host_all_reduce(mesh->group[others], &most, 1, PLAIT_MAX) <
             0))
        return -1;
    *first = most > 0 ? mesh->world_size - (int)most : -1;
    return 0;
}

static int capture_work(struct plait_graph_capture *capture,
                        struct plait_mesh *mesh, int (*work)(void *arg),
                        void *arg)
{
    struct plait_comm_stats before[PLAIT_NCOMMS + 1];
    const char *why = NULL;
    bool all = mesh->graphs.all;
    int rc, first;

    if (mesh->ops->graph_begin(mesh->q) < 0)
        return -1;
    if (capture->keep)
        capture->keep(arg);
    read_counts(mesh, before);
    rc = work(arg);
    take_counts(mesh, before, capture->sent);
    capture->graph = mesh->ops->graph_end(mesh->q, &why);
    if (capture->graph && rc < 0)
        plait_graph_capture_reset(capture, mesh); /* `work` failed half-way */
    if (find_failure(mesh, !capture->graph, &first) < 0)
        return -1;
    if (first < 0 || (rc < 0 && !why))
        return rc;
    plait_graph_capture_reset(capture, mesh);
    if (capture->restore)
        capture->restore(arg);
    mesh->graphs = (struct plait_graphs){
        .failed = true, .all = all, .ahead = mesh->graphs.ahead};
    /* One rank says why; with `all` each fails with a reason. */
    if (first == mesh->rank || all)
        snprintf(mesh->graphs.why, sizeof(mesh->graphs.why), "%s",
                 why ? why : "another rank cannot record them");
    errno = ENOTSUP;
    return all ? -1 : 0;
}

int plait_graph_capture_run(struct plait_graph_capture *capture,
                            struct plait_mesh *mesh, int (*work)(void *arg),
                            void *arg)
{
    if (!capture->warm || mesh->graphs.held) {
        capture->warm = true;
        return work(arg);
    }
    if (!capture->graph && capture_work(capture, mesh, work, arg) < 0)
        return -1;
    if (!capture->graph)
        return work(arg);
    count_replay(mesh, capture->sent);
    return mesh->ops->graph_run(mesh->q, capture->graph);
}

void plait_graph_capture_reset(struct plait_graph_capture *capture,
                               const struct plait_mesh *mesh)
{
    if (capture->graph)
        mesh->ops->graph_destroy(capture->graph);
    capture->graph = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/replay.h"

#include <errno.h>
#include <stdio.h>

static const char no_graphs[] = "the device has no graphs";
static const char host[] = "with parallel.offload the host takes part";

/* Why transfers are not recorded, NULL if they are: `what` they are for,
 * unless all is asked for and the device makes them by itself. */
static const char *against_transfers(const struct plait_config *c,
                                     const struct plait_parallel *par,
                                     const char *what)
{
    if (c->train.graph != PLAIT_GRAPH_ON)
        return what;
    return plait_comm_records(par->world)
               ? NULL
               : "ranks that talk by MPI do so through the host";
}

/* What stands in the way of recording a forward and a backward: NULL if
 * nothing does. A graph has no place for what happens on the host. */
static const char *against_passes(const struct plait_config *c,
                                  const struct plait_parallel *par)
{
    const int *size = par->layout.size;

    if (!par->ops->graph_begin)
        return no_graphs;
    if (size[PLAIT_PP] > 1)
        return "pipeline stages talk between forward and backward";
    if (c->parallel.offload)
        return host;
    if (c->model.experts)
        return "the host counts the tokens of each expert";
    if (c->parallel.schedule == PLAIT_SCHEDULE_GPIPE ||
        c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1)
        return "in parallel.schedule gpipe and zb-h1 a backward does not "
               "follow its forward";
    if (size[PLAIT_TP] > 1 || size[PLAIT_CP] > 1)
        return against_transfers(c, par,
                                 "tensor and context parallel ranks "
                                 "talk inside each layer");
    if (c->parallel.zero > 1)
        return against_transfers(c, par,
                                 "ZeRO 2 and 3 talk inside forward and "
                                 "backward");
    return NULL;
}

static const char *against_optim(const struct plait_config *c,
                                 const struct plait_parallel *par)
{
    if (!par->ops->graph_begin)
        return no_graphs;
    if (c->parallel.offload)
        return host;
    if (c->parallel.zero)
        return against_transfers(c, par,
                                 "ZeRO gathers weights while the "
                                 "optimizer runs");
    return NULL;
}

/* Gradients leave during the last backward of a step. */
static const char *against_last(const struct plait_config *c,
                                const struct plait_parallel *par)
{
    if (par->layout.size[PLAIT_DP] == 1)
        return NULL;
    return against_transfers(c, par,
                             "gradients travel during the last "
                             "backward of a step");
}

int plait_graphs_choose(struct plait_graphs *graphs,
                        const struct plait_config *config,
                        const struct plait_parallel *par,
                        struct plait_error *err)
{
    const char *passes = against_passes(config, par);
    const char *last = passes ? passes : against_last(config, par);
    const char *optim = against_optim(config, par);
    const char *why = last ? last : optim;
    const char *also = last && optim && last != optim ? optim : NULL;

    *graphs = (struct plait_graphs){.why = "train.graph is off"};
    if (config->train.graph == PLAIT_GRAPH_OFF)
        return 0;
    if (config->train.graph == PLAIT_GRAPH_ON && why) {
        errno = ENOTSUP;
        return plait_errorf(err,
                            "train.graph on: %s; auto records what can "
                            "be",
                            why);
    }
    graphs->passes = !passes;
    graphs->last = !last;
    graphs->optim = !optim;
    graphs->all = config->train.graph == PLAIT_GRAPH_ON;
    snprintf(graphs->why, sizeof(graphs->why), "%s%s%s", why ? why : "",
             also ? "; " : "", also ? also : "");
    return 0;
}

/* -- what is counted ----------------------------------------------------- */

static void read_counts(const struct plait_parallel *par,
                        struct plait_comm_stats counts[PLAIT_NCOMMS])
{
    for (int i = 0; i < PLAIT_NCOMMS; i++)
        if (plait_parallel_comm(par, i))
            plait_comm_stats(plait_parallel_comm(par, i), &counts[i]);
}

/* `sent` becomes what was counted since `before`, and counts no longer. */
static void take_counts(const struct plait_parallel *par,
                        const struct plait_comm_stats before[PLAIT_NCOMMS],
                        struct plait_comm_stats sent[PLAIT_NCOMMS])
{
    read_counts(par, sent);
    for (int i = 0; i < PLAIT_NCOMMS; i++) {
        if (!plait_parallel_comm(par, i))
            continue;
        sent[i].calls -= before[i].calls;
        sent[i].bytes -= before[i].bytes;
        plait_comm_set_stats(plait_parallel_comm(par, i), &before[i]);
    }
}

static void count(const struct plait_parallel *par,
                  const struct plait_comm_stats sent[PLAIT_NCOMMS])
{
    for (int i = 0; i < PLAIT_NCOMMS; i++) {
        struct plait_comm *comm = plait_parallel_comm(par, i);
        struct plait_comm_stats now;

        if (!comm || sent[i].calls == 0)
            continue;
        plait_comm_stats(comm, &now);
        now.calls += sent[i].calls;
        now.bytes += sent[i].bytes;
        plait_comm_set_stats(comm, &now);
    }
}

/* -- recordings ---------------------------------------------------------- */

static int record(struct plait_replay *replay, struct plait_parallel *par,
                  int (*work)(void *arg), void *arg)
{
    struct plait_comm_stats before[PLAIT_NCOMMS];
    const char *why = NULL;
    bool all = par->graphs.all;
    int rc;

    if (par->ops->graph_begin(par->q) < 0)
        return -1;
    read_counts(par, before);
    rc = work(arg);
    take_counts(par, before, replay->sent);
    replay->graph = par->ops->graph_end(par->q, &why);
    if (replay->graph && rc < 0)
        plait_replay_forget(replay, par); /* it is not all there */
    if (!why)
        return rc;
    par->graphs = (struct plait_graphs){.failed = true, .all = all};
    snprintf(par->graphs.why, sizeof(par->graphs.why), "%s", why);
    errno = ENOTSUP;
    return all ? -1 : 0;
}

int plait_replay_run(struct plait_replay *replay, struct plait_parallel *par,
                     int (*work)(void *arg), void *arg)
{
    if (!replay->warm) {
        replay->warm = true;
        return work(arg);
    }
    if (!replay->graph && record(replay, par, work, arg) < 0)
        return -1;
    if (!replay->graph)
        return work(arg);
    count(par, replay->sent);
    return par->ops->graph_run(par->q, replay->graph);
}

void plait_replay_forget(struct plait_replay *replay,
                         const struct plait_parallel *par)
{
    if (replay->graph)
        par->ops->graph_destroy(replay->graph);
    replay->graph = NULL;
}

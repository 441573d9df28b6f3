/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/comm over NCCL on three emulated GPUs, with a process each, one of
 * which is killed: the transfers of the others end, they tear down the old
 * world and make another one on the same devices. */
#include "config.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "kernels/kernels.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/members.h"
#include "socket_launch.h"
#include "tap.h"

enum { RANKS = 3, N = 1000, BYTES = N * 4 };

static const struct plait_ops *ops;
static struct plait_device *dev;
static struct plait_queue *q;
static struct plait_members *members;
static struct plait_comm *all, *world, *tp, *dp;
static float *a, *b, host[N];
static int rank;

/* Makes NCCL's world from `all`, and two groups of all ranks. */
static int open_groups(const struct plait_launch *launch,
                       struct plait_error *err)
{
    struct plait_comm *hosts = NULL;

    world = tp = dp = NULL;
    if (plait_comm_split(
            all, &(struct plait_split){.color = 0, .key = 0, .name = "world"},
            &hosts, err) < 0)
        return -1;
    world = plait_comm_over(hosts, PLAIT_COMM_NCCL, ops, dev, launch, err);
    if (!world) {
        plait_comm_destroy(hosts);
        return -1;
    }
    return plait_comm_split(world,
                            &(struct plait_split){.color = 0,
                                                  .key = 0,
                                                  .axis = PLAIT_COMM_AXIS_TP,
                                                  .name = "tp"},
                            &tp, err) |
           plait_comm_split(world,
                            &(struct plait_split){.color = 0,
                                                  .key = 0,
                                                  .axis = PLAIT_COMM_AXIS_DP,
                                                  .name = "dp"},
                            &dp, err);
}

static void close_groups(void)
{
    plait_comm_destroy(tp);
    plait_comm_destroy(dp);
    plait_comm_destroy(world);
    plait_comm_destroy(all);
}

static int reduce_twice(void)
{
    return plait_comm_all_reduce(dp,
                                 &(struct plait_buffers){a, b, N, PLAIT_F32},
                                 PLAIT_SUM, q, NULL) |
           plait_comm_all_reduce(tp,
                                 &(struct plait_buffers){b, b, N, PLAIT_F32},
                                 PLAIT_SUM, q, NULL);
}

/* Whether all sums are those of so many ranks, each of which has ones. */
static int holds(int ranks)
{
    memset(host, 0, sizeof(host));
    if (ops->to_host(q, host, b, BYTES) < 0)
        return 0;
    for (int i = 0; i < N; i++)
        if (host[i] != (float)(ranks * ranks))
            return 0;
    return 1;
}

static int open_all(int port)
{
    struct plait_launch launch = launch_at(rank, RANKS, port);
    struct plait_error err = {""};
    const char *why = "";
    struct plait_comm *met;

    ops = plait_ops_cuda(&why);
    dev = ops ? ops->device_create(rank, 0) : NULL;
    q = dev ? ops->queue_create(dev, 0) : NULL;
    if (!ok(q != NULL, "an emulated GPU: %s", why))
        return -1;
    a = ops->alloc(dev, BYTES);
    b = ops->alloc(dev, BYTES);
    for (int i = 0; i < N; i++)
        host[i] = 1;
    met = plait_comm_meet(PLAIT_COMM_SOCKET, &launch, &err);
    all =
        met ? plait_comm_over(met, PLAIT_COMM_SOCKET, NULL, NULL, &launch, &err)
            : NULL;
    members = all ? plait_comm_take_members(all) : NULL;
    return ok(members && ops->to_device(q, a, host, BYTES) == 0 &&
                  open_groups(&launch, &err) == 0,
              "a world of three, and two groups: %s", err.text)
               ? 0
               : -1;
}

/* Runs a recorded graph, so that it is the device that waits for the lost
 * rank. */
static void lose_one(void)
{
    struct plait_graph *graph;
    const char *why = "";
    int rc = ops->graph_begin(q) | reduce_twice();

    graph = ops->graph_end(q, &why);
    if (!ok(rc == 0 && graph && ops->graph_run(q, graph) == 0 && holds(RANKS),
            "recorded, and run: %s", why))
        return;
    plait_comm_barrier(world);
    if (rank == RANKS - 1)
        raise(SIGKILL);
    rc = ops->graph_run(q, graph) | ops->queue_sync(q);
    ok(rc == 0 && plait_comm_lost(world),
       "one is killed: what waits for it ends, and that it is lost is known");
    ok(reduce_twice() != 0, "no more transfers are started");
    ops->graph_destroy(graph);
}

static void go_on(void)
{
    const struct plait_patience patience = {
        .stopped = 1, .away = 10, .slow = 60};
    struct plait_launch launch = launch_at(rank, RANKS - 1, 1);
    struct plait_error err = {""};

    plait_comm_abort(all);
    close_groups();
    all = NULL;
    if (plait_members_regroup(members, &patience, &err) == 0)
        all = plait_members_world(members, NULL, NULL, 20, &err);
    ok(all && open_groups(&launch, &err) == 0, "the others make a world: %s",
       err.text);
    ok(tp && dp && reduce_twice() == 0 && holds(RANKS - 1),
       "whose transfers are right");
    close_groups();
}

static int run_rank(int port)
{
    if (open_all(port) < 0)
        return done_testing();
    lose_one();
    go_on();
    plait_members_destroy(members);
    ops->free(dev, a);
    ops->free(dev, b);
    ok(plait_queue_error(q) == NULL, "nothing is reported");
    ops->queue_destroy(q);
    ops->device_destroy(dev);
    return done_testing();
}

/* The output of ranks other than 0 is discarded. */
static pid_t start_rank(int number, int port)
{
    pid_t child = fork();

    if (child != 0)
        return child;
    rank = number;
    setenv("OMPI_COMM_WORLD_RANK", "1", 1); /* no EMULATED_CALLS */
    if (freopen("/dev/null", "w", stdout) == NULL)
        _exit(99);
    exit(run_rank(port));
}

int main(void)
{
    int port = 0, fd = plait_rendezvous_listen(&port), status, rc;
    pid_t other, killed;

    close(fd);
    setenv("EMULATED_GPUS", "3", 1);
    other = start_rank(1, port);
    killed = start_rank(2, port);
    rc = run_rank(port);
    if (waitpid(other, &status, 0) != other || status != 0)
        rc = 1;
    waitpid(killed, &status, 0);
    return rc != 0 || !WIFSIGNALED(status);
}

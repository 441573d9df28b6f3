/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL between two emulated GPUs that does not do what it is asked: what a rank
 * says, and that it ends soon. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "kernels/kernels.h"
#include "runtime/comm/comm.h"
#include "socket_launch.h"
#include "tap.h"

enum { RANKS = 2, N = 1000, BYTES = N * 4, MOST_S = 15 };

/* What goes wrong, on which ranks (bit mask), and what the ranks say. */
struct trial {
    const char *what, *how;
    unsigned ranks;
    const char *says[RANKS];
};

static const struct trial trials[] = {
    {"a world that NCCL never connects",
     "never-connect",
     3,
     {"NCCL has not connected ranks 0, 1 of 2: rank 0: world: NCCL: connect: "
      "has not ended for 1 s",
      "rank 1: nothing"}},
    {"one rank of it, whose abort never ends either",
     "never-connect never-abort",
     2,
     {"rank 0: nothing",
      "NCCL has not connected rank 1 of 2: rank 1: world: NCCL: connect"}},
    {"a group that is never split off",
     "never-split",
     3,
     {"world: NCCL: split: has not ended for 1 s",
      "world: NCCL: split: has not ended for 1 s"}},
    {"memory that is never registered",
     "never-register",
     3,
     {"tp: NCCL: register memory (PLAIT_NCCL_WINDOWS=0 does without): has "
      "not ended for 1 s",
      "tp: NCCL: register memory"}},
    {"a link that fails while a kernel waits",
     "link",
     3,
     {"rank 0: tp: NCCL: all-reduce: remote process exited or there was a "
      "network error: mlx5_0: completion with status 12",
      "rank 1: tp: NCCL: all-reduce: remote process exited"}},
    {"none", "", 0, {"rank 0: well", "rank 1: well"}},
};

static char link_file[4096];
static const struct plait_ops *ops;
static struct plait_device *dev;
static struct plait_queue *q;

static int sum(struct plait_comm *tp, float *p)
{
    return plait_comm_all_reduce(
        tp, &(struct plait_buffers){p, p, N, PLAIT_F32}, PLAIT_SUM, q, NULL);
}

/* All-reduces in memory that NCCL may register, one of them of a graph, where
 * it is the device that waits. The link fails before that. */
static int reduce(struct plait_comm *world, struct plait_comm *tp,
                  const char *how)
{
    float *p = plait_comm_alloc(world, ops, dev, BYTES);
    struct plait_graph *graph;
    const char *why = "";
    int rc = ops->fill_zero(q, p, BYTES) | sum(tp, p);

    if (rc != 0)
        return rc;
    rc = ops->graph_begin(q) | sum(tp, p);
    graph = ops->graph_end(q, &why);
    rc |= graph ? ops->queue_sync(q) | plait_comm_barrier(world) : -1;
    if (rc == 0 && strcmp(how, "link") == 0)
        close(open(link_file, O_CREAT | O_WRONLY, 0600));
    if (rc == 0)
        rc = ops->graph_run(q, graph) | ops->queue_sync(q);
    ops->graph_destroy(graph);
    return rc | plait_comm_progress(tp);
}

static void report(int rank, const char *text)
{
    printf("rank %d: %s\n", rank, *text ? text : "nothing");
    fflush(stdout);
    _exit(0);
}

static void run_rank(const struct trial *t, int rank, int port)
{
    struct plait_launch launch = launch_at(rank, RANKS, port);
    struct plait_comm *world = NULL, *tp = NULL;
    struct plait_error err = {""};
    const char *why = "";

    ops = plait_ops_cuda(&why);
    dev = ops ? ops->device_create(rank, 0) : NULL;
    q = dev ? ops->queue_create(dev, 0) : NULL;
    if (!q)
        report(rank, why);
    world = plait_comm_create(PLAIT_COMM_NCCL, ops, dev, &launch, &err);
    if (!world ||
        plait_comm_split(world,
                         &(struct plait_split){.color = 0,
                                               .key = rank,
                                               .axis = PLAIT_COMM_AXIS_TP,
                                               .name = "tp"},
                         &tp, &err) < 0)
        report(rank, err.text);
    report(rank,
           reduce(world, tp, t->how) == 0 ? "well" : plait_comm_error(tp));
}

static pid_t start_rank(const struct trial *t, int rank, int port, int out)
{
    pid_t child = fork();

    if (child != 0)
        return child;
    alarm(MOST_S);
    dup2(out, STDOUT_FILENO);
    if (t->ranks >> rank & 1)
        setenv("EMULATED_NCCL", t->how, 1);
    if (strcmp(t->how, "link") == 0)
        setenv("EMULATED_LINK", link_file, 1);
    run_rank(t, rank, port);
    _exit(99);
}

static void try(const struct trial *t)
{
    int port = 0, fd = plait_rendezvous_listen(&port), ends[2], status;
    char text[2000] = "";
    size_t used = 0;
    ssize_t n;
    pid_t child[RANKS];
    bool ended = true;

    close(fd);
    unlink(link_file);
    if (pipe(ends) < 0)
        abort();
    for (int i = 0; i < RANKS; i++)
        child[i] = start_rank(t, i, port, ends[1]);
    close(ends[1]);
    while ((n = read(ends[0], text + used, sizeof(text) - 1 - used)) > 0)
        used += (size_t)n;
    close(ends[0]);
    for (int i = 0; i < RANKS; i++)
        ended &= waitpid(child[i], &status, 0) == child[i] && status == 0;
    ok(ended, "%s: both ranks end", t->what);
    for (int i = 0; i < RANKS; i++)
        if (!ok(strstr(text, t->says[i]) != NULL, "rank %d says so", i))
            printf("# wanted: %s\n# said: %s\n", t->says[i], text);
}

int main(void)
{
    const char *folder = getenv("TMPDIR");
    int fd;

    snprintf(link_file, sizeof(link_file), "%s/plait-waits.XXXXXX",
             folder ? folder : "/tmp");
    fd = mkstemp(link_file);

    close(fd);
    setenv("EMULATED_GPUS", "2", 1);
    setenv("PLAIT_NCCL_TIMEOUT", "1", 1);
    unsetenv("NCCL_SOCKET_IFNAME");
    fflush(stdout);
    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++)
        try(&trials[i]);
    unlink(link_file);
    return done_testing();
}

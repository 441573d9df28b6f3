/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/comm over NCCL on two emulated GPUs, with a process each. An argument
 * names a mistake for rank 1 to make: "orders", it enters two groups in the
 * other order; "counts", one of its transfers has another size. */
#define _GNU_SOURCE
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "kernels/products.h"
#include "runtime/comm/comm.h"
#include "socket_launch.h"
#include "tap.h"

enum { N = 3000, BYTES = N * 4 };

static const struct plait_ops *ops;
static struct plait_device *dev;
static struct plait_queue *q;
static struct plait_comm *world, *tp, *dp;
static float *a, *b, *c, *own, host[2 * N];
static int rank;
static const char *mistake = "";

static int set(float *p, float value)
{
    for (int i = 0; i < N; i++)
        host[i] = value + (float)i;
    return ops->to_device(q, p, host, BYTES);
}

/* Whether p[i] is value + slope * i for all i. */
static int holds(const float *p, float value, float slope)
{
    memset(host, 0, sizeof(host));
    if (ops->to_host(q, host, p, BYTES) < 0)
        return 0;
    for (int i = 0; i < N; i++)
        if (host[i] != value + slope * (float)i)
            return 0;
    return 1;
}

/* All-reduces in two groups at once, beside computing. */
static int overlap(void)
{
    struct plait_request *one = NULL, *two = NULL;
    int other = rank == 1 && strcmp(mistake, "orders") == 0, rc;
    size_t n = rank == 1 && strcmp(mistake, "counts") == 0 ? N - 1 : N;

    rc = plait_comm_all_reduce(
        other ? dp : tp,
        &(struct plait_buffers){a, other ? c : b, n, PLAIT_F32}, PLAIT_SUM, q,
        &one);
    rc |= plait_comm_all_reduce(
        other ? tp : dp,
        &(struct plait_buffers){a, other ? b : c, N, PLAIT_F32}, PLAIT_SUM, q,
        &two);
    rc |= ops->add(q, &(struct plait_add){.out = own, .a = a, .b = a, .n = N});
    rc |= one != NULL ? plait_comm_wait(&one, q) : -1;
    rc |= two != NULL ? plait_comm_wait(&two, q) : -1;
    return rc |
           ops->add(q, &(struct plait_add){.out = a, .a = b, .b = c, .n = N});
}

static void overlap_check(void)
{
    int rc = set(a, (float)rank) | overlap();

    ok(rc == 0 && holds(a, 2, 4), "two groups at once: %s",
       plait_comm_error(tp));
}

static void recording_check(void)
{
    const char *why = "";
    struct plait_graph *graph;
    int rc = set(a, (float)rank) | ops->graph_begin(q) | overlap();

    graph = ops->graph_end(q, &why);
    if (!ok(rc == 0 && graph != NULL, "... recorded: %s", why))
        return;
    rc = ops->graph_run(q, graph) | ops->graph_run(q, graph);
    ok(rc == 0 && holds(a, 8, 16), "... and run twice");
    ops->graph_destroy(graph);
}

static int multiply(void)
{
    return ops->linear_backward_weight(
        q, &(struct plait_linear_dw){.type = PLAIT_F32,
                                     .N = 32,
                                     .O = 16,
                                     .C = 16,
                                     .dout.x = a,
                                     .inp.x = a,
                                     .dw = own});
}

/* How many of the lines have the words; NULL: all. */
static int lines_with(const char *lines, const char *words)
{
    int n = 0;

    for (const char *end; (end = strchr(lines, '\n')) != NULL; lines = end + 1)
        n += words == NULL ||
             memmem(lines, (size_t)(end - lines), words, strlen(words)) != NULL;
    return n;
}

/* Products leave room to collectives while these may run, and only then. */
static void room_check(void)
{
    struct plait_request *one = NULL, *two = NULL;
    struct plait_buffers buffers = {a, b, N, PLAIT_F32};
    int rc = set(a, (float)rank);
    char *lines;

    free(ops->products->wanted(dev));
    rc |= plait_comm_all_reduce(dp, &buffers, PLAIT_SUM, q, &one) | multiply();
    buffers.recv = c;
    rc |= plait_comm_all_reduce(tp, &buffers, PLAIT_SUM, q, &two) | multiply();
    rc |= one != NULL ? plait_comm_wait(&one, q) : -1;
    rc |= two != NULL ? plait_comm_wait(&two, q) : -1;
    rc |= multiply();
    lines = ops->products->wanted(dev);
    ok(rc == 0 && lines != NULL && lines_with(lines, NULL) == 3 &&
           lines_with(lines, " room 16") == 1 &&
           lines_with(lines, " room 40") == 1,
       "products leave room to the transfers beside them: %s",
       lines != NULL ? lines : "no products");
    free(lines);
}

/* Ranks that send to each other at the same time, which needs an NCCL group. */
static void messages_check(void)
{
    struct plait_request *out = NULL, *in = NULL;
    int rc = set(a, (float)rank);

    rc |= plait_comm_send(
        dp, &(struct plait_buffers){.send = a, .n = N, .type = PLAIT_F32},
        !rank, 0, q, &out);
    rc |= plait_comm_recv(
        dp, &(struct plait_buffers){.recv = b, .n = N, .type = PLAIT_F32},
        !rank, 0, q, &in);
    rc |= plait_comm_progress(dp);
    rc |= in != NULL ? plait_comm_wait(&in, q) : -1;
    rc |= out != NULL ? plait_comm_wait(&out, q) : -1;
    rc |= ops->fill_zero(q, a, BYTES);
    ok(rc == 0 && holds(b, (float)!rank, 1), "messages cross");
}

/* Registered memory, and transfers that no request is made for. */
static void memory_check(void)
{
    float *p = plait_comm_alloc(world, ops, dev, 2 * BYTES);
    int rc = set(p + rank * N, (float)rank);

    rc |= plait_comm_all_gather(
        dp, &(struct plait_buffers){p + rank * N, p, N, PLAIT_F32}, q, NULL);
    ok(rc == 0 && holds(p, 0, 1) && holds(p + N, 1, 1),
       "all-gather in place, in registered memory: %s", plait_comm_error(dp));
    rc = plait_comm_reduce_scatter(
        tp, &(struct plait_buffers){p, p + rank * N, N, PLAIT_F32}, PLAIT_SUM,
        q, NULL);
    ok(rc == 0 && holds(p + rank * N, rank == 0 ? 0 : 2, 2),
       "reduce-scatter likewise");
    plait_comm_free(world, ops, dev, p);
}

static int open_all(int port)
{
    struct plait_launch launch = launch_at(rank, 2, port);
    struct plait_error err = {""};
    const char *why = "";
    int rc = 0;

    ops = plait_ops_cuda(&why);
    dev = ops != NULL ? ops->device_create(rank, 0) : NULL;
    q = dev != NULL ? ops->queue_create(dev, 0) : NULL;
    if (!ok(q != NULL, "an emulated GPU: %s", why))
        return -1;
    a = ops->alloc(dev, BYTES);
    b = ops->alloc(dev, BYTES);
    c = ops->alloc(dev, BYTES);
    own = ops->alloc(dev, BYTES);
    world = plait_comm_create(PLAIT_COMM_NCCL, ops, dev, &launch, &err);
    if (world != NULL)
        rc = plait_comm_split(world,
                              &(struct plait_split){.color = 0,
                                                    .key = rank,
                                                    .axis = PLAIT_COMM_AXIS_TP,
                                                    .name = "tp"},
                              &tp, &err) |
             plait_comm_split(world,
                              &(struct plait_split){.color = 0,
                                                    .key = rank,
                                                    .axis = PLAIT_COMM_AXIS_DP,
                                                    .name = "dp"},
                              &dp, &err);
    return ok(world != NULL && rc == 0, "a world of two, and two groups: %s",
              err.text)
               ? 0
               : -1;
}

static int run_rank(int port)
{
    if (open_all(port) < 0)
        return done_testing();
    overlap_check();
    if (*mistake == '\0') {
        recording_check();
        messages_check();
        room_check();
        memory_check();
    }
    plait_comm_destroy(tp);
    plait_comm_destroy(dp);
    plait_comm_destroy(world);
    ops->free(dev, a);
    ops->free(dev, b);
    ops->free(dev, c);
    ops->free(dev, own);
    ok(plait_queue_error(q) == NULL, "nothing is reported");
    ops->queue_destroy(q);
    ops->device_destroy(dev);
    return done_testing();
}

/* Rank 1's TAP lines are turned into comments. */
int main(int argc, char **argv)
{
    int port = 0, fd = plait_rendezvous_listen(&port), status, rc;
    pid_t child;

    close(fd);
    mistake = argc > 1 ? argv[1] : "";
    setenv("EMULATED_GPUS", "2", 1);
    child = fork();
    if (child == 0) {
        rank = 1;
        setenv("OMPI_COMM_WORLD_RANK", "1", 1); /* no EMULATED_CALLS */
        if (freopen("/dev/null", "w", stdout) == NULL)
            return 99;
        return run_rank(port);
    }
    rc = run_rank(port);
    if (waitpid(child, &status, 0) != child || status != 0)
        rc = 1;
    return rc;
}

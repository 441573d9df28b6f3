/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL with the one GPU that a test machine has: a world of one rank, whose
 * operations still all go through NCCL. */
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/comm/comm.h"
#include "tap.h"

#define N 100000

static const struct plait_ops *ops;
static struct plait_device *dev;
static struct plait_queue *q;
static float host[N], back[N], *a, *b;

/* Sets a to `host`, b to zeros. */
static void reset(void)
{
    ops->to_device(q, a, host, sizeof(host));
    ops->fill_zero(q, b, sizeof(host));
}

static int holds(const float *buffer, const char *what)
{
    memset(back, 0, sizeof(back));
    ops->to_host(q, back, buffer, sizeof(back));
    return ok(memcmp(host, back, sizeof(host)) == 0, "%s", what);
}

static void test_collectives(struct plait_comm *c)
{
    struct plait_request *req = NULL;

    reset();
    plait_comm_all_reduce(c, &(struct plait_buffers){a, b, N, PLAIT_F32},
                          PLAIT_SUM, q, NULL);
    holds(b, "all-reduce");
    plait_comm_all_reduce(c, &(struct plait_buffers){a, a, N, PLAIT_F32},
                          PLAIT_MAX, q, &req);
    ok(req != NULL && plait_comm_wait(&req, q) == 0 && req == NULL,
       "a request is waited for");
    holds(a, "all-reduce in place");
    reset();
    plait_comm_reduce_scatter(c, &(struct plait_buffers){a, b, N, PLAIT_F32},
                              PLAIT_SUM, q, NULL);
    holds(b, "reduce-scatter");
    reset();
    plait_comm_all_gather(c, &(struct plait_buffers){a, b, N, PLAIT_F32}, q,
                          NULL);
    holds(b, "all-gather");
    plait_comm_broadcast(c, &(struct plait_buffers){a, a, N, PLAIT_F32}, 0, q,
                         NULL);
    holds(a, "broadcast");
}

/* A message to itself, which needs both halves in one NCCL group. */
static void test_messages(struct plait_comm *c)
{
    struct plait_request *req[2] = {NULL, NULL};

    reset();
    plait_comm_send(
        c, &(struct plait_buffers){.send = a, .n = N, .type = PLAIT_F32}, 0, 0,
        q, &req[0]);
    plait_comm_recv(
        c, &(struct plait_buffers){.recv = b, .n = N, .type = PLAIT_F32}, 0, 0,
        q, &req[1]);
    plait_comm_progress(c);
    ok(plait_comm_wait(&req[1], q) == 0 && plait_comm_wait(&req[0], q) == 0,
       "send and receive side by side");
    holds(b, "the message arrives");
}

/* Memory that NCCL allocates can be used like the device's. */
static void test_memory(struct plait_comm *c)
{
    size_t before, now, after;
    float *own;

    ops->memory(dev, &before, NULL);
    own = plait_comm_alloc(c, ops, dev, sizeof(host));
    ops->memory(dev, &now, NULL);
    if (!ok(own != NULL && now - before == sizeof(host),
            "memory to transfer from is counted"))
        return;
    memset(back, 1, sizeof(back));
    plait_comm_all_reduce(c, &(struct plait_buffers){own, own, N, PLAIT_F32},
                          PLAIT_SUM, q, NULL);
    ops->to_host(q, back, own, sizeof(back));
    ok(back[0] == 0 && memcmp(back, back + 1, sizeof(back) - 4) == 0,
       "and zeroed");
    reset();
    plait_comm_all_reduce(c, &(struct plait_buffers){a, own, N, PLAIT_F32},
                          PLAIT_SUM, q, NULL);
    holds(own, "it is transferred to");
    plait_comm_free(c, ops, dev, own);
    plait_comm_free(c, ops, dev, NULL);
    ops->memory(dev, &after, NULL);
    ok(after == before, "and given back");
}

/* Transfers beside the queue, and recorded on it as part of a graph. */
static void test_recorded(struct plait_comm *c)
{
    struct plait_request *req = NULL;
    struct plait_graph *graph;
    const char *why = "";

    reset();
    if (!ok(ops->graph_begin(q) == 0, "a recording begins"))
        return;
    plait_comm_all_reduce(c, &(struct plait_buffers){a, b, N, PLAIT_F32},
                          PLAIT_SUM, q, &req);
    plait_comm_wait(&req, q);
    ops->fill_zero(q, a, sizeof(host));
    plait_comm_all_gather(c, &(struct plait_buffers){b, a, N, PLAIT_F32}, q,
                          NULL);
    graph = ops->graph_end(q, &why);
    if (!ok(graph != NULL, "transfers are recorded: %s", why))
        return;
    for (int i = 0; i < 2; i++) {
        reset();
        ops->graph_run(q, graph);
        holds(b, "the graph makes the first");
        holds(a, "and the second");
    }
    ops->graph_destroy(graph);
    reset();
    plait_comm_all_reduce(c, &(struct plait_buffers){a, b, N, PLAIT_F32},
                          PLAIT_SUM, q, NULL);
    holds(b, "and one behind it is made as ever");
}

int main(void)
{
    struct plait_launch launch = {.world_size = 1, .nnodes = 1};
    struct plait_error err = {""};
    const char *why = NULL;
    struct plait_comm *c;

    ops = plait_ops_cuda(&why);
    if (ops == NULL)
        return skip_all(why);
    dev = ops->device_create(0, 0);
    q = dev != NULL ? ops->queue_create(dev, 0) : NULL;
    if (!ok(q != NULL, "a queue"))
        return done_testing();
    a = ops->alloc(dev, sizeof(host));
    b = ops->alloc(dev, sizeof(host));
    for (int i = 0; i < N; i++)
        host[i] = (float)(i % 1009) - 500;
    c = plait_comm_create(PLAIT_COMM_NCCL, ops, dev, &launch, &err);
    if (ok(c != NULL, "a world of one rank: %s", err.text)) {
        test_collectives(c);
        test_messages(c);
        test_memory(c);
        test_recorded(c);
        ok(plait_comm_barrier(c) == 0, "barrier");
    }
    plait_comm_destroy(c);
    ok(plait_queue_error(q) == NULL, "the queue has not failed");
    ops->free(dev, a);
    ops->free(dev, b);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
    return done_testing();
}

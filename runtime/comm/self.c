/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

/* A group of one: every collective is a copy, and there are no messages. */

static void self_destroy(struct plait_comm *comm)
{
    free(comm);
}

static int self_run(struct plait_comm *comm, const struct plait_transfer *t,
                    struct plait_queue *q, struct plait_request **req)
{
    size_t bytes = t->n * plait_dtype_size(t->type);

    (void)req; /* done at once: no request is left */
    if (t->kind == PLAIT_SEND || t->kind == PLAIT_RECV)
        return plait_comm_fail(comm, "%s: a group of one rank has no peer %d",
                               comm->name, t->peer);
    if (t->send == t->recv)
        return 0;
    if (!plait_comm_on_host(comm))
        return comm->ops->copy(q, t->recv, t->send, bytes);
    memcpy(t->recv, t->send, bytes);
    return 0;
}

static int self_wait(struct plait_request *req, struct plait_queue *q)
{
    (void)req;
    (void)q;
    return 0;
}

static int self_barrier(struct plait_comm *comm)
{
    (void)comm;
    return 0;
}

static int self_host_broadcast(struct plait_comm *comm, void *buf, size_t bytes,
                               int root)
{
    (void)comm;
    (void)buf;
    (void)bytes;
    (void)root;
    return 0;
}

static int self_host_all_gather(struct plait_comm *comm, const void *send,
                                void *recv, size_t bytes)
{
    (void)comm;
    memmove(recv, send, bytes);
    return 0;
}

static int self_host_all_reduce(struct plait_comm *comm, double *values,
                                size_t n, enum plait_reduce op)
{
    (void)comm;
    (void)values;
    (void)n;
    (void)op;
    return 0;
}

static const struct plait_comm_vtable self_vtable = {
    .name = "self",
    .records = true,
    .destroy = self_destroy,
    .run = self_run,
    .wait = self_wait,
    .barrier = self_barrier,
    .host_broadcast = self_host_broadcast,
    .host_all_gather = self_host_all_gather,
    .host_all_reduce = self_host_all_reduce,
};

struct plait_comm *plait_self_create(const struct plait_ops *ops,
                                     struct plait_device *dev, const char *name)
{
    struct plait_comm *comm = malloc(sizeof(*comm));

    if (comm)
        plait_comm_init(comm, &self_vtable, ops, dev,
                        &(struct plait_identity){name, 0, 1});
    return comm;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What every backend uses, also one that is loaded as a module. */
#include "runtime/comm/backend.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"

const char *const plait_transfer_names[PLAIT_RECV + 1] = {
    [PLAIT_ALL_REDUCE] = "all-reduce",
    [PLAIT_REDUCE_SCATTER] = "reduce-scatter",
    [PLAIT_ALL_GATHER] = "all-gather",
    [PLAIT_BROADCAST] = "broadcast",
    [PLAIT_SEND] = "send",
    [PLAIT_RECV] = "receive",
};

void plait_comm_init(struct plait_comm *comm,
                     const struct plait_comm_vtable *vtable,
                     const struct plait_ops *ops, struct plait_device *dev,
                     const struct plait_identity *self)
{
    memset(comm, 0, sizeof(*comm));
    comm->vtable = vtable;
    comm->ops = ops;
    comm->dev = dev;
    comm->rank = self->rank;
    comm->size = self->size;
    snprintf(comm->name, sizeof(comm->name), "%s", self->name);
    comm->listeners.ops = ops;
    comm->listeners.group = &comm->own;
    comm->world_rank = self->rank;
    comm->domains = 1;
}

int plait_comm_fail(struct plait_comm *comm, const char *fmt, ...)
{
    va_list ap;

    if (!comm->failed) {
        va_start(ap, fmt);
        vsnprintf(comm->error, sizeof(comm->error), fmt, ap);
        va_end(ap);
        comm->failed = true;
    }
    errno = EIO;
    return -1;
}

bool plait_comm_on_host(const struct plait_comm *comm)
{
    return !comm->ops || !comm->ops->gpu;
}

size_t plait_transfer_send_count(const struct plait_comm *comm,
                                 const struct plait_transfer *t)
{
    switch (t->kind) {
    case PLAIT_REDUCE_SCATTER:
        return t->n * comm->size;
    case PLAIT_BROADCAST:
        return comm->rank == t->peer ? t->n : 0;
    case PLAIT_RECV:
        return 0;
    default:
        return t->n;
    }
}

size_t plait_transfer_recv_count(const struct plait_comm *comm,
                                 const struct plait_transfer *t)
{
    switch (t->kind) {
    case PLAIT_ALL_GATHER:
        return t->n * comm->size;
    case PLAIT_BROADCAST:
        return comm->rank == t->peer ? 0 : t->n;
    case PLAIT_SEND:
        return 0;
    default:
        return t->n;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Small host values, which ranks exchange to agree with each other. */
#include "config.h"

#include <errno.h>

#include "runtime/comm/backend.h"

static struct plait_comm *host_of(struct plait_comm *comm)
{
    struct plait_comm *host = comm->host ? comm->host : comm;

    if (!comm->failed && !host->failed)
        return host;
    errno = EIO;
    return NULL;
}

static struct plait_activity begin_control(struct plait_comm *comm,
                                           struct plait_operation what,
                                           const char *place)
{
    struct plait_comm *host = comm->host ? comm->host : comm;
    const struct plait_doing doing = {
        .track = comm->name,
        .name = what.op == PLAIT_OP_BARRIER ? "barrier" : "control",
        .op = what.op,
        .bytes = what.bytes,
    };

    what.type = -1;
    host->call = plait_call_make(&what, ++host->ncalls, place);
    return plait_activity_begin(&comm->listeners, &doing);
}

/* A control call blocks: its time counts as waiting. */
static int end_control(struct plait_comm *comm, const struct plait_activity *a,
                       int rc)
{
    comm->stats.wait_s += plait_activity_end(a);
    return rc;
}

int plait_comm_barrier_at(const char *place, struct plait_comm *comm)
{
    struct plait_comm *host = host_of(comm);
    struct plait_activity a;

    if (!host)
        return -1;
    a = begin_control(comm, (struct plait_operation){.op = PLAIT_OP_BARRIER},
                      place);
    return end_control(comm, &a, host->vtable->barrier(host));
}

int plait_comm_host_broadcast_at(const char *place, struct plait_comm *comm,
                                 void *buf, size_t bytes, int root)
{
    struct plait_comm *host = host_of(comm);
    struct plait_activity a;

    if (!host)
        return -1;
    a = begin_control(comm,
                      (struct plait_operation){.op = PLAIT_OP_CONTROL_BROADCAST,
                                               .root = root,
                                               .bytes = bytes},
                      place);
    return end_control(comm, &a,
                       host->vtable->host_broadcast(host, buf, bytes, root));
}

int plait_comm_host_all_gather_at(const char *place, struct plait_comm *comm,
                                  const void *send, void *recv, size_t bytes)
{
    struct plait_comm *host = host_of(comm);
    struct plait_activity a;

    if (!host)
        return -1;
    a = begin_control(comm,
                      (struct plait_operation){
                          .op = PLAIT_OP_CONTROL_ALL_GATHER, .bytes = bytes},
                      place);
    return end_control(comm, &a,
                       host->vtable->host_all_gather(host, send, recv, bytes));
}

int plait_comm_host_all_reduce_at(const char *place, struct plait_comm *comm,
                                  double *values, size_t n,
                                  enum plait_reduce op)
{
    struct plait_comm *host = host_of(comm);
    struct plait_activity a;

    if (!host)
        return -1;
    a = begin_control(
        comm,
        (struct plait_operation){.op = PLAIT_OP_CONTROL_ALL_REDUCE,
                                 .reduction = (int)op,
                                 .bytes = n * sizeof(*values)},
        place);
    return end_control(comm, &a,
                       host->vtable->host_all_reduce(host, values, n, op));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Small host values, which ranks exchange to agree with each other. */
#include "config.h"

#include <errno.h>

#include "runtime/comm/backend.h"
#include "topology/base/clock.h"

static struct plait_comm *host_of(struct plait_comm *comm)
{
    struct plait_comm *host = comm->host ? comm->host : comm;

    if (!comm->failed && !host->failed)
        return host;
    errno = EIO;
    return NULL;
}

/* Notes the start of a blocking control call, of bytes; returns the time. */
static double begin_wait(struct plait_comm *comm, struct plait_operation what,
                         const char *place)
{
    struct plait_comm *host = comm->host ? comm->host : comm;
    double now = plait_clock_now();

    what.type = -1;
    host->call = plait_call_make(&what, ++host->ncalls, place);
    plait_record_enter(comm->noted, what.op, what.bytes, 0, now);
    return now;
}

/* Count the time of a blocking control call as waiting. */
static int count_wait(struct plait_comm *comm, const char *what, double start,
                      int rc)
{
    plait_record_leave(comm->noted);
    comm->stats.wait_s += plait_clock_now() - start;
    plait_trace_span(comm->trace, comm->name, what, start);
    return rc;
}

int plait_comm_barrier_at(const char *place, struct plait_comm *comm)
{
    struct plait_comm *host = host_of(comm);
    double start;

    if (!host)
        return -1;
    start = begin_wait(comm, (struct plait_operation){.op = PLAIT_OP_BARRIER},
                       place);
    return count_wait(comm, "barrier", start, host->vtable->barrier(host));
}

int plait_comm_host_broadcast_at(const char *place, struct plait_comm *comm,
                                 void *buf, size_t bytes, int root)
{
    struct plait_comm *host = host_of(comm);
    double start;

    if (!host)
        return -1;
    start = begin_wait(
        comm,
        (struct plait_operation){
            .op = PLAIT_OP_CONTROL_BROADCAST, .root = root, .bytes = bytes},
        place);
    return count_wait(comm, "control", start,
                      host->vtable->host_broadcast(host, buf, bytes, root));
}

int plait_comm_host_all_gather_at(const char *place, struct plait_comm *comm,
                                  const void *send, void *recv, size_t bytes)
{
    struct plait_comm *host = host_of(comm);
    double start;

    if (!host)
        return -1;
    start = begin_wait(comm,
                       (struct plait_operation){
                           .op = PLAIT_OP_CONTROL_ALL_GATHER, .bytes = bytes},
                       place);
    return count_wait(comm, "control", start,
                      host->vtable->host_all_gather(host, send, recv, bytes));
}

int plait_comm_host_all_reduce_at(const char *place, struct plait_comm *comm,
                                  double *values, size_t n,
                                  enum plait_reduce op)
{
    struct plait_comm *host = host_of(comm);
    double start;

    if (!host)
        return -1;
    start =
        begin_wait(comm,
                   (struct plait_operation){.op = PLAIT_OP_CONTROL_ALL_REDUCE,
                                            .reduction = (int)op,
                                            .bytes = n * sizeof(*values)},
                   place);
    return count_wait(comm, "control", start,
                      host->vtable->host_all_reduce(host, values, n, op));
}

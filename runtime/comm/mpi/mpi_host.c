/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/mpi/mpi_private.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/comm/shm/engine.h"
#include "runtime/comm/tags.h"

/* Host values and barriers over MPI. */

/* A dissemination barrier: with each round a rank has heard from twice as many.
 * MPI_Barrier() is not used: its messages would match those of another call
 * that a rank makes by mistake, or as it alone has failed, which is an error of
 * MPI or goes unnoticed. These messages just wait, and the watchdog reports
 * which rank is where. */
static int barrier_asleep(struct mpi_comm *c)
{
    int rank = c->base.rank, size = c->base.size, rc = MPI_SUCCESS;
    MPI_Request in = MPI_REQUEST_NULL, out = MPI_REQUEST_NULL;

    for (int step = 1; step < size && rc == MPI_SUCCESS; step *= 2) {
        rc = MPI_Irecv(NULL, 0, MPI_BYTE, (rank - step + size) % size,
                       PLAIT_TAG_BARRIER, c->mpi, &in);
        if (rc == MPI_SUCCESS)
            rc = MPI_Isend(NULL, 0, MPI_BYTE, (rank + step) % size,
                           PLAIT_TAG_BARRIER, c->mpi, &out);
        rc = plait_mpi_wait_asleep(c, rc, &out);
        rc = plait_mpi_wait_asleep(c, rc, &in);
    }
    return rc;
}

static int barrier_awake(struct mpi_comm *c)
{
    int rank = c->base.rank, size = c->base.size, rc = MPI_SUCCESS;

    for (int step = 1; step < size && rc == MPI_SUCCESS; step *= 2)
        rc = MPI_Sendrecv(NULL, 0, MPI_BYTE, (rank + step) % size,
                          PLAIT_TAG_BARRIER, NULL, 0, MPI_BYTE,
                          (rank - step + size) % size, PLAIT_TAG_BARRIER,
                          c->mpi, MPI_STATUS_IGNORE);
    return rc;
}

int plait_mpi_barrier(struct plait_comm *comm)
{
    struct mpi_comm *c = mpi_of(comm);
    int rc;

    if (plait_mpi_compare(comm) < 0)
        return -1;
    rc = c->world->asleep ? barrier_asleep(c) : barrier_awake(c);

    return rc == MPI_SUCCESS ? 0 : plait_mpi_failed(comm, "barrier", rc);
}

/* Ends a call that returned rc: waits for it if it was nonblocking. */
static int end_call(struct mpi_comm *c, const char *what, int rc,
                    const MPI_Request *r)
{
    rc = plait_mpi_wait_asleep(c, rc, r);
    return rc == MPI_SUCCESS ? 0 : plait_mpi_failed(&c->base, what, rc);
}

/* What each rank shows the others. */
struct shown {
    struct plait_call call;
    int32_t rank; /* in the world */
    char host[60];
};

/* Compares what all have shown, shown[size]. */
static int compare_shown(struct plait_comm *comm, const struct shown *shown)
{
    const struct shown *me = &shown[comm->rank];
    struct plait_caller here = {me->rank, me->host, &me->call};
    char why[320];

    for (int r = 0; r < comm->size; r++) {
        struct plait_caller there = {shown[r].rank, shown[r].host,
                                     &shown[r].call};

        if (plait_call_same(&me->call, &shown[r].call))
            continue;
        plait_call_tell(comm->name, there, here, why, sizeof(why));
        return plait_mpi_differ(comm, why);
    }
    return 0;
}

/* Every collective then begins with this exchange, so that it always meets its
 * like. A rank without memory for it fails all by MPI_Abort(). */
int plait_mpi_compare(struct plait_comm *comm)
{
    struct mpi_comm *c = mpi_of(comm);
    struct shown mine = {.call = comm->call, .rank = comm->world_rank}, *all;
    MPI_Request r = MPI_REQUEST_NULL;
    int rc;

    if (!plait_call_strict() || comm->call.number == 0)
        return 0;
    gethostname(mine.host, sizeof(mine.host) - 1);
    all = calloc((size_t)comm->size, sizeof(*all));
    if (!all)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (c->world->asleep)
        rc = MPI_Iallgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine),
                            MPI_BYTE, c->mpi, &r);
    else
        rc = MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine),
                           MPI_BYTE, c->mpi);
    rc = end_call(c, "comparison", rc, &r);
    if (rc == 0)
        rc = compare_shown(comm, all);
    free(all);
    return rc;
}

static int too_large(struct plait_comm *comm, size_t n)
{
    if (n <= INT_MAX)
        return 0;
    return plait_comm_fail(comm,
                           "%s: %zu host values at once: MPI takes at "
                           "most %d",
                           comm->name, n, INT_MAX);
}

int plait_mpi_host_broadcast(struct plait_comm *comm, void *buf, size_t bytes,
                             int root)
{
    struct mpi_comm *c = mpi_of(comm);
    MPI_Request r = MPI_REQUEST_NULL;
    int rc;

    if (too_large(comm, bytes) < 0 || plait_mpi_compare(comm) < 0)
        return -1;
    if (c->world->asleep)
        rc = MPI_Ibcast(buf, bytes, MPI_BYTE, root, c->mpi, &r);
    else
        rc = MPI_Bcast(buf, bytes, MPI_BYTE, root, c->mpi);
    return end_call(c, "broadcast", rc, &r);
}

int plait_mpi_host_all_gather(struct plait_comm *comm, const void *send,
                              void *recv, size_t bytes)
{
    struct mpi_comm *c = mpi_of(comm);
    MPI_Request r = MPI_REQUEST_NULL;
    int rc;

    if (too_large(comm, bytes) < 0 || plait_mpi_compare(comm) < 0)
        return -1;
    if (c->world->asleep)
        rc = MPI_Iallgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE,
                            c->mpi, &r);
    else
        rc =
            MPI_Allgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, c->mpi);
    return end_call(c, "all-gather", rc, &r);
}

int plait_mpi_host_all_reduce(struct plait_comm *comm, double *values, size_t n,
                              enum plait_reduce reduce)
{
    struct mpi_comm *c = mpi_of(comm);
    MPI_Op op = reduce == PLAIT_SUM ? MPI_SUM : MPI_MAX;
    MPI_Request r = MPI_REQUEST_NULL;
    int rc;

    if (too_large(comm, n) < 0 || plait_mpi_compare(comm) < 0)
        return -1;
    if (c->world->asleep)
        rc =
            MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, op, c->mpi, &r);
    else
        rc = MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, op, c->mpi);
    return end_call(c, "all-reduce", rc, &r);
}

bool plait_mpi_advances(const struct plait_comm *comm)
{
    const struct mpi_comm *c = (const struct mpi_comm *)comm;

    return plait_engine_is_threaded(c->world->engine);
}

const char *plait_mpi_difference(const struct plait_comm *comm)
{
    const char *why = ((const struct mpi_comm *)comm)->world->difference;

    return why[0] ? why : NULL;
}

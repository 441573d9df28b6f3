/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/mpi/mpi_private.h"

#include <limits.h>

#include "runtime/comm/tags.h"

/* Host values and barriers over MPI. */

/* A dissemination barrier: with each round a rank has heard from twice as many.
 * MPI_Ibarrier() is not used: its messages would match those of another call
 * that a rank makes by mistake, which is an error of MPI. These messages just
 * wait, and the watchdog reports which rank is where. */
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

int plait_mpi_barrier(struct plait_comm *comm)
{
    struct mpi_comm *c = mpi_of(comm);
    int rc = c->world->asleep ? barrier_asleep(c) : MPI_Barrier(c->mpi);

    return rc == MPI_SUCCESS ? 0 : plait_mpi_failed(comm, "barrier", rc);
}

/* Ends a call that returned rc: waits for it if it was nonblocking. */
static int end_call(struct mpi_comm *c, const char *what, int rc,
                    const MPI_Request *r)
{
    rc = plait_mpi_wait_asleep(c, rc, r);
    return rc == MPI_SUCCESS ? 0 : plait_mpi_failed(&c->base, what, rc);
}

static int too_large(struct plait_comm *comm, size_t n)
{
    if (n <= INT_MAX)
        return 0;
    return plait_comm_fail(comm, "%s: %zu host values at once: MPI takes %d",
                           comm->name, n, INT_MAX);
}

int plait_mpi_host_broadcast(struct plait_comm *comm, void *buf, size_t bytes,
                             int root)
{
    struct mpi_comm *c = mpi_of(comm);
    MPI_Request r = MPI_REQUEST_NULL;
    int rc;

    if (too_large(comm, bytes) < 0)
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

    if (too_large(comm, bytes) < 0)
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
    MPI_Op op = reduce == PLAIT_MAX ? MPI_MAX : MPI_SUM;
    MPI_Request r = MPI_REQUEST_NULL;
    int rc;

    if (too_large(comm, n) < 0)
        return -1;
    if (c->world->asleep)
        rc =
            MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, op, c->mpi, &r);
    else
        rc = MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, op, c->mpi);
    return end_call(c, "all-reduce", rc, &r);
}

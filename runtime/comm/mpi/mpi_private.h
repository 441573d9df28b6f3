/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_MPI_MPI_PRIVATE_H
#define PLAIT_RUNTIME_COMM_MPI_MPI_PRIVATE_H

/* What the files of the MPI backend share. */

#include <mpi.h>

#include "kernels/kernels.h"
#include "runtime/comm/backend.h"
#include "runtime/comm/mpi/mpi_transfer.h"
#include "runtime/comm/shm/shm.h"

/* What the groups of a world share. */
struct mpi_world {
    struct plait_mpi_ops ops;
    int finalize; /* this process initialised MPI */
    struct plait_engine *engine;
    struct plait_shm_world shm;
    /* Some ranks share cores. Then all sleep while they wait, which MPI's
     * blocking calls do not do. Elsewhere blocking calls are used, as only they
     * have MPI's tuned algorithms. */
    bool asleep;
    char difference[320]; /* what different collectives ranks entered; "" */
};

struct mpi_comm {
    struct plait_comm base;
    MPI_Comm mpi;
    struct mpi_world *world;
    int owner;             /* destroys the world */
    struct plait_shm *shm; /* NULL: ranks are on several nodes */
};

static inline struct mpi_comm *mpi_of(struct plait_comm *comm)
{
    return (struct mpi_comm *)comm;
}

/* Fails comm with the text of MPI's error rc about `what`; returns -1. */
int plait_mpi_failed(struct plait_comm *comm, const char *what, int rc);

/* Waits, mostly asleep, until *mpi is done. rc: the result of the call that
 * made *mpi, which is MPI_REQUEST_NULL if that call blocked. Returns an MPI
 * error code. */
int plait_mpi_wait_asleep(struct mpi_comm *c, int rc, const MPI_Request *mpi);

/* Fails comm because its ranks have entered different collectives; returns
 * -1. */
int plait_mpi_differ(struct plait_comm *comm, const char *why);
/* With PLAIT_CHECK_COLLECTIVES=1: whether all ranks of the group have entered
 * comm->call. Collective. */
int plait_mpi_compare(struct plait_comm *comm);

/* mpi_launch.c; choose and forbid before MPI is initialised */
int plait_mpi_check_world(const struct plait_launch *launch,
                          struct plait_error *err);
void plait_mpi_choose_transport(const struct plait_launch *launch);
void plait_mpi_forbid_yields(void);
void plait_mpi_finalize(void);

/* mpi_host.c: the vtable's functions for host values, and what it tells. */
bool plait_mpi_advances(const struct plait_comm *comm);
const char *plait_mpi_difference(const struct plait_comm *comm);
int plait_mpi_barrier(struct plait_comm *comm);
int plait_mpi_host_broadcast(struct plait_comm *comm, void *buf, size_t bytes,
                             int root);
int plait_mpi_host_all_gather(struct plait_comm *comm, const void *send,
                              void *recv, size_t bytes);
int plait_mpi_host_all_reduce(struct plait_comm *comm, double *values, size_t n,
                              enum plait_reduce reduce);

#endif

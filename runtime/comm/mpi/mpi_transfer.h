/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_MPI_MPI_TRANSFER_H
#define PLAIT_RUNTIME_COMM_MPI_MPI_TRANSFER_H

#include <mpi.h>

#include "runtime/comm/backend.h"

/* The MPI call for each transfer of host memory. */

/* MPI has no 16-bit floats: these reduce them. Each addition is made in fp32
 * and rounded to the type. */
enum {
    PLAIT_MPI_BF16_SUM,
    PLAIT_MPI_BF16_MAX,
    PLAIT_MPI_FP16_SUM,
    PLAIT_MPI_FP16_MAX,
    PLAIT_MPI_NOPS
};

struct plait_mpi_ops {
    MPI_Op op[PLAIT_MPI_NOPS];
};

void plait_mpi_ops_create(struct plait_mpi_ops *ops);
void plait_mpi_ops_free(struct plait_mpi_ops *ops);

/* Makes the transfer or, with r, starts it. t->n <= INT_MAX. Returns an MPI
 * error code. */
int plait_mpi_transfer(MPI_Comm comm, const struct plait_mpi_ops *ops,
                       const struct plait_transfer *t, MPI_Request *r);

/* Whether t's buffers overlap as comm.h allows. MPI requires MPI_IN_PLACE for
 * that. */
bool plait_mpi_in_place(const struct plait_comm *comm,
                        const struct plait_transfer *t);

#endif

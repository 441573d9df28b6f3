/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/mpi/mpi_private.h"

/* How MPI is started and ended, and whether it means the processes of the
 * launch. */

/* The contract and MPI must mean the same processes. */
int plait_mpi_check_world(const struct plait_launch *launch,
                          struct plait_error *err)
{
    int size;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!launch || launch->world_size == size)
        return 0;
    errno = EINVAL;
    if (size == 1)
        return plait_errorf(err,
                            "the launch has %d ranks, but MPI found this one "
                            "alone: start with srun --mpi=pmix",
                            launch->world_size);
    return plait_errorf(err, "the launch has %d ranks, but MPI has %d",
                        launch->world_size, size);
}

/* Whether all ranks are on this node, by the launcher. */
static bool one_node(const struct plait_launch *launch)
{
    const char *near = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    const char *all = getenv("OMPI_COMM_WORLD_SIZE");

    if (launch)
        return launch->nnodes == 1;
    return near && all && !strcmp(near, all);
}

/* Open MPI asks every network it knows for its devices, which takes a fifth of
 * a second and is useless within a node. The user's choice stands. */
void plait_mpi_choose_transport(const struct plait_launch *launch)
{
    if (!one_node(launch) || getenv("OMPI_MCA_pml") || getenv("OMPI_MCA_btl") ||
        getenv("OMPI_MCA_mtl"))
        return;
    setenv("OMPI_MCA_pml", "ob1", 1);
    setenv("OMPI_MCA_btl", "vader,self", 1);
}

/* With more ranks than cores, mpirun makes MPI yield. But such ranks sleep
 * outside of MPI (plait_mpi_wait_asleep()), except for yield_in_mpi(). */
void plait_mpi_forbid_yields(void)
{
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
}

/* In MPI_Finalize(), Open MPI's part of UCX reports a peer that closes its
 * connection first as an error ("ucp_disconnect_nb failed"), though nothing is
 * lost by then. Until then it may report. The user's choice stands. */
static void quieten(void)
{
    static const char verbose[] = "opal_common_ucx_verbose";
    MPI_T_cvar_handle handle;
    int level, index, count, none = -1;

    if (getenv("OMPI_MCA_opal_common_ucx_verbose") ||
        MPI_T_init_thread(MPI_THREAD_SINGLE, &level) != MPI_SUCCESS)
        return;
    if (MPI_T_cvar_get_index(verbose, &index) == MPI_SUCCESS &&
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) == MPI_SUCCESS) {
        MPI_T_cvar_write(handle, &none);
        MPI_T_cvar_handle_free(&handle);
    }
    MPI_T_finalize();
}

void plait_mpi_finalize(void)
{
    quieten();
    MPI_Finalize();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How NCCL's communicators end, and checks that none is used afterwards. An
 * ended communicator is never freed: another thread may still wait in it, and a
 * later call that uses it must be found. */
#include "comms.h"

#include <unistd.h>

enum { ABORTED = 64 };

static __thread struct ncclComm *aborted[ABORTED];
static __thread int naborted;

ncclResult_t emu_comm_check(const struct ncclComm *comm, const char *call)
{
    if (comm->ended == NULL)
        return ncclSuccess;
    emu_fault("%s of communicator %s, which was %s before", call, comm->name,
              comm->ended);
    return ncclInvalidArgument;
}

static void end(struct ncclComm *comm, const char *how)
{
    comm->ended = how;
    emu_living(EMU_COMMS, -1);
}

/* Waits until the graphs that hold the communicator's transfers are
 * destroyed. */
static void await_graphs(const struct ncclComm *comm, const char *call)
{
    for (int ms = 0; __atomic_load_n(&comm->graphs, __ATOMIC_SEQ_CST) > 0; ms++)
        if (ms == EMU_PATIENCE_S * 1000) {
            emu_fault("%s of communicator %s waits for graphs that nobody "
                      "destroys",
                      call, comm->name);
            return;
        } else {
            usleep(1000);
        }
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t r = emu_comm_check(comm, __func__);

    if (r != ncclSuccess)
        return r;
    await_graphs(comm, __func__);
    end(comm, "destroyed");
    if (comm->owns_board)
        emu_board_leave(comm->board);
    return ncclSuccess;
}

/* May be called by any thread: releases what waits in the communicator at once.
 * In a group, all communicators are released before any is waited for. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclResult_t r = emu_comm_check(comm, __func__);

    if (r != ncclSuccess)
        return r;
    while (emu_nccl_is("never-abort"))
        usleep(100000);
    emu_board_abandon(comm->board);
    comm->aborted = true;
    end(comm, "aborted");
    if (naborted == ABORTED) {
        emu_fault("more than %d communicators are aborted as a group", ABORTED);
        return ncclInvalidUsage;
    }
    aborted[naborted++] = comm;
    if (!emu_in_group())
        emu_aborts_finish();
    return ncclSuccess;
}

void emu_aborts_finish(void)
{
    while (naborted > 0)
        await_graphs(aborted[--naborted], "ncclCommAbort");
}

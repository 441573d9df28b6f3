/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL between processes of one machine: communicators and memory. */
#include "comms.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ncclComm *emu_comms;

/* -- results ----------------------------------------------------------------
 */

/* EMULATED_NCCL_VERSION: the version to return. */
ncclResult_t ncclGetVersion(int *version)
{
    const char *is = getenv("EMULATED_NCCL_VERSION");

    *version = is != NULL ? atoi(is) : NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    default:
        return "an error of the emulated NCCL";
    }
}

const char *ncclGetLastError(ncclComm_t comm)
{
    if (emu_faulted() != NULL)
        return emu_faulted();
    return emu_link_is_down(comm) ? "mlx5_0: completion with status 12" : "";
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    ncclResult_t r = emu_comm_check(comm, __func__);

    if (r != ncclSuccess)
        return r;
    *state = emu_faulted() != NULL        ? ncclUnhandledCudaError
             : comm->state != ncclSuccess ? comm->state
             : emu_link_is_down(comm)     ? ncclRemoteError
             : !comm->never && emu_board_complete(comm->board) ? ncclSuccess
                                                               : ncclInProgress;
    return ncclSuccess;
}

/* EMULATED_NCCL: words that say what is not as it should be.
 * no-windows: memory cannot be registered
 * never-connect, never-split, never-register: the call never ends
 * never-start: nor does ncclCommInitRank() return
 * never-abort: nor does ncclCommAbort()
 * slow: transfers take 20 ms more, beside which a busy machine counts little */
bool emu_nccl_is(const char *word)
{
    const char *how = getenv("EMULATED_NCCL");

    return how != NULL && strstr(how, word) != NULL;
}

/* EMULATED_LINK=FILE: once that file is there, the network is down, which
 * communicators notice that have used it. */
bool emu_link_is_down(const struct ncclComm *comm)
{
    const char *path = getenv("EMULATED_LINK");

    return path != NULL && comm->tick > 0 && access(path, F_OK) == 0;
}

static ncclResult_t answer(const struct ncclComm *c)
{
    if (emu_faulted() != NULL)
        return ncclUnhandledCudaError;
    return c->blocking ? ncclSuccess : ncclInProgress;
}

/* -- the log -----------------------------------------------------------------
 */

/* Like NCCL, reads what it is asked for at its first call. */
void emu_nccl_log(const char *format, ...)
{
    static FILE *log;
    static bool asked;
    const char *level = getenv("NCCL_DEBUG"), *path = getenv("NCCL_DEBUG_FILE");
    va_list args;

    if (!asked && level != NULL && strcmp(level, "INFO") == 0 && path != NULL)
        log = fopen(path, "w");
    asked = true;
    if (log == NULL)
        return;
    fprintf(log, "node:1:1 [0] NCCL INFO ");
    va_start(args, format);
    vfprintf(log, format, args);
    va_end(args);
    fputc('\n', log);
    fflush(log);
}

/* -- communicators ------------------------------------------------------------
 */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof(*id));
    emu_nccl_log("NCCL version 2.28.9+cuda13.0");
    return emu_board_create(id->internal) == 0 ? ncclSuccess : ncclSystemError;
}

static struct ncclComm *new_comm(struct emu_board *board,
                                 const ncclConfig_t *config)
{
    struct ncclComm *c = calloc(1, sizeof(*c));

    if (c == NULL || config->magic != 0xcafebeef)
        abort();
    c->board = board;
    c->blocking = config->blocking != 0;
    c->ctas = config->maxCTAs > 0 ? config->maxCTAs : 16;
    snprintf(c->name, sizeof(c->name), "%s",
             config->commName != NULL ? config->commName : "without a name");
    emu_lock();
    c->next = emu_comms;
    emu_comms = c;
    emu_unlock();
    emu_living(EMU_COMMS, 1);
    emu_nccl_log("%d coll channels, 0 collnet channels, 0 nvls channels, "
                 "%d p2p channels, 2 p2p channels per peer",
                 c->ctas, c->ctas);
    return c;
}

static void add_member(struct ncclComm *c, int rank)
{
    if (rank == emu_board_rank(c->board))
        c->rank = c->n;
    c->member[c->n++] = rank;
    c->all |= 1u << rank;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id,
                                    int rank, ncclConfig_t *config)
{
    struct emu_board *board;

    *comm = NULL;
    while (emu_nccl_is("never-start"))
        usleep(100000);
    board = emu_board_join(id.internal, rank, n);
    if (board == NULL)
        return ncclRemoteError;
    *comm = new_comm(board, config);
    (*comm)->owns_board = true;
    (*comm)->id = 1;
    (*comm)->never = emu_nccl_is("never-connect");
    for (int i = 0; i < n; i++)
        add_member(*comm, i);
    while ((*comm)->blocking && !emu_board_complete(board))
        usleep(1000);
    return answer(*comm);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int n, int rank,
                                      int nids, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    (void)nids;
    return ncclCommInitRankConfig(comm, n, ids[0], rank, config);
}

static void fill_group(struct ncclComm *made, const struct ncclComm *parent,
                       const int32_t (*all)[2], int color)
{
    int last = INT32_MIN, at = -1;

    made->id =
        parent->id * 1000003 + parent->together * 101 + (unsigned)color + 7;
    for (int k = 0; k < parent->n; k++) { /* ordered by key, then by rank */
        int next = -1;

        for (int i = 0; i < parent->n; i++)
            if (all[i][0] == color &&
                (all[i][1] > last || (all[i][1] == last && i > at)) &&
                (next < 0 || all[i][1] < all[next][1]))
                next = i;
        if (next < 0)
            return;
        add_member(made, parent->member[next]);
        last = all[next][1];
        at = next;
    }
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *made, ncclConfig_t *config)
{
    int32_t mine[2] = {color, key}, all[EMU_RANKS][2];
    struct emu_transfer t = {EMU_SPLIT, comm,      mine,    all,
                             2,         ncclInt32, ncclSum, 0};

    *made = NULL;
    if (emu_comm_check(comm, __func__) != ncclSuccess)
        return ncclInvalidUsage;
    if (emu_transfers_run(&t, 1) < 0)
        return ncclRemoteError;
    comm->never = emu_nccl_is("never-split");
    if (color == NCCL_SPLIT_NOCOLOR)
        return answer(comm);
    *made = new_comm(comm->board, config);
    fill_group(*made, comm, all, color);
    return answer(comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t r = emu_comm_check(comm, __func__);

    return r == ncclSuccess ? answer(comm) : r;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
    ncclResult_t r = emu_comm_check(comm, __func__);

    *rank = comm->rank;
    return r;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *n)
{
    ncclResult_t r = emu_comm_check(comm, __func__);

    *n = comm->n;
    return r;
}

/* -- memory -------------------------------------------------------------------
 */

ncclResult_t ncclMemAlloc(void **ptr, size_t bytes)
{
    return cudaMalloc(ptr, bytes) == cudaSuccess ? ncclSuccess
                                                 : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *ptr)
{
    return cudaFree(ptr) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *ptr, size_t bytes,
                                    ncclWindow_t *window, int flags)
{
    struct emu_transfer t = {EMU_WINDOW, comm,      NULL,    NULL,
                             bytes,      ncclInt32, ncclSum, 0};

    (void)flags;
    emu_count(__func__);
    if (emu_nccl_is("no-windows"))
        return ncclInvalidUsage;
    if (emu_comm_check(comm, __func__) != ncclSuccess ||
        !emu_check_recording(__func__) || emu_transfers_run(&t, 1) < 0)
        return ncclUnhandledCudaError;
    *window = ptr;
    comm->never = emu_nccl_is("never-register");
    return answer(comm);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    ncclResult_t r = emu_comm_check(comm, __func__);

    (void)window;
    emu_count(__func__);
    return r == ncclSuccess ? answer(comm) : r;
}

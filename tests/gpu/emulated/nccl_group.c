/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's transfers on streams, single ones and groups. */
#include <stdlib.h>
#include <string.h>

#include "comms.h"

struct group {
    cudaStream_t stream;
    int n;
    struct emu_transfer t[EMU_POSTS];
};

static __thread struct group *open_group;
static __thread int depth;

/* -- on the device ----------------------------------------------------------
 */

/* Reports transfers of two communicators that may run at the same time: they
 * deadlock if another GPU starts them in the other order. */
static void check_overlap(const struct ncclComm *c, const char *name)
{
    const char *ordered = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    char other[200];

    for (const struct ncclComm *o = emu_comms; o != NULL; o = o->next) {
        if (o->ended != NULL || o->aborted || o == c || o->tick == 0 ||
            o->n == 1 || c->n == 1 || emu_current.clock.at[o->lane] >= o->tick)
            continue;
        if (ordered != NULL && strcmp(ordered, "1") == 0)
            return;
        emu_tick_text(o->lane, o->tick, other, sizeof(other));
        emu_fault("streams: %s of communicator %s may run beside %s of %s: no "
                  "event between, and NCCL_LAUNCH_ORDER_IMPLICIT is not 1",
                  name, c->name, other, o->name);
    }
}

void emu_check_room(int sms)
{
    char other[200];

    for (const struct ncclComm *o = emu_comms; o != NULL; o = o->next) {
        if (o->ended != NULL || o->aborted || o->tick == 0 || o->n == 1 ||
            o->messages || emu_current.clock.at[o->lane] >= o->tick)
            continue;
        if (sms > 0 && sms + o->ctas <= EMU_SMS)
            continue;
        emu_tick_text(o->lane, o->tick, other, sizeof(other));
        emu_fault("streams: a product for %d multiprocessors may run beside "
                  "%s, which has %d",
                  sms > 0 ? sms : EMU_SMS, other, o->ctas);
    }
}

static bool use_memory(const struct emu_transfer *t)
{
    size_t out = emu_transfer_sends(t), in = emu_transfer_receives(t);

    if (!emu_memory_filled(t->send, out, "what NCCL sends") ||
        !emu_memory_check(t->recv, in, "what NCCL receives"))
        return false;
    emu_touch(t->send, out, EMU_READ);
    emu_touch(t->recv, in, EMU_WRITE);
    return emu_faulted() == NULL;
}

/* EMULATED_VIA: the way that the log names. */
static void log_connection(const struct ncclComm *c)
{
    const char *via = getenv("EMULATED_VIA");

    emu_nccl_log("Channel 00/0 : %d[0] -> %d[1] via %s", c->rank,
                 (c->rank + 1) % c->n, via != NULL ? via : "P2P/CUMEM");
}

static void do_group(void *arg, bool backwards)
{
    struct group *g = arg;
    bool fine = true;

    (void)backwards;
    for (int i = 0; i < g->n && fine; i++) {
        check_overlap(g->t[i].comm, emu_transfer_name(g->t[i].kind));
        fine = use_memory(&g->t[i]);
    }
    if (!fine || emu_faulted() != NULL)
        return;
    for (int i = 0; i < g->n; i++) {
        if (g->t[i].comm->tick == 0)
            log_connection(g->t[i].comm);
        g->t[i].comm->lane = emu_current.lane;
        g->t[i].comm->tick = emu_current.tick;
        g->t[i].comm->messages =
            g->t[i].kind == EMU_SEND_TO || g->t[i].kind == EMU_RECEIVE_FROM;
    }
    if (emu_transfers_run(g->t, g->n) < 0)
        g->t->comm->state = ncclRemoteError;
    for (int i = 0; i < g->n; i++) {
        size_t bytes = emu_transfer_receives(&g->t[i]);

        if (g->t[i].comm->aborted) /* the result is undefined */
            memset(g->t[i].recv, 0xff, bytes);
        emu_memory_written(g->t[i].recv, bytes);
    }
}

static void forget_recorded(void *arg)
{
    const struct group *g = arg;

    for (int i = 0; i < g->n; i++)
        __atomic_sub_fetch(&g->t[i].comm->graphs, 1, __ATOMIC_SEQ_CST);
    free(arg);
}

/* -- by the host --------------------------------------------------------------
 */

static ncclResult_t hand_over(struct group *g)
{
    struct ncclComm *c = g->t->comm;
    cudaError_t status;

    for (int i = 0; i < g->n; i++)
        __atomic_add_fetch(&g->t[i].comm->graphs, 1, __ATOMIC_SEQ_CST);
    emu_lock();
    status = emu_do(g->stream, emu_transfer_name(g->t->kind), do_group,
                    forget_recorded, g);
    emu_unlock();
    if (status != cudaSuccess)
        return ncclUnhandledCudaError;
    return c->blocking ? ncclSuccess : ncclInProgress;
}

static ncclResult_t start_group(void)
{
    if (depth++ == 0)
        open_group = calloc(1, sizeof(*open_group));
    return open_group != NULL ? ncclSuccess : ncclSystemError;
}

static ncclResult_t end_group(void)
{
    struct group *g = open_group;

    if (depth == 0)
        return ncclInvalidUsage;
    if (--depth > 0)
        return ncclSuccess;
    open_group = NULL;
    emu_aborts_finish();
    if (g->n > 0)
        return hand_over(g);
    free(g);
    return ncclSuccess;
}

bool emu_in_group(void)
{
    return depth > 0;
}

ncclResult_t ncclGroupStart(void)
{
    emu_count(__func__);
    return start_group();
}

ncclResult_t ncclGroupEnd(void)
{
    emu_count(__func__);
    return end_group();
}

static ncclResult_t put(const struct emu_transfer *t, cudaStream_t stream)
{
    ncclResult_t r;

    emu_count(emu_transfer_name(t->kind));
    if (t->comm == NULL || t->peer < 0 || t->peer >= t->comm->n)
        return ncclInvalidArgument;
    r = emu_comm_check(t->comm, emu_transfer_name(t->kind));
    if (r == ncclSuccess)
        r = start_group();
    if (r != ncclSuccess)
        return r;
    if (open_group->n == EMU_POSTS ||
        (open_group->n > 0 && open_group->stream != stream)) {
        emu_fault("a group of NCCL's with several streams, or more than %d "
                  "transfers, is not emulated",
                  EMU_POSTS);
    } else {
        open_group->stream = stream;
        open_group->t[open_group->n++] = *t;
    }
    return end_group();
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return put(&(struct emu_transfer){EMU_ALL_REDUCE, comm, send, recv, n, type,
                                      op, 0},
               stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t n,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return put(&(struct emu_transfer){EMU_REDUCE_SCATTER, comm, send, recv, n,
                                      type, op, 0},
               stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t n,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return put(&(struct emu_transfer){EMU_ALL_GATHER, comm, send, recv, n, type,
                                      ncclSum, 0},
               stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t n,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return put(&(struct emu_transfer){EMU_BROADCAST, comm, send, recv, n, type,
                                      ncclSum, root},
               stream);
}

ncclResult_t ncclSend(const void *send, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return put(&(struct emu_transfer){EMU_SEND_TO, comm, send, NULL, n, type,
                                      ncclSum, peer},
               stream);
}

ncclResult_t ncclRecv(void *recv, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return put(&(struct emu_transfer){EMU_RECEIVE_FROM, comm, NULL, recv, n,
                                      type, ncclSum, peer},
               stream);
}

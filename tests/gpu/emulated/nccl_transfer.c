/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's transfers: what each sends, receives and computes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comms.h"
#include "kernels/dtype.h"

static const char *const names[] = {
    [EMU_ALL_REDUCE] = "ncclAllReduce",
    [EMU_REDUCE_SCATTER] = "ncclReduceScatter",
    [EMU_ALL_GATHER] = "ncclAllGather",
    [EMU_BROADCAST] = "ncclBroadcast",
    [EMU_SEND_TO] = "ncclSend",
    [EMU_RECEIVE_FROM] = "ncclRecv",
    [EMU_SPLIT] = "ncclCommSplit",
    [EMU_WINDOW] = "ncclCommWindowRegister",
};

const char *emu_transfer_name(enum emu_transfer_kind kind)
{
    return names[kind];
}

size_t emu_type_size(ncclDataType_t type)
{
    return type == ncclFloat64                           ? 8
           : type == ncclFloat16 || type == ncclBfloat16 ? 2
                                                         : 4;
}

size_t emu_transfer_sends(const struct emu_transfer *t)
{
    size_t bytes = t->n * emu_type_size(t->type);

    switch (t->kind) {
    case EMU_REDUCE_SCATTER:
        return bytes * (size_t)t->comm->n;
    case EMU_BROADCAST:
        return t->comm->rank == t->peer ? bytes : 0;
    case EMU_RECEIVE_FROM:
    case EMU_WINDOW:
        return 0;
    default:
        return bytes;
    }
}

size_t emu_transfer_receives(const struct emu_transfer *t)
{
    size_t bytes = t->n * emu_type_size(t->type);

    switch (t->kind) {
    case EMU_ALL_GATHER:
    case EMU_SPLIT:
        return bytes * (size_t)t->comm->n;
    case EMU_SEND_TO:
    case EMU_WINDOW:
        return 0;
    default:
        return bytes;
    }
}

/* -- sums -------------------------------------------------------------------
 */

static float get(ncclDataType_t type, const void *p, size_t i)
{
    if (type == ncclFloat16)
        return plait_f32_of_fp16(((const uint16_t *)p)[i]);
    if (type == ncclBfloat16)
        return plait_f32_of_bf16(((const uint16_t *)p)[i]);
    return ((const float *)p)[i];
}

static void put(ncclDataType_t type, void *p, size_t i, float x)
{
    if (type == ncclFloat16)
        ((uint16_t *)p)[i] = plait_fp16_of_f32(x);
    else if (type == ncclBfloat16)
        ((uint16_t *)p)[i] = plait_bf16_of_f32(x);
    else
        ((float *)p)[i] = x;
}

/* recv = recv op x, rounded to the type after each, as NCCL does. */
static void add(const struct emu_transfer *t, const void *x)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->type == ncclInt32) {
            int32_t a = ((int32_t *)t->recv)[i], b = ((const int32_t *)x)[i];

            ((int32_t *)t->recv)[i] = t->op == ncclSum ? a + b : a > b ? a : b;
        } else if (t->type == ncclFloat64) {
            double a = ((double *)t->recv)[i], b = ((const double *)x)[i];

            ((double *)t->recv)[i] = t->op == ncclSum ? a + b : a > b ? a : b;
        } else {
            float a = get(t->type, t->recv, i), b = get(t->type, x, i);

            put(t->type, t->recv, i,
                t->op == ncclSum  ? a + b
                : a > b || a != a ? a
                                  : b);
        }
    }
}

static void take(void *arg, const void *const in[EMU_RANKS])
{
    const struct emu_transfer *t = arg;
    const struct ncclComm *c = t->comm;
    size_t bytes = t->n * emu_type_size(t->type), skip = 0;

    if (t->kind == EMU_RECEIVE_FROM || t->kind == EMU_BROADCAST)
        memcpy(t->recv, in[c->member[t->peer]], bytes);
    if (t->kind == EMU_REDUCE_SCATTER)
        skip = bytes * (size_t)c->rank;
    for (int i = 0; i < c->n; i++) {
        const char *x = (const char *)in[c->member[i]] + skip;

        if (t->kind == EMU_ALL_GATHER || t->kind == EMU_SPLIT)
            memcpy((char *)t->recv + bytes * (size_t)i, x, bytes);
        if (t->kind != EMU_ALL_REDUCE && t->kind != EMU_REDUCE_SCATTER)
            continue;
        if (i == 0)
            memcpy(t->recv, x, bytes);
        else
            add(t, x);
    }
}

/* -- running ------------------------------------------------------------------
 */

/* Equal on ranks that agree on the transfer: size, type, op, root and kind. */
static uint64_t shape_of(const struct emu_transfer *t)
{
    uint64_t kind = t->kind == EMU_RECEIVE_FROM ? EMU_SEND_TO : t->kind;
    uint64_t root = t->kind == EMU_BROADCAST ? (uint64_t)t->peer : 0;

    return ((((uint64_t)t->n * 16 + t->type) * 4 + t->op) * 16 + root) * 16 +
           kind;
}

static void make_job(struct emu_transfer *t, struct emu_job *job)
{
    struct ncclComm *c = t->comm;
    struct emu_post *p = &job->post;

    memset(job, 0, sizeof(*job));
    snprintf(p->name, sizeof(p->name), "%s of communicator %s", names[t->kind],
             c->name);
    p->comm = c->id;
    p->shape = shape_of(t);
    job->send = t->send;
    job->bytes = emu_transfer_sends(t);
    job->take = take;
    job->arg = t;
    if (t->kind == EMU_SEND_TO) {
        p->meeting = EMU_SEND;
        p->peer = c->member[t->peer];
        p->number = ++c->sent[t->peer];
        p->wanted = 1u << p->peer;
    } else if (t->kind == EMU_RECEIVE_FROM) {
        p->meeting = EMU_RECEIVE;
        p->peer = c->member[t->peer];
        p->number = ++c->received[t->peer];
        job->ranks = 1u << p->peer;
    } else {
        p->meeting = EMU_ALL;
        p->number = ++c->together;
        job->ranks = c->all;
        p->wanted = c->all & ~(1u << emu_board_rank(c->board));
    }
}

int emu_transfers_run(struct emu_transfer *t, int n)
{
    struct emu_job *jobs = calloc((size_t)n, sizeof(*jobs));
    int rc;

    if (jobs == NULL)
        abort();
    while (emu_link_is_down(t->comm) && !t->comm->aborted)
        usleep(1000);
    if (emu_nccl_is("slow"))
        usleep(20000);
    for (int i = 0; i < n; i++)
        make_job(&t[i], &jobs[i]);
    rc = emu_board_run(t->comm->board, jobs, n, &t->comm->aborted);
    free(jobs);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_COMMS_H
#define PLAIT_TESTS_GPU_EMULATED_COMMS_H

#include <nccl.h>

#include "board.h"
#include "runtime.h"

/* What the files of the emulated NCCL share. */

struct ncclComm {
    struct ncclComm *next; /* of this process */
    struct emu_board *board;
    bool owns_board;
    uint64_t id;
    int n, rank;
    int member[EMU_RANKS]; /* ranks of the world */
    unsigned all;          /* their bits */
    unsigned together;     /* transfers of all so far */
    unsigned sent[EMU_RANKS], received[EMU_RANKS];
    char name[32];
    bool blocking;
    volatile bool aborted; /* its transfers are let go */
    const char *ended;     /* how: no call may have it any more; NULL */
    int graphs;            /* recorded transfers that are left */
    ncclResult_t state;
    int lane; /* its last transfer, for who may overlap it */
    unsigned tick;
};

enum emu_transfer_kind {
    EMU_ALL_REDUCE,
    EMU_REDUCE_SCATTER,
    EMU_ALL_GATHER,
    EMU_BROADCAST,
    EMU_SEND_TO,
    EMU_RECEIVE_FROM,
    EMU_SPLIT, /* of the host: numbers of all */
    EMU_WINDOW /* of the host: all register as much */
};

struct emu_transfer {
    enum emu_transfer_kind kind;
    struct ncclComm *comm;
    const void *send;
    void *recv;
    size_t n;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
};

/* The communicators of this process. */
extern struct ncclComm *emu_comms __attribute__((visibility("hidden")));

/* Whether a call may have it: else a fault, and what the call returns. */
ncclResult_t emu_comm_check(const struct ncclComm *comm, const char *call);
/* Those that this thread has aborted in the group that ends now. */
void emu_aborts_finish(void);
/* Whether this thread is between ncclGroupStart() and ncclGroupEnd(). */
bool emu_in_group(void);

/* Makes them, one beside the other: 0, or -1. */
int emu_transfers_run(struct emu_transfer *t, int n);
const char *emu_transfer_name(enum emu_transfer_kind kind);
size_t emu_type_size(ncclDataType_t type);
size_t emu_transfer_sends(const struct emu_transfer *t);
size_t emu_transfer_receives(const struct emu_transfer *t);

#endif

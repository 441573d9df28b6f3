/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_COMMS_H
#define PLAIT_TESTS_GPU_EMULATED_COMMS_H

#include <nccl.h>

#include "board.h"
#include "runtime.h"

/* Declarations that the files of the emulated NCCL share. */

struct ncclComm {
    struct ncclComm *next; /* list of this process's communicators */
    struct emu_board *board;
    bool owns_board;
    uint64_t id;
    int n, rank;
    int member[EMU_RANKS]; /* their ranks in the world */
    unsigned all;          /* bit mask of the members */
    unsigned together;     /* collectives so far */
    unsigned sent[EMU_RANKS], received[EMU_RANKS];
    char name[32];
    bool blocking;
    bool never;            /* its last call never ends */
    volatile bool aborted; /* its transfers no longer wait */
    const char *ended;     /* "destroyed" or "aborted": unusable; or NULL */
    int graphs;            /* its transfers in recorded graphs that exist */
    ncclResult_t state;
    int lane; /* of its last transfer, to find what may overlap it */
    unsigned tick;
    bool messages; /* its last transfer was one of messages */
    int ctas;      /* multiprocessors of a transfer */
};

enum emu_transfer_kind {
    EMU_ALL_REDUCE,
    EMU_REDUCE_SCATTER,
    EMU_ALL_GATHER,
    EMU_BROADCAST,
    EMU_SEND_TO,
    EMU_RECEIVE_FROM,
    EMU_SPLIT, /* on the host: all-gather of color and key */
    EMU_WINDOW /* on the host: all ranks register the same size */
};

struct emu_transfer {
    enum emu_transfer_kind kind;
    struct ncclComm *comm;
    const void *send;
    void *recv;
    size_t n;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or the root of a broadcast */
};

/* All communicators of this process, ended ones too. */
extern struct ncclComm *emu_comms __attribute__((visibility("hidden")));

/* Whether a call may use the communicator; if not, reports a fault and returns
 * the call's result. */
ncclResult_t emu_comm_check(const struct ncclComm *comm, const char *call);
/* What NCCL is asked not to do, and whether the network is down: nccl.c. */
bool emu_nccl_is(const char *word);
void emu_nccl_log(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
bool emu_link_is_down(const struct ncclComm *comm);
/* At the end of a group: waits for the communicators that it has aborted. */
void emu_aborts_finish(void);
/* Whether this thread is between ncclGroupStart() and ncclGroupEnd(). */
bool emu_in_group(void);

/* Runs transfers concurrently: 0, or -1. */
int emu_transfers_run(struct emu_transfer *t, int n);
const char *emu_transfer_name(enum emu_transfer_kind kind);
size_t emu_type_size(ncclDataType_t type);
size_t emu_transfer_sends(const struct emu_transfer *t);
size_t emu_transfer_receives(const struct emu_transfer *t);

#endif

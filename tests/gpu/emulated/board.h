/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_BOARD_H
#define PLAIT_TESTS_GPU_EMULATED_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shared memory in which the processes of a world exchange their transfers. A
 * rank posts the transfers that it enters, with the data that it sends, and
 * goes on when the other ranks of each have taken them. As each rank waits for
 * one other at a time, ranks that wait for each other are found. */

enum { EMU_RANKS = 8, EMU_POSTS = 64 };

/* A transfer of all ranks of a communicator, or one end of a message. */
enum emu_meeting { EMU_ALL, EMU_SEND, EMU_RECEIVE };

struct emu_post {
    enum emu_meeting meeting;
    uint64_t comm;
    unsigned number; /* of the communicator's transfers, or messages to peer */
    int peer;        /* of a message; ranks are those of the world */
    uint64_t shape;  /* equal on all ranks of the transfer */
    char name[64];   /* "ncclAllReduce of communicator tp" */
    size_t at;       /* offset of the data in the rank's stage */
    unsigned taken, wanted; /* bit masks of ranks: took the data, must */
};

/* A transfer as its process sees it. */
struct emu_job {
    struct emu_post post;
    unsigned ranks; /* bit mask of the ranks whose data this one takes */
    const void *send;
    size_t bytes;
    /* Called with what each rank in the mask has sent, NULL at the other
     * places; a sender has none. */
    void (*take)(void *arg, const void *const in[EMU_RANKS]);
    void *arg;
};

struct emu_board;

/* Creates the memory of a world; id names it for all ranks. Joining does not
 * wait for other ranks. NULL: the creator has ended, or a fault. */
int emu_board_create(char id[128]);
struct emu_board *emu_board_join(const char id[128], int rank, int n);
/* Whether all ranks have joined. */
bool emu_board_complete(const struct emu_board *b);
int emu_board_rank(const struct emu_board *b);
/* abandon: this rank enters no more transfers; leave: unmaps the memory. Ranks
 * that wait for this one, or for one that has ended, are not woken, as on a
 * GPU: they must abort, and are at fault after EMU_PATIENCE_S. */
enum { EMU_PATIENCE_S = 20 };
void emu_board_abandon(struct emu_board *b);
void emu_board_leave(struct emu_board *b);
/* Runs n transfers concurrently. -1: a fault, or *aborted was set meanwhile. */
int emu_board_run(struct emu_board *b, struct emu_job *jobs, int n,
                  const volatile bool *aborted);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_BOARD_H
#define PLAIT_TESTS_GPU_EMULATED_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the processes of a world meet: memory that they share. A rank posts
 * the transfers that it enters, with what it sends, and goes on when their
 * other ranks have taken it. As each waits in one place only, it is seen when
 * they wait for each other. */

enum { EMU_RANKS = 8, EMU_POSTS = 64 };

/* All ranks of a communicator in one, or one message. */
enum emu_meeting { EMU_ALL, EMU_SEND, EMU_RECEIVE };

struct emu_post {
    enum emu_meeting meeting;
    uint64_t comm;
    unsigned number; /* of the communicator's, or of the messages to the peer */
    int peer;        /* of a message; ranks are the world's */
    uint64_t shape;  /* equal for all that take part */
    char name[64];   /* "ncclAllReduce of communicator tp" */
    size_t at;       /* in what the rank sends */
    unsigned taken, wanted; /* by whom: a bit for each rank */
};

/* A transfer as its process sees it. */
struct emu_job {
    struct emu_post post;
    unsigned ranks; /* the bits of those that take part */
    const void *send;
    size_t bytes;
    /* With what the rank of each bit has sent, NULL without; a sender has
     * none. */
    void (*take)(void *arg, const void *const in[EMU_RANKS]);
    void *arg;
};

struct emu_board;

/* The id that rank `rank` of `n` joins by: 128 bytes. Who joins does not wait
 * for the others; NULL: who made it has ended, or a fault. */
int emu_board_create(char id[128]);
struct emu_board *emu_board_join(const char id[128], int rank, int n);
/* Whether all have. */
bool emu_board_complete(const struct emu_board *b);
int emu_board_rank(const struct emu_board *b);
/* This rank enters nothing more. Who waits for it, or for one that has ended,
 * is not told, as little as by a GPU: it must give up, or is at fault after
 * EMU_PATIENCE_S. */
enum { EMU_PATIENCE_S = 20 };
void emu_board_abandon(struct emu_board *b);
void emu_board_leave(struct emu_board *b);
/* All of them at once. -1: a fault, or *aborted was set meanwhile. */
int emu_board_run(struct emu_board *b, struct emu_job *jobs, int n,
                  const volatile bool *aborted);

#endif

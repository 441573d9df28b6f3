/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_WORLD_H
#define PLAIT_WORLD_H

#include <stdbool.h>

#include "runtime/comm/comm.h"

/* Where a program of the runtime finds itself: what started it, what it
 * computes on, and all of its processes. */
struct plait_world {
    struct plait_launch launch;
    bool planned; /* started under a plan: launch holds */
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_comm *comm;
};

/* Collective over all processes of the run. device: "auto", "cuda" or "cpu".
 * On failure, what was made stays for plait_world_close(). */
int plait_world_open(struct plait_world *world, const char *device,
                     struct plait_error *err);
void plait_world_close(struct plait_world *world);

/* Collective: -1 on every rank if rc < 0 on any, with the errno of the first
 * that has text in err. That one keeps it, the others' is emptied, so that a
 * user reads one line. Takes no memory. */
int plait_agree(struct plait_comm *world, int rc, struct plait_error *err);
/* Collective: what rank 0 alone has read, for all: a thousand ranks that open
 * one file are a storm on a shared file system. There, *text is malloc'ed and
 * has *size bytes if rc is 0, and is freed on failure; elsewhere rc is 0, and
 * both are results. The caller frees *text. */
int plait_hand_out(struct plait_comm *world, int rc, char **text, size_t *size,
                   struct plait_error *err);

/* The rank as the launcher's environment has it, before there is a world;
 * 0 where nothing says. */
int plait_rank_hint(void);

#endif

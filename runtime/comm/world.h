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

/* Collective: -1 on every rank if rc < 0 on any. The first such rank keeps
 * its err, the others' is emptied, so that a user reads one line. */
int plait_agree(struct plait_comm *world, int rc, struct plait_error *err);

/* The rank as the launcher's environment has it, before there is a world;
 * 0 where nothing says. */
int plait_rank_hint(void);

#endif

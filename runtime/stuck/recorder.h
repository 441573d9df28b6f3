/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_RECORDER_H
#define PLAIT_RUNTIME_STUCK_RECORDER_H

#include <stddef.h>

#include "runtime/stuck/judge.h"
#include "topology/base/error.h"

/* What torch's flight recorder left of the ranks of any trainer: the last
 * operations of each process group, which of them were done, and where the
 * program was when it asked for them. */

struct plait_recorder_group; /* private */

struct plait_recorder {
    int world;  /* ranks that are known to exist */
    double now; /* when the last dump was written */
    int n;
    struct plait_stuck_rank *rank; /* [n] ascending; those without a dump too,
                                      after plait_recorder_close() */
    int ngroups;
    struct plait_recorder_group *group;
};

/* The dump of rank `rank`, a pickle of any bytes; `now` is when it was written,
 * in seconds of the epoch. -1 with the reason in err. */
int plait_recorder_add(struct plait_recorder *recorder, const char *name,
                       const unsigned char *bytes, size_t size, int rank,
                       double now, struct plait_error *err);
/* All dumps are there: name the groups, and enter the ranks that left none. -1:
 * out of memory. */
int plait_recorder_close(struct plait_recorder *recorder);
void plait_recorder_clear(struct plait_recorder *recorder);

/* The files PREFIX0, PREFIX1, ... that are there, and close it. -1 with the
 * reason in err. */
int plait_recorder_read(struct plait_recorder *recorder, const char *prefix,
                        struct plait_error *err);

#endif

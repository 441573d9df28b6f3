/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_RECORDER_H
#define PLAIT_RUNTIME_STUCK_RECORDER_H

#include <stddef.h>

#include "runtime/stuck/judge.h"
#include "topology/base/error.h"

/* Reads the dumps of torch's flight recorder, of any trainer: the last
 * operations of each process group, which of them completed, and where in the
 * program they were called. */

struct plait_recorder_group; /* private */

struct plait_recorder {
    int world;  /* ranks known to exist */
    double now; /* when the newest dump was written */
    int n;
    struct plait_stuck_rank *rank; /* [n] ascending; with those without a dump
                                      only after plait_recorder_close() */
    int ngroups;
    struct plait_recorder_group *group;
};

/* Adds the dump of rank `rank`: a pickle, checked, from any source; `now`: when
 * it was written, in seconds since the epoch. -1 with the reason in err. */
int plait_recorder_add(struct plait_recorder *recorder, const char *name,
                       const unsigned char *bytes, size_t size, int rank,
                       double now, struct plait_error *err);
/* Call after the last dump: names the groups and adds the ranks that left none.
 * -1: out of memory. */
int plait_recorder_close(struct plait_recorder *recorder);
void plait_recorder_clear(struct plait_recorder *recorder);

/* Adds all files PREFIX0, PREFIX1, ... that exist, then calls
 * plait_recorder_close(). -1 with the reason in err. */
int plait_recorder_read(struct plait_recorder *recorder, const char *prefix,
                        struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PROBE_MEASURE_H
#define PLAIT_RUNTIME_PROBE_MEASURE_H

#include <stdio.h>

#include "runtime/comm/world.h"
#include "topology/job/gpu_types.h"

/* The options of plait-probe. */
struct plait_measure_args {
    const char *device, *fabric, *out;
    const char *type;     /* as it was given */
    const char *gpu_type; /* NULL: the type that the node has */
    char name[16];        /* memory that gpu_type points to */
    const char *like;     /* what a site's own type resembles; NULL */
    long max_bytes, repeat;
    int preflight, rings; /* gpu_check.h instead */
};

/* A transfer has failed, perhaps on this rank alone: who returns this ends the
 * other ranks, which may wait for it. */
#define PLAIT_MEASURE_BROKEN (-2)

/* Collective: measure, fit the cost model's figures, and write them to `out`
 * (on rank 0) as a site file. -1 on all ranks, with text on one. */
int plait_measure_run(struct plait_world *world,
                      const struct plait_measure_args *args, FILE *out,
                      struct plait_error *err);

#endif

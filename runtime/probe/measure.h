/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SURVEY_H
#define PLAIT_SURVEY_H

#include <stdio.h>

#include "runtime/comm/world.h"
#include "topology/gpu_types.h"

/* What plait-probe was asked for. */
struct plait_survey_args {
    const char *device, *fabric, *out;
    const char *gpu_type; /* NULL: what the node has */
    long max_bytes, repeat;
};

/* Collective: measure, fit the cost model's figures to it, and write them to
 * `out` (on rank 0) as a site file. */
int plait_survey_run(struct plait_world *world,
                     const struct plait_survey_args *args, FILE *out,
                     struct plait_error *err);

#endif

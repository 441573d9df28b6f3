/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_DATASET_H
#define PLAIT_DATASET_H

#include "data.h"
#include "segment.h"

struct plait_dataset {
    char *path; /* as the user wrote it */
    int nsegments;
    struct plait_segment *segments;
    int64_t tokens;
};

#endif

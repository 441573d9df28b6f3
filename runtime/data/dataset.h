/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_DATASET_H
#define PLAIT_RUNTIME_DATA_DATASET_H

#include "runtime/data/data.h"
#include "runtime/data/segment.h"

struct plait_dataset {
    char *path; /* as the user wrote it */
    int nsegments;
    struct plait_segment *segments;
    int64_t tokens;
    int64_t images; /* 0: a dataset of tokens */
};

#endif

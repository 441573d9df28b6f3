/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_API_JOB_H
#define PLAIT_TOPOLOGY_API_JOB_H

#include "topology/job/gpu_types.h"
#include "topology/job/job_config.h"
#include "topology/plan/plan.h"

/* What plait/plan.h builds step by step: a request that owns its nodes. */
struct plait_job {
    struct plait_layout layout;
    enum plait_placement placement;
    int nnodes;
    char **names; /* owned, each of them too */
    int *tasks;
    const struct plait_fabric *fabric;
    const struct plait_node *node;
    const struct plait_job_config *config;
    struct plait_gpu_type gpu;
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_ESTIMATE_COMMS_H
#define PLAIT_TOPOLOGY_PREDICT_ESTIMATE_COMMS_H

#include "topology/predict/estimate_shape.h"

/* The memory that NCCL's communicators take on a GPU. No two of Plait's share
 * buffers, as each must be able to fail alone. */

/* The channels that runtime/comm/nccl/policy.c allows: sums of gradients and
 * messages in a domain, messages to one peer beyond it, and of NVSwitches tp's
 * sums. tests/unit/test_policy.c compares. */
enum {
    PLAIT_LIMITED_CTAS = 16,
    PLAIT_PEER_CTAS = 4,
    PLAIT_TENSOR_NVLS_CTAS = 24
};

/* A communicator, as one of its ranks has it. */
struct plait_comm_group {
    double ranks;
    double inside;   /* of them in one NVLink domain */
    bool messages;   /* sends and receives; else it sums and gathers */
    double peers;    /* of messages, in the domain */
    double channels; /* at most (runtime/comm/nccl/policy.c); 0: NCCL's own */
    double switched; /* channels of sums by NVSwitches; 0: NCCL's own */
};
double plait_comm_group_bytes(const struct plait_gpu_type *gpu,
                              const struct plait_comm_group *group);

/* Of all communicators of a rank of pipeline stage `stage`; 0 on CPUs. */
double plait_shape_communicators(const struct plait_shape *shape, int stage);

#endif

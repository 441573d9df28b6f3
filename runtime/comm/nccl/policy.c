/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/nccl/policy.h"

/* Multiprocessors, of 132 on an H100. Gradients are reduced while backward
 * computes, which must keep most of them; a pipeline message needs few. */
#define GRADIENT_CTAS 16
#define MESSAGE_CTAS 4
/* Over NVLink a message of four moves a quarter of what it could. */
#define NEAR_MESSAGE_CTAS 16
/* Compute waits for tensor parallel sums, so they get at least this many where
 * NVLink joins all ranks, within a node or a rack. NCCL takes 16 for NVLS on
 * Hopper and 24 on Blackwell. */
#define TENSOR_CTAS 16
#define TENSOR_NVLS_CTAS 24
#define CHANNELS_PER_PEER 4
/* What NCCL mostly takes where it is not told. */
#define ROOM_CTAS 16

/* The entry of plait_site_network.traffic_class for the axis, -1: none. */
static int class_of(enum plait_comm_axis axis)
{
    switch (axis) {
    case PLAIT_COMM_AXIS_TP:
        return PLAIT_TP;
    case PLAIT_COMM_AXIS_CP:
        return PLAIT_CP;
    case PLAIT_COMM_AXIS_EP:
        return PLAIT_EP;
    case PLAIT_COMM_AXIS_DP:
    case PLAIT_COMM_AXIS_EMBEDDING:
        return PLAIT_DP;
    case PLAIT_COMM_AXIS_PP:
        return PLAIT_PP;
    case PLAIT_COMM_AXIS_NONE:
        break;
    }
    return -1;
}

static void choose_network(const struct plait_group_site *site,
                           struct plait_group_policy *p)
{
    int class = class_of(site->axis);

    if (!site->known || class < 0)
        return;
    p->traffic_class = site->network->traffic_class[class];
    /* Network switches can serve few groups. Those that reduce gradients
     * over the network gain most. */
    if (site->network->sharp)
        p->collnet = class == PLAIT_DP && site->domains > 1;
}

void plait_group_policy_choose(const struct plait_group_site *site,
                               struct plait_group_policy *policy)
{
    /* Windows need the buffer at the same offset on all ranks. Those of tied
     * embeddings differ: the two stages hold different regions. */
    struct plait_group_policy p = {.collnet = -1,
                                   .traffic_class = -1,
                                   .room = ROOM_CTAS,
                                   .windows =
                                       site->axis == PLAIT_COMM_AXIS_TP ||
                                       site->axis == PLAIT_COMM_AXIS_DP};

    switch (site->axis) {
    case PLAIT_COMM_AXIS_TP:
        p.room = TENSOR_NVLS_CTAS;
        if (site->known && site->domains == 1) {
            p.min_ctas = TENSOR_CTAS;
            p.nvls_ctas = TENSOR_NVLS_CTAS;
        }
        break;
    case PLAIT_COMM_AXIS_DP:
    case PLAIT_COMM_AXIS_EMBEDDING:
        p.max_ctas = GRADIENT_CTAS;
        p.efficient = true;
        break;
    case PLAIT_COMM_AXIS_PP:
        p.max_ctas = site->known && site->domains == 1 ? NEAR_MESSAGE_CTAS
                                                       : MESSAGE_CTAS;
        p.channels_per_peer = CHANNELS_PER_PEER;
        break;
    case PLAIT_COMM_AXIS_EP:
        p.channels_per_peer = CHANNELS_PER_PEER;
        break;
    case PLAIT_COMM_AXIS_CP:
    case PLAIT_COMM_AXIS_NONE:
        break;
    }
    choose_network(site, &p);
    *policy = p;
}

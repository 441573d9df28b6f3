/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/policy.h"

#include <string.h>

/* Multiprocessors that gradients may take from the backward that they travel
 * beside, of 132 on an H100; and what a stage's message, which is in nobody's
 * way, needs at most. */
#define GRADIENT_CTAS 16
#define MESSAGE_CTAS 4
/* Compute waits for tensor parallel sums: no fewer than these where a node's
 * links carry them. NCCL takes 16 for NVLS on Hopper and 24 on Blackwell. */
#define TENSOR_CTAS 16
#define TENSOR_NVLS_CTAS 24
#define CHANNELS_PER_PEER 4

/* The axis whose traffic a group carries, -1: control values alone. */
static int axis_of(const char *name)
{
    static const struct {
        const char *prefix;
        int axis;
    } known[] = {
        {"tp-pp", -1},           {"tp", PLAIT_TP}, {"cp", PLAIT_CP},
        {"ep", PLAIT_EP},        {"dp", PLAIT_DP}, {"expert-dp", PLAIT_DP},
        {"embedding", PLAIT_DP}, {"pp", PLAIT_PP},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strncmp(name, known[i].prefix, strlen(known[i].prefix)) == 0)
            return known[i].axis;
    return -1;
}

static void choose_network(const struct plait_group_site *site, int axis,
                           struct plait_group_policy *p)
{
    bool sums = axis == PLAIT_DP && !site->one_node;

    p->traffic_class = site->network->traffic_class[axis];
    /* The switches have room for few groups: for those that gain most. */
    if (site->network->sharp)
        p->collnet = sums;
}

/* Sums and gathers, which windows are for. The two ends of a pipeline are
 * not alike: what they sum lies elsewhere in memory on each. */
static bool has_windows(const char *name, int axis)
{
    return (axis == PLAIT_TP || axis == PLAIT_DP) &&
           strcmp(name, "embedding") != 0;
}

void plait_group_policy_choose(const char *name,
                               const struct plait_group_site *site,
                               struct plait_group_policy *policy)
{
    int axis = axis_of(name);
    struct plait_group_policy p = {
        .collnet = -1, .traffic_class = -1, .windows = has_windows(name, axis)};

    switch (axis) {
    case PLAIT_TP:
        if (site->known && site->one_node) {
            p.min_ctas = TENSOR_CTAS;
            p.nvls_ctas = TENSOR_NVLS_CTAS;
        }
        break;
    case PLAIT_DP:
        p.max_ctas = GRADIENT_CTAS;
        p.efficient = true;
        break;
    case PLAIT_PP:
        p.max_ctas = MESSAGE_CTAS;
        p.channels_per_peer = CHANNELS_PER_PEER;
        break;
    case PLAIT_EP:
        p.channels_per_peer = CHANNELS_PER_PEER;
        break;
    }
    if (site->known && axis >= 0)
        choose_network(site, axis, &p);
    *policy = p;
}

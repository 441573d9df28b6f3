/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_POLICY_H
#define PLAIT_POLICY_H

#include <stdbool.h>

#include "runtime/comm/comm_private.h"

/* What a group asks of NCCL (ncclConfig_t), by what its axis does and where
 * its ranks are. 0: NCCL's own choice, if nothing else is said. */
struct plait_group_policy {
    int min_ctas, max_ctas;
    int nvls_ctas;         /* where NVSwitches add up */
    int channels_per_peer; /* over the network */
    int collnet;           /* 1: switches of the network add up; 0: they must
                              not; -1: NCCL's choice */
    int traffic_class;     /* -1: NCCL's */
    bool efficient;        /* rather fewer CTAs than the last of the speed */
    bool windows;          /* collectives work on the ranks' memory as it is:
                              plait_comm_alloc()'s is registered */
};

/* `name` is a group's (runtime/parallel/parallel.h): "tp", "dp-cp", ... */
void plait_group_policy_choose(const char *name,
                               const struct plait_group_site *site,
                               struct plait_group_policy *policy);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_NCCL_POLICY_H
#define PLAIT_RUNTIME_COMM_NCCL_POLICY_H

#include <stdbool.h>

#include "runtime/comm/backend.h"

/* The settings of a group's NCCL communicator (ncclConfig_t), by its axis and
 * by where its ranks are. 0 means NCCL's default unless another value is
 * named. */
struct plait_group_policy {
    int min_ctas, max_ctas;
    int nvls_ctas;         /* for reductions in NVSwitches (NVLS) */
    int channels_per_peer; /* over the network */
    int collnet;           /* 1: reductions in network switches (SHARP); 0:
                              none there; -1: NCCL's default */
    int traffic_class;     /* -1: NCCL's default */
    int room;              /* how many a collective is thought to take; the
                              same wherever the ranks are, as products go by it
                              whose bits must not differ between ranks */
    bool efficient;        /* NCCL_CTA_POLICY_EFFICIENCY: fewer CTAs */
    bool windows;          /* register plait_comm_alloc()'s memory, so that
                              collectives use it without copies */
};

void plait_group_policy_choose(const struct plait_group_site *site,
                               struct plait_group_policy *policy);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_DCP_NAMES_H
#define PLAIT_RUNTIME_CONVERT_DCP_NAMES_H

#include "runtime/checkpoint/hf_map.h"
#include "runtime/convert/dcp.h"

/* Under which names a checkpoint of DCP's has the weights of a model: those of
 * transformers, or those of torchtitan and Meta. */

struct plait_dcp_names {
    bool titan;
    char prefix[128]; /* of all names, such as "model." */
};

/* The names that the checkpoint has, by that of the embedding. -1 with EINVAL:
 * it has none, or several models. */
int plait_dcp_names_find(const struct plait_dcp *dcp, bool gpt2,
                         struct plait_dcp_names *names,
                         struct plait_error *err);

/* Where one of Plait's tensors is. */
struct plait_dcp_place {
    int tensor;     /* of the checkpoint; -1: it has none that fits */
    int nlead;      /* 1: of all experts in one tensor, */
    uint64_t lead;  /* it is this one's */
    int half;       /* -1, or which half of the rows: gate or up */
    char name[256]; /* that is looked for, without the prefix */
};

void plait_dcp_names_place(const struct plait_dcp *dcp,
                           const struct plait_dcp_names *names,
                           const struct plait_hf_tensor *tensor,
                           struct plait_dcp_place *place);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_VISIBLE_H
#define PLAIT_TOPOLOGY_START_VISIBLE_H

#include <stddef.h>

#include "topology/base/error.h"
#include "topology/node/node.h"

/* The GPUs of a step on this node, as CUDA_VISIBLE_DEVICES names them. */

#define PLAIT_VISIBLE_MOST 64

struct plait_visible {
    int n;
    char id[PLAIT_VISIBLE_MOST][48]; /* "0", "GPU-8932f937-...", "MIG-..." */
};

/* Read a list such as "0,1,3"; NULL, "" and Slurm's "NoDevFiles" are empty. */
int plait_visible_parse(const char *text, struct plait_visible *visible,
                        struct plait_error *err);

/* Write the list in the order `order[0..n-1]` of its indices; -1: `size` is
 * too small. */
int plait_visible_format(const struct plait_visible *visible, const int *order,
                         char *buf, size_t size);

/* Which GPU of the node each entry is: `index[i]` into node->gpus. `step` is
 * SLURM_STEP_GPUS, Slurm's own numbers; with device cgroups the entries count
 * from 0 among those. Both number the GPUs in the order of their PCI addresses,
 * as node->gpus does, which need not be that of the device files. 0, or -1 if
 * the GPUs cannot be matched. */
int plait_visible_match(const struct plait_visible *visible,
                        const struct plait_visible *step,
                        const struct plait_node *node, int *index);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_VISIBLE_H
#define PLAIT_TOPOLOGY_START_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>

#include "topology/base/error.h"
#include "topology/node/node.h"

/* The GPUs of a step on this node, as CUDA_VISIBLE_DEVICES names them. */

#define PLAIT_VISIBLE_MOST 64

struct plait_visible {
    int n;
    char id[PLAIT_VISIBLE_MOST][64]; /* "0", "GPU-8932f937-...", "MIG-..." */
    const char *vendor; /* whose GPUs the list counts: "nvidia", "amd",
                           "intel"; NULL: NVIDIA's */
    bool cards;         /* the numbers are those of Intel's cards, "0" or
                           "0.1", and not of their tiles */
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
 * from 0 among those. NVIDIA's and Intel's numbers follow the PCI addresses,
 * which need not be the order of the device files, AMD's those of its driver;
 * UUIDs name one GPU. 0, or -1 with the reason in `err` if the GPUs cannot be
 * matched for sure. */
int plait_visible_match(const struct plait_visible *visible,
                        const struct plait_visible *step,
                        const struct plait_node *node, int *index,
                        struct plait_error *err);

#endif

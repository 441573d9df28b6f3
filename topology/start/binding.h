/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_BINDING_H
#define PLAIT_TOPOLOGY_START_BINDING_H

#include "topology/layout/launch.h"
#include "topology/node/node.h"
#include "topology/start/visible.h"

/* Which GPU, NICs and cores each task of a node gets. Pure: no Slurm. */
struct plait_binding {
    struct plait_visible visible;     /* Slurm's list, empty without GPUs */
    int permuted[PLAIT_VISIBLE_MOST]; /* new order of that list */
    int known;                        /* 1: gpu[] are indices into node->gpus */
    int gpu[PLAIT_VISIBLE_MOST]; /* in the new order: the index in node->gpus,
                                    or Slurm's number of the GPU, or -1 */
};

/* Order the visible GPUs so that tp groups of consecutive tasks are best
 * connected. `step` is SLURM_STEP_GPUS; empty where Slurm gave no GPUs, and
 * then nothing is reordered; `err` says why where the GPUs cannot be matched.
 */
void plait_binding_fill(struct plait_binding *binding,
                        const struct plait_visible *visible,
                        const struct plait_visible *step,
                        const struct plait_node *node, int tp,
                        struct plait_error *err);

/* The union of the masks in SLURM_CPU_BIND_LIST ("0x3,0xc"): the cores that
 * Slurm gave to the step's tasks on this node. -1, with `set` unchanged, if
 * the text is not such a list. */
int plait_binding_parse_masks(const char *text, hwloc_bitmap_t set);

/* Fill in gpu, gpu_busid and nics of task `local`. */
void plait_binding_describe(const struct plait_binding *binding,
                            const struct plait_node *node, int local,
                            struct plait_launch *launch);

#endif

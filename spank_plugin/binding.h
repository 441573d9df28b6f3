/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SEAT_H
#define PLAIT_SEAT_H

#include "topology/launch.h"
#include "topology/node.h"
#include "visible.h"

/* Which GPU, NICs and cores each task of a node gets. Pure: no Slurm. */
struct plait_seats {
    struct plait_visible visible;     /* Slurm's list, empty without GPUs */
    int permuted[PLAIT_VISIBLE_MOST]; /* new order of that list */
    int known;                        /* gpu[] are indices into node->gpus */
    int gpu[PLAIT_VISIBLE_MOST];      /* in the new order: the node's index, or
                                         what Slurm calls the GPU, or -1 */
};

/* Order the visible GPUs so that tp groups of consecutive tasks are best
 * connected. `step` is SLURM_STEP_GPUS; empty where Slurm gave no GPUs, and
 * then nothing is reordered. `nvidia` as in plait_visible_match(). */
void plait_seats_fill(struct plait_seats *seats,
                      const struct plait_visible *visible,
                      const struct plait_visible *step,
                      const struct plait_node *node, int tp,
                      const char *nvidia);

/* The union of the masks in SLURM_CPU_BIND_LIST ("0x3,0xc"): the cores that
 * Slurm gave to the step's tasks on this node. -1 if the text is no such
 * list, and `set` is then unchanged. */
int plait_seats_parse_masks(const char *text, hwloc_bitmap_t set);

/* Fill in gpu, gpu_busid and nics of task `local`. */
void plait_seats_describe(const struct plait_seats *seats,
                          const struct plait_node *node, int local,
                          struct plait_launch *launch);

#endif

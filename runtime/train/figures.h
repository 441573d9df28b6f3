/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_FIGURES_H
#define PLAIT_RUNTIME_TRAIN_FIGURES_H

#include "runtime/comm/world.h"
#include "topology/job/site.h"

/* What is known about the machines of this run: figures of rank 0's device
 * and its links, and what the network can do, from the site's file where
 * there is one (plait-site(5)), else from the tables. */
struct plait_figures {
    struct plait_gpu_type gpu;
    struct plait_site_network network;
};

/* Collective: the same on all ranks. */
int plait_figures_find(const struct plait_world *world,
                       const struct plait_layout *layout,
                       struct plait_figures *figures, struct plait_error *err);

/* The type of this rank's device, guessed from its name, into *gpu, with the
 * site's figures. -1: the type is unknown. */
int plait_figures_device(const struct plait_world *world,
                         struct plait_gpu_type *gpu);

/* Whether the site lets runs write into the comments of their jobs. */
bool plait_figures_job_comment(void);

#endif

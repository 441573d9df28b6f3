/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_WORLD_DEVICE_H
#define PLAIT_RUNTIME_COMM_WORLD_DEVICE_H

#include "runtime/comm/world.h"

/* What the ranks of a world compute on: each chooses by itself, and then all
 * agree. */

/* A number of the launcher's environment. */
int plait_env_int(const char *name, int fallback);

/* How many GPUs the ranks of a node share; 0: each has its own. NCCL wants
 * one rank a GPU, so that ranks which share talk through host memory. */
int plait_shared_gpus(void);

/* Sets ops, dev and what is said of this rank's place. Not collective. */
int plait_world_choose(struct plait_world *w, const char *device,
                       struct plait_error *err);

/* Collective over `met`: -1 on all where plait_world_choose() failed on any
 * (rc), where some are on GPUs and some not, and where two have one GPU and
 * were not asked to share; one of them has text in err. */
int plait_world_agree(struct plait_world *w, struct plait_comm *met, int rc,
                      struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_WORLD_DEVICE_H
#define PLAIT_RUNTIME_COMM_WORLD_DEVICE_H

#include "runtime/comm/world.h"

/* What the ranks of a world compute on: each rank chooses for itself, then all
 * agree. */

/* An integer of the environment. */
int plait_env_int(const char *name, int fallback);

/* How many GPUs the ranks of a node share; 0: each has its own. NCCL requires
 * one GPU per rank, so ranks that share communicate through host memory. */
int plait_shared_gpus(void);

/* Sets ops, dev and the fields about this rank's place. A GPU is the one of the
 * address w->gpu.busid, unless that is "". Not collective. */
int plait_world_choose(struct plait_world *w, const char *device,
                       struct plait_error *err);

/* Collective over `met`: -1 on all ranks where plait_world_choose() failed on
 * any (rc), where only some are on GPUs, or where two have the same GPU without
 * being asked to share. One rank has text in err. */
int plait_world_agree(struct plait_world *w, struct plait_comm *met, int rc,
                      struct plait_error *err);

/* Collective over `met`: -1 with err on ranks whose GPU is also that of a lower
 * one. */
int plait_world_check_own(const struct plait_world *w, struct plait_comm *met,
                          struct plait_error *err);

#endif

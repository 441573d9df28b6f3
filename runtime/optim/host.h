/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_HOST_H
#define PLAIT_RUNTIME_OPTIM_HOST_H

#include "runtime/parallel/shard.h"

/* The step where masters and states live in the host's memory: gradients
 * come and weights go through pinned memory, a piece at a time, while the
 * host's cores step the piece before. */
struct plait_optim_host;

/* NULL: no memory. */
struct plait_optim_host *plait_optim_host_create(struct plait_shards *shards);
void plait_optim_host_destroy(struct plait_optim_host *host);

/* A run of elements by the rule p, its gradients and weights the device's,
 * the rest the host's; its weights are on their way when the next run is
 * given, or after plait_optim_host_finish(). */
int plait_optim_host_step(struct plait_optim_host *host,
                          const struct plait_update *p,
                          const struct plait_update_run *run);
/* What the compute queue does next sees all weights. */
int plait_optim_host_finish(struct plait_optim_host *host);

/* A shard's weights from its masters; complete on the compute queue. */
int plait_optim_host_follow(struct plait_optim_host *host,
                            const struct plait_shard *s);

#endif

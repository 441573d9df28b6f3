/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_HOST_H
#define PLAIT_RUNTIME_OPTIM_HOST_H

#include "kernels/kernels.h"
#include "runtime/parallel/shard.h"

/* The optimizer step when masters and states are in host memory: gradients and
 * weights are transferred through pinned memory, a piece at a time, while the
 * host's cores update the piece before. */
struct plait_optim_host;

/* NULL: out of memory. */
struct plait_optim_host *plait_optim_host_create(struct plait_shards *shards);
void plait_optim_host_destroy(struct plait_optim_host *host);

/* Updates a run by the rule p; gradients and weights are on the device, the
 * rest in host memory. Its weights are on their way to the device after the
 * next call, or after plait_optim_host_finish(). */
int plait_optim_host_step(struct plait_optim_host *host,
                          const struct plait_update *p,
                          const struct plait_update_run *run);
/* Work queued on the compute queue after this sees all weights. */
int plait_optim_host_finish(struct plait_optim_host *host);

/* Computes a shard's weights from its masters; complete on the compute
 * queue. */
int plait_optim_host_follow(struct plait_optim_host *host,
                            const struct plait_shard *s);

#endif

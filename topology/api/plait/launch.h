/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_LAUNCH_H
#define PLAIT_LAUNCH_H

#include <plait/error.h>
#include <plait/export.h>
#include <plait/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a task of a planned step finds in its environment: PLAIT_RANK and the
 * other variables of spank_plait(8). */
struct plait_launch;

/* Read this process's environment. The caller owns the result, which keeps
 * no pointer into the environment. NULL with ENOENT: this process was not
 * started under a plan; with EINVAL: the variables contradict each other;
 * with ENOMEM. `err` says so. */
PLAIT_EXPORT struct plait_launch *plait_launch_create(struct plait_error *err);
/* NULL-safe, keeps errno. */
PLAIT_EXPORT void plait_launch_destroy(struct plait_launch *launch);

PLAIT_EXPORT int plait_launch_rank(const struct plait_launch *launch);
PLAIT_EXPORT int plait_launch_world_size(const struct plait_launch *launch);
PLAIT_EXPORT int plait_launch_local_rank(const struct plait_launch *launch);
PLAIT_EXPORT int
plait_launch_local_world_size(const struct plait_launch *launch);
PLAIT_EXPORT int plait_launch_node_rank(const struct plait_launch *launch);
PLAIT_EXPORT int plait_launch_nodes(const struct plait_launch *launch);

/* The layout of the step, which belongs to the launch. */
PLAIT_EXPORT const struct plait_layout *
plait_launch_layout(const struct plait_launch *launch);
/* This task's coordinate along one axis, from 0; -1 with EINVAL: no such
 * axis. */
PLAIT_EXPORT int plait_launch_coordinate(const struct plait_launch *launch,
                                         enum plait_axis axis);

/* The index of this task's GPU; -1: it has none. The texts belong to the
 * launch and are "" where they are unknown: the GPU's bus id, its NICs
 * ("mlx5_0,mlx5_1"), the CPUs it is bound to ("0-7,16-23"), the job and step
 * ("job.step"). */
PLAIT_EXPORT int plait_launch_gpu(const struct plait_launch *launch);
PLAIT_EXPORT const char *
plait_launch_gpu_busid(const struct plait_launch *launch);
PLAIT_EXPORT const char *plait_launch_nics(const struct plait_launch *launch);
PLAIT_EXPORT const char *plait_launch_cpus(const struct plait_launch *launch);
PLAIT_EXPORT const char *plait_launch_jobid(const struct plait_launch *launch);

/* Where the ranks meet: the host of rank 0, "" and port 0 where the step has
 * no rendezvous. The text belongs to the launch. */
PLAIT_EXPORT const char *
plait_launch_master_addr(const struct plait_launch *launch);
PLAIT_EXPORT int plait_launch_master_port(const struct plait_launch *launch);

#ifdef __cplusplus
}
#endif
#endif

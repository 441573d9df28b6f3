/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PLAN_H
#define PLAIT_PLAN_H

#include <plait/config.h>
#include <plait/error.h>
#include <plait/export.h>
#include <plait/fabric.h>
#include <plait/layout.h>
#include <plait/node.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is to be placed: a layout, the nodes, and what is known of them. */
struct plait_job;

enum plait_placement {
    PLAIT_PLACE_TOPOLOGY, /* the order of nodes that costs least */
    PLAIT_PLACE_LINEAR    /* Slurm's own order */
};

/* A job of a copy of `layout`, without nodes; topology placement, H100 GPUs
 * and a flat fabric where nothing else is set. The caller owns it. NULL with
 * ENOMEM. */
PLAIT_EXPORT struct plait_job *
plait_job_create(const struct plait_layout *layout);
/* NULL-safe, keeps errno. */
PLAIT_EXPORT void plait_job_destroy(struct plait_job *job);

/* Append the nodes of a Slurm host list such as "n[1-4,7]", each with
 * `tasks` tasks. The order of the calls and names is Slurm's order. -1: not a
 * host list, no tasks, or out of memory, as `err` says. */
PLAIT_EXPORT int plait_job_add_nodes(struct plait_job *job, const char *list,
                                     int tasks, struct plait_error *err);

/* The switches, what each node looks like, and the model whose traffic is to
 * be placed (without it a GPT of 7 billion parameters). The job only points
 * to them: they stay the caller's, and must live until the job is destroyed.
 * NULL takes back what was set. */
PLAIT_EXPORT void plait_job_set_fabric(struct plait_job *job,
                                       const struct plait_fabric *fabric);
PLAIT_EXPORT void plait_job_set_node(struct plait_job *job,
                                     const struct plait_node *node);
PLAIT_EXPORT void plait_job_set_config(struct plait_job *job,
                                       const struct plait_job_config *config);
PLAIT_EXPORT void plait_job_set_placement(struct plait_job *job,
                                          enum plait_placement placement);
/* What the GPUs and links can do: "h100", "a100-80g", ... -1: `err` lists the
 * types there are. */
PLAIT_EXPORT int plait_job_set_gpu_type(struct plait_job *job, const char *type,
                                        struct plait_error *err);

/* For every task of a job: node, GPU, coordinates and rank. */
struct plait_job_plan;

/* Place the job. Deterministic: the same job gives the same plan on every
 * host. The plan keeps no pointer to the job; the caller owns it. NULL: `err`
 * says why the layout does not fit the nodes. */
PLAIT_EXPORT struct plait_job_plan *
plait_job_plan_create(const struct plait_job *job, struct plait_error *err);
/* NULL-safe, keeps errno. */
PLAIT_EXPORT void plait_job_plan_destroy(struct plait_job_plan *plan);

/* What the plan could not take into account, as one line without a newline,
 * which belongs to the plan: a node that is in no switch of the fabric, so that
 * the nodes stay in Slurm's order. NULL: nothing. */
PLAIT_EXPORT const char *
plait_job_plan_warning(const struct plait_job_plan *plan);

/* The number of tasks. */
PLAIT_EXPORT int plait_job_plan_tasks(const struct plait_job_plan *plan);

/* Of task `task`, 0 .. tasks - 1, which is its SLURM_PROCID: the name of its
 * node, which belongs to the plan; its place among the tasks of the node; the
 * index of its GPU there, -1 where it has none; its RANK; the place of its
 * node among the nodes. NULL or -1 with EINVAL: no such task. */
PLAIT_EXPORT const char *plait_job_plan_node(const struct plait_job_plan *plan,
                                             int task);
PLAIT_EXPORT int plait_job_plan_local_rank(const struct plait_job_plan *plan,
                                           int task);
PLAIT_EXPORT int plait_job_plan_gpu(const struct plait_job_plan *plan,
                                    int task);
PLAIT_EXPORT int plait_job_plan_rank(const struct plait_job_plan *plan,
                                     int task);
PLAIT_EXPORT int plait_job_plan_node_rank(const struct plait_job_plan *plan,
                                          int task);
/* Its coordinate along one axis, from 0. -1 with EINVAL: no such task or
 * axis. */
PLAIT_EXPORT int plait_job_plan_coordinate(const struct plait_job_plan *plan,
                                           int task, enum plait_axis axis);

/* Predicted seconds of communication along one axis in a step; of all axes
 * where `axis` is PLAIT_NAXES. PLAIT_PLACE_TOPOLOGY asks for the order of
 * nodes of this plan, PLAIT_PLACE_LINEAR for Slurm's. -1 with EINVAL: no such
 * axis. */
PLAIT_EXPORT double plait_job_plan_seconds(const struct plait_job_plan *plan,
                                           enum plait_axis axis,
                                           enum plait_placement placement);

#ifdef __cplusplus
}
#endif
#endif

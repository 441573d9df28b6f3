/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_REQUEST_H
#define PLAIT_TOPOLOGY_START_REQUEST_H

#include "topology/job/job_config.h"
#include "topology/job/site.h"
#include "topology/plan/traffic.h"
#include "topology/start/options.h"

/* What the flags ask for, with the model's file where --model names one: the
 * same as in `plait plan` with these flags. For srun, sbatch and salloc, with
 * the user's rights. */
struct plait_job_request {
    const struct plait_options *options;
    struct plait_job_config *config; /* NULL: no --model */
    struct plait_gpu_type gpu;
    struct plait_traffic traffic;
};

/* The GPU type is the site file's, or h100 where `site` is NULL. Errors are
 * those of the model's file. */
int plait_job_request_open(struct plait_job_request *request,
                           const struct plait_options *options,
                           const struct plait_site *site,
                           struct plait_error *err);
void plait_job_request_close(struct plait_job_request *request);

/* The layout for `tasks` tasks, `per_node` on each node (0: not known). */
int plait_job_request_resolve(struct plait_job_request *request, int tasks,
                              int per_node, struct plait_layout *layout,
                              struct plait_error *err);

/* Whether the model's training fits the memory of `tasks` GPUs in this layout,
 * by plait estimate; -1, with the nearest sizes that would fit, if not. 0 also
 * where that is unknown: without a model, or with one that the layout does not
 * divide. */
int plait_job_request_fits(const struct plait_job_request *request,
                           const struct plait_layout *layout, int tasks,
                           struct plait_error *err);

/* Fill in the layout, rank order, placement, traffic and GPU type of a plan
 * request whose nodes and tasks are set. `request` must outlive it. */
int plait_job_request_to_plan(struct plait_job_request *request,
                              struct plait_plan_request *plan_request,
                              struct plait_error *err);

#endif

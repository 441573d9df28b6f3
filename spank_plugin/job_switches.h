/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_JOB_SWITCHES_H
#define PLAIT_SPANK_PLUGIN_JOB_SWITCHES_H

#include <stdint.h>

#include "topology/start/switches.h"

/* The switches between the nodes of a job's step, those of its partition, for
 * `request` too; the caller owns them. NULL: the nodes stay in Slurm's order.
 * Where switches are missing, srun says so. */
struct plait_fabric *plait_job_switches(struct plait_plan_request *request,
                                        uint32_t job);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the switches of a job's partition, for srun. */
#include "spank_plugin/job_switches.h"

#include <stdbool.h>
#include <stdio.h>

#include <slurm/spank.h>

#include "spank_plugin/slurm_api.h"

/* A job may have been submitted to several partitions; slurmctld knows in which
 * it runs. */
static bool find_partition(uint32_t job, char *name, size_t size)
{
    job_info_msg_t *jobs = NULL;
    bool found;

    if (plait_slurm_load_job(&jobs, job) != SLURM_SUCCESS || !jobs)
        return false;
    found = jobs->record_count && jobs->job_array[0].partition;
    if (found)
        snprintf(name, size, "%s", jobs->job_array[0].partition);
    slurm_free_job_info_msg(jobs);
    return found;
}

struct plait_fabric *plait_job_switches(struct plait_plan_request *request,
                                        uint32_t job)
{
    struct plait_error warning = {""};
    struct plait_fabric *fabric;
    char name[256];
    bool found = plait_switches_matter(request) &&
                 find_partition(job, name, sizeof(name));

    fabric = plait_switches_ask(request, found ? name : NULL, &warning);
    if (warning.text[0])
        slurm_info("plait: warning: %s", warning.text);
    return fabric;
}

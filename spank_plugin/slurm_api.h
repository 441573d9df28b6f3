/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_SLURM_API_H
#define PLAIT_SPANK_PLUGIN_SLURM_API_H

#include <signal.h>

#include <slurm/slurm.h>

/* Calls whose names or arguments changed between 22.05 and 26.05. */

static inline int plait_slurm_load_job(job_info_msg_t **jobs, uint32_t id)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
    slurm_step_id_t step = {
        .job_id = id, .step_het_comp = NO_VAL, .step_id = NO_VAL};

    return slurm_load_job(jobs, step, 0);
#else
    return slurm_load_job(jobs, id, 0);
#endif
}

static inline void plait_slurm_kill_step(slurm_step_id_t *id)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
    slurm_kill_job_step(id, SIGKILL, 0);
#elif SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
    slurm_kill_job_step(id->job_id, id->step_id, SIGKILL, 0);
#else
    slurm_kill_job_step(id->job_id, id->step_id, SIGKILL);
#endif
}

static inline void plait_slurm_free_conf(slurm_conf_t *conf)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
    slurm_free_conf(conf);
#else
    slurm_free_ctl_conf(conf);
#endif
}

#endif

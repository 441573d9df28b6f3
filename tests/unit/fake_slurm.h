/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_FAKE_SLURM_H
#define PLAIT_TESTS_UNIT_FAKE_SLURM_H

#include "spank_plugin/plugin.h"

/* A fake Slurm for the plugin to call, in the same process: it takes the place
 * of slurmstepd and srun, and behaves as they do. */
struct fake_slurm {
    spank_context_t context;
    struct spank_option options[32];
    int noptions;
    uint32_t job, step, nnodes, nodeid, local_tasks, tasks;
    int local;
    char *env[128];
    char said[4096];
    const char *mpi_params, *partition, *gres;
    const char *last_gres; /* of n4; NULL: as on the others */
    int silent_nodes;      /* 1: slurmctld tells nothing of them */
    /* srun's own options, and those that the plugin set */
    const char *ntasks, *ntasks_per_node, *node_count, *gpus_per_task,
        *tres_per_task, *interactive, *async, *relative;
    char set[256];
    const char *account;
    int killed; /* how often the step was */
};

extern int MPIR_debug_state;

extern struct fake_slurm slurm;

/* Resets everything to job 77, step 0, 8 tasks on 4 nodes. */
void fake_slurm_reset(spank_context_t context);
/* Passes one of the plugin's flags; returns what its callback returns. */
int fake_slurm_flag(const char *name, const char *value);
/* A variable of the job's environment, or "(unset)". */
const char *fake_slurm_env(const char *name);

#endif

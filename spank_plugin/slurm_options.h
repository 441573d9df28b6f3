/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_SLURM_OPTIONS_H
#define PLAIT_SPANK_PLUGIN_SLURM_OPTIONS_H

/* Slurm's own options of this srun, sbatch or salloc, as far as they are known
 * once all are read (#SBATCH lines and SLURM_* variables too). */
struct plait_slurm_options {
    int tasks;         /* 0: not given */
    int per_node;      /* tasks on every node; 0: not given */
    int gpus_per_task; /* 1: given by the user; the next four too */
    int cpu_bind;
    int gpu_bind;
    int mem_bind;
    int resv_ports;
    int nodelist;          /* --nodelist names the nodes */
    int relative;          /* --relative counts them in the job */
    int interactive;       /* this srun starts salloc's shell */
    int async;             /* this srun ends before its step starts */
    const char *exclude;   /* NULL: not given */
    const char *cpus;      /* --cpus-per-task; NULL: not given */
    const char *partition; /* NULL: not given; the next two too */
    const char *account;
    const char *qos;
    const char *gpus; /* "h100:8", "gpu:h100:8"; NULL: not given */
};

void plait_slurm_options_read(struct plait_slurm_options *options);

/* Set one of Slurm's own options, unless the user or the environment did. Does
 * nothing where this Slurm has no function for it. */
void plait_slurm_options_set_default(const char *name, const char *value);

/* The same, also where the option is set already. -1 where this Slurm has no
 * function for it, or refuses the value. */
int plait_slurm_options_set(const char *name, const char *value);

/* The tasks of the job that this command runs in, where the job was submitted
 * with the options that say so; else 0. */
int plait_slurm_job_tasks(void);

#endif

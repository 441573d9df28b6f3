/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_ASKED_H
#define PLAIT_ASKED_H

/* What srun, sbatch or salloc itself was asked for, as far as it is known
 * once all options are read (#SBATCH lines and SLURM_* variables too). */
struct plait_asked {
    int tasks;         /* 0: not said */
    int per_node;      /* tasks on every node; 0: not said */
    int gpus_per_task; /* the user bound or divided these himself */
    int cpu_bind;
    int gpu_bind;
    int mem_bind;
    int resv_ports;
    const char *partition; /* NULL: not said */
    const char *gpus;      /* "h100:8", "gpu:h100:8"; NULL: not said */
};

void plait_asked_read(struct plait_asked *asked);

/* The same, from what `get` says of an option (NULL: not given). */
void plait_asked_fill(struct plait_asked *asked,
                      const char *(*get)(void *arg, const char *name),
                      void *arg);

/* Set one of Slurm's own options, unless the user or the environment did.
 * Nothing happens where this Slurm cannot be told. */
void plait_asked_set(const char *name, const char *value);

#endif

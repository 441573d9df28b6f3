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
};

void plait_asked_read(struct plait_asked *asked);

/* The same, from what `get` says of an option (NULL: not given). */
void plait_asked_fill(struct plait_asked *asked,
                      const char *(*get)(void *arg, const char *name),
                      void *arg);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_LAYOUT_LAUNCH_H
#define PLAIT_TOPOLOGY_LAYOUT_LAUNCH_H

#include "topology/base/error.h"
#include "topology/layout/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The names of the contract's variables that are used one by one; those that
 * are only encoded and decoded stand in the tables of launch.c. */
#define PLAIT_ENV_RANK "PLAIT_RANK" /* set: the process is part of a plan */
#define PLAIT_ENV_ORDER "PLAIT_ORDER"
#define PLAIT_ENV_SECRET "PLAIT_SECRET"
#define PLAIT_ENV_MASTER_ADDR "MASTER_ADDR"
#define PLAIT_ENV_MASTER_PORT "MASTER_PORT"
#define PLAIT_ENV_VISIBLE "CUDA_VISIBLE_DEVICES"
#define PLAIT_ENV_VISIBLE_ORDER "CUDA_DEVICE_ORDER"

/* What srun hands to the nodes beside the flags. Names that start with SLURM
 * survive --export=NONE. */
#define PLAIT_ENV_PLAN "SLURM_PLAIT_PLAN"     /* plait_plan_encode() */
#define PLAIT_ENV_MASTER "SLURM_PLAIT_MASTER" /* "host:port" of RANK 0 */
/* What the user bound himself: any of cpu, gpu, mem, port (MASTER_PORT); and
 * resv: Slurm reserved the port. */
#define PLAIT_ENV_KEEP "SLURM_PLAIT_KEEP"
/* What the site file asks of the nodes: any of nvlink, nccl, ucx. */
#define PLAIT_ENV_SITE "SLURM_PLAIT_SITE"
/* Becomes PLAIT_SECRET. */
#define PLAIT_ENV_STEP_SECRET "SLURM_PLAIT_SECRET"
/* "PORT:TOKEN": where srun waits for the nodes; not passed on to tasks. */
#define PLAIT_ENV_AGREE "SLURM_PLAIT_AGREE"
/* With --preflight, the token by which tasks know each other in it; not passed
 * on to them. */
#define PLAIT_ENV_PREFLIGHT "SLURM_PLAIT_PREFLIGHT"
/* With --spares: this srun is the preflight before the step, and starts no
 * command. */
#define PLAIT_ENV_PREFLIGHT_STEP "SLURM_PLAIT_PREFLIGHT_STEP"
/* Of plait run --elastic: how many processes there are beside the ranks, and in
 * those, which of them this is, from 1 on. */
#define PLAIT_ENV_SPARES "PLAIT_SPARES"
#define PLAIT_ENV_SPARE "PLAIT_SPARE"
/* The values of PLAIT_ENV_PLAN for a step that goes without a plan, and for
 * one whose plan srun refused after the step was made. */
#define PLAIT_NO_PLAN "none"
#define PLAIT_REFUSED_PLAN "refused"

/* 256 bits in hexadecimal. */
#define PLAIT_SECRET_SIZE 65

/* The launch contract: what every task of a planned step finds in its
 * environment. The plugin encodes it, the runtime decodes it; the names of
 * the variables stand here and in launch.c, and nowhere else. */
struct plait_launch {
    struct plait_layout layout;
    struct plait_coord coord;
    int rank, world_size;
    int local_rank, local_world_size;
    int node_rank, nnodes;
    int gpu;            /* index, -1: this task has no GPU */
    char gpu_busid[16]; /* "0000:07:00.0", "" if unknown */
    char nics[256];     /* "mlx5_0,mlx5_1", "" if none */
    char cpus[1024];    /* list of PUs, "0-7,16-23", "" if not bound */
    char jobid[64];     /* "job.step" */
    char master_addr[256];
    int master_port; /* 0: no rendezvous */
    /* Fresh random text of the step, from 32 hex digits up, by which its
     * tasks know each other; "": none. It travels in the environment alone,
     * which other users cannot read, and is never printed. */
    char secret[PLAIT_SECRET_SIZE];
};

/* Call set(arg, name, value) for every variable. `rendezvous` 0 leaves out
 * RANK, WORLD_SIZE, MASTER_ADDR & co. Returns -1 as soon as set() does. */
int plait_launch_encode(const struct plait_launch *launch, int rendezvous,
                        int (*set)(void *arg, const char *name,
                                   const char *value),
                        void *arg);

/* Read the contract through get(arg, name) (NULL: getenv).
 * 1: filled in; 0: this process was not started under a plan; -1: the
 * variables contradict each other, or srun planned for a node without the
 * plugin, described in err. */
int plait_launch_decode(struct plait_launch *launch,
                        const char *(*get)(void *arg, const char *name),
                        void *arg, struct plait_error *err);

/* Does it take this secret: none, or 32 to 64 hexadecimal digits? 0, or -1 and
 * what is wrong. */
int plait_launch_check_secret(const char *secret, struct plait_error *err);

#ifdef __cplusplus
}
#endif
#endif

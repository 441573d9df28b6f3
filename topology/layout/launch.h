/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_LAYOUT_LAUNCH_H
#define PLAIT_TOPOLOGY_LAYOUT_LAUNCH_H

#include "topology/base/error.h"
#include "topology/layout/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names of the launch contract's variables that are used one by one; those that
 * are only encoded and decoded are in the tables of launch.c. */
#define PLAIT_ENV_RANK "PLAIT_RANK" /* set: the process is part of a plan */
#define PLAIT_ENV_ORDER "PLAIT_ORDER"
#define PLAIT_ENV_SECRET "PLAIT_SECRET"
#define PLAIT_ENV_GPU_BUSID "PLAIT_GPU_BUSID"
#define PLAIT_ENV_NICS "PLAIT_NICS"
#define PLAIT_ENV_DOMAIN "PLAIT_NVLINK_DOMAIN"
#define PLAIT_ENV_MASTER_ADDR "MASTER_ADDR"
#define PLAIT_ENV_MASTER_PORT "MASTER_PORT"
#define PLAIT_ENV_VISIBLE "CUDA_VISIBLE_DEVICES"
#define PLAIT_ENV_VISIBLE_ORDER "CUDA_DEVICE_ORDER"

/* What srun passes to the nodes in addition to the flags. Names that start with
 * SLURM survive --export=NONE. */
#define PLAIT_ENV_PLAN "SLURM_PLAIT_PLAN"     /* plait_plan_encode() */
#define PLAIT_ENV_MASTER "SLURM_PLAIT_MASTER" /* "host:port" of RANK 0 */
/* What the user bound himself: any of cpu, gpu, mem, port (MASTER_PORT); and
 * resv: Slurm reserved the port. */
#define PLAIT_ENV_KEEP "SLURM_PLAIT_KEEP"
/* What the site file asks of the nodes: any of nvlink, nccl, ucx, and
 * rate=LEAST:LINK, the preflight's bounds. */
#define PLAIT_ENV_SITE "SLURM_PLAIT_SITE"
/* The step's secret, which its tasks find in PLAIT_SECRET. */
#define PLAIT_ENV_STEP_SECRET "SLURM_PLAIT_SECRET"
/* "PORT:TOKEN:VERSION": where srun waits for the nodes; not passed on to
 * tasks. */
#define PLAIT_ENV_AGREE "SLURM_PLAIT_AGREE"
/* In a job that was submitted with flags, and in its steps: the names of the
 * flags, separated by commas. Without PLAIT_ENV_PLAN nothing has planned the
 * step: the plugin was removed since. */
#define PLAIT_ENV_FLAGS "SLURM_PLAIT_FLAGS"
/* With --preflight, the token by which its tasks recognize each other; not
 * passed on to them. */
#define PLAIT_ENV_PREFLIGHT "SLURM_PLAIT_PREFLIGHT"
/* With --preflight-report, the file's path; not passed on to tasks. */
#define PLAIT_ENV_REPORT "SLURM_PLAIT_REPORT"
/* With --spares: this srun is the preflight before the step. To srun and to the
 * nodes it means that no policy applies and that no task starts its command. */
#define PLAIT_ENV_PREFLIGHT_STEP "SLURM_PLAIT_PREFLIGHT_STEP"
/* With plait run --elastic: the number of spare processes beside the ranks; and
 * in a spare process, its own number, from 1. */
#define PLAIT_ENV_SPARES "PLAIT_SPARES"
#define PLAIT_ENV_SPARE "PLAIT_SPARE"
/* With plait run --elastic --np: "FD:INODE" of a pipe of which the tasks have
 * the end to read. Its other end closes when a task ends, whatever the reason;
 * before, how it ended is written there, unless plait run prints that. */
#define PLAIT_ENV_ENDED "PLAIT_ENDED"
/* Values of PLAIT_ENV_PLAN: this step runs without a plan; srun refused the
 * plan after the step was made. */
#define PLAIT_NO_PLAN "none"
#define PLAIT_REFUSED_PLAN "refused"

/* Value of PLAIT_SECRET: the user has said that the ranks meet without one, and
 * that any process may join. */
#define PLAIT_NO_SECRET "none"
/* 256 bits in hexadecimal. */
#define PLAIT_SECRET_SIZE 65

/* The launch contract: what every task of a planned step finds in its
 * environment. The plugin encodes it, the runtime decodes it; the names of the
 * variables are written here and in launch.c, and nowhere else. */
struct plait_launch {
    struct plait_layout layout;
    struct plait_coord coord;
    int rank, world_size;
    int local_rank, local_world_size;
    int node_rank, nnodes;
    int domain; /* equal on nodes that the plan's fabric has in one NVLink
                   domain; 0: it does not say */
    int gpu;    /* index, -1: this task has no GPU */
    char gpu_busid[16]; /* "0000:07:00.0", "" if unknown */
    char nics[256];     /* "mlx5_0,mlx5_1", "" if none */
    char cpus[1024];    /* list of PUs, "0-7,16-23", "" if not bound */
    char jobid[64];     /* "job.step" */
    char master_addr[256];
    int master_port; /* 0: no rendezvous */
    /* Random text of at least 32 hex digits, new for each step, by which its
     * tasks recognize each other; "": none was found; PLAIT_NO_SECRET: none is
     * wanted. It is passed in the environment alone, which other users cannot
     * read, and is never printed. */
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

/* The same, but what the variables say of layout and ranks is not held against
 * each other: plait_launch_check() does that. */
int plait_launch_read(struct plait_launch *launch,
                      const char *(*get)(void *arg, const char *name),
                      void *arg, struct plait_error *err);
int plait_launch_check(const struct plait_launch *launch,
                       struct plait_error *err);

/* Is the secret empty, PLAIT_NO_SECRET, or 32 to 64 hexadecimal digits? 0, or
 * -1 and what is wrong. */
int plait_launch_check_secret(const char *secret, struct plait_error *err);

#ifdef __cplusplus
}
#endif
#endif

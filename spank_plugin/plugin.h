/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PLUGIN_H
#define PLAIT_PLUGIN_H

#include <stdint.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "master.h"
#include "options.h"
#include "plugstack.h"
#include "topology/site.h"

/* What srun hands to the nodes beside the flags. Names that start with SLURM
 * survive --export=NONE. */
#define PLAIT_ENV_PLAN "SLURM_PLAIT_PLAN" /* plait_plan_encode() */
#define PLAIT_ENV_KEEP                                  \
    "SLURM_PLAIT_KEEP" /* what the user bound himself:  \
                          any of cpu, gpu, mem,         \
                          port (MASTER_PORT); and resv: \
                          Slurm reserved the port */
#define PLAIT_ENV_SITE                                                       \
    "SLURM_PLAIT_SITE"                        /* what the site file wants of \
                                                 the nodes: any of nvlink,   \
                                                 nccl, ucx */
#define PLAIT_ENV_SECRET "SLURM_PLAIT_SECRET" /* becomes PLAIT_SECRET */
/* The plan of a step that goes without. */
#define PLAIT_NO_PLAN "none"

/* srun, sbatch and salloc (local.c). Each returns 0, or -1 with the reason
 * in err. */

/* All flags of the job's nth component are read: refuse what cannot work with
 * what Slurm itself was asked for, as far as that is known before anything is
 * submitted. */
int plait_local_check(const struct plait_options *options,
                      const struct plait_site *site, int components,
                      struct plait_error *err);
/* What a planned srun does that users would forget to ask for. */
void plait_local_settle(const struct plait_options *options);
/* srun knows its nodes: make the plan and put it into the environment. */
int plait_local_plan(spank_t spank, const struct plait_options *options,
                     const struct plait_site *site, struct plait_error *err);
/* Tell the nodes that this step goes without a plan. */
void plait_local_decline(void);

/* slurmstepd (remote.c). */
struct plait_remote;

/* The node's share of the plan, and what the node looks like, once for all
 * tasks. NULL, with the reason in err: the tasks must then not start. */
struct plait_remote *plait_remote_create(spank_t spank,
                                         const struct plait_options *options,
                                         const char *cache,
                                         struct plait_error *err);
/* Did srun decide that this step goes without a plan? */
int plait_remote_is_declined(spank_t spank);
void plait_remote_destroy(struct plait_remote *remote);
/* In the forked task: export the contract, and bind. */
int plait_remote_task(struct plait_remote *remote, spank_t spank,
                      struct plait_error *err);

#endif

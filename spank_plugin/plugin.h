/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_PLUGIN_H
#define PLAIT_SPANK_PLUGIN_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "spank_plugin/agree.h"
#include "spank_plugin/discovery.h"
#include "spank_plugin/master.h"
#include "topology/job/site.h"
#include "topology/layout/launch.h"
#include "topology/start/options.h"

/* srun, sbatch and salloc (local.c). Each returns 0, or -1 with the reason
 * in err. */

/* Called when all flags of the job's nth component are read. Refuses flags
 * that cannot work with Slurm's own options, as far as these are known before
 * anything is submitted. */
int plait_local_check(const struct plait_options *options,
                      const struct plait_site *site, int components,
                      struct plait_error *err);
/* Set the options of srun itself that a planned step needs and the user did
 * not set: --kill-on-bad-exit, and --resv-ports where the site has them.
 * `ports` become those of SrunPortRange, where the site has that. */
void plait_local_set_defaults(const struct plait_options *options,
                              uint16_t ports[2]);
/* Called when srun knows its nodes: make the plan, put it into the
 * environment, and listen for the nodes (in `ports`, unless they are 0). NULL,
 * with the reason in err. */
struct plait_agreement *plait_local_plan(spank_t spank,
                                         const struct plait_options *options,
                                         const struct plait_site *site,
                                         const uint16_t ports[2],
                                         struct plait_error *err);
/* A command that is started by a task of a planned step inherits that task's
 * variables, which do not describe the command: unset them. Outside of planned
 * steps the environment stays as it is. */
void plait_local_forget(void);
/* Name the flags (a bit per enum plait_option) in PLAIT_ENV_FLAGS; 0: there are
 * none. */
void plait_local_mark(unsigned given);
/* Tell the nodes that this step has no plan. */
void plait_local_decline(void);
/* Let no task of this step start; the user knows why. NULL: out of memory. */
struct plait_agreement *plait_local_refuse(spank_t spank);

/* slurmstepd (remote.c). */
struct plait_remote;

/* Read the node's share of the plan and the node's topology, once for all
 * tasks. NULL, with the reason in err: the tasks must then not start. */
struct plait_remote *
plait_remote_create(spank_t spank, const struct plait_options *options,
                    const struct plait_discovery *discovery,
                    struct plait_error *err);
/* Did srun decide that this step has no plan (PLAIT_NO_PLAN), or may not start
 * (PLAIT_REFUSED_PLAN)? */
bool plait_remote_plan_is(spank_t spank, const char *what);
/* Is it the preflight of --node-spares, whose tasks must not start their
 * command? */
bool plait_remote_is_preflight(spank_t spank);
/* Tell srun whether this node can start its tasks; `remote` is NULL where it
 * cannot, for the reason in err. */
void plait_remote_call(const struct plait_remote *remote, spank_t spank,
                       struct plait_agreement_call *call,
                       const struct plait_error *err);
/* In the forked task: wait until all nodes know whether the step can start. */
enum plait_agreement_answer plait_remote_hear(struct plait_remote *remote,
                                              spank_t spank,
                                              struct plait_agreement_call *call,
                                              struct plait_error *err);
void plait_remote_destroy(struct plait_remote *remote);
/* In the forked task (task.c): bind it, and export the launch contract. */
int plait_remote_task(struct plait_remote *remote, spank_t spank,
                      struct plait_error *err);
/* In the forked task, after plait_remote_task(): plait_preflight_run() and its
 * result, but never -1 in the preflight of --node-spares. */
int plait_remote_preflight(const struct plait_remote *remote, spank_t spank);

#endif

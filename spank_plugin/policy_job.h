/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_POLICY_JOB_H
#define PLAIT_SPANK_PLUGIN_POLICY_JOB_H

#include <stdint.h>
#include <sys/types.h>

#include <slurm/slurm.h>

#include "spank_plugin/policy.h"

enum { PLAIT_POLICY_USER = 256, PLAIT_POLICY_NODE = 256 };

/* A user's name, or number where it has none; returns `name`. */
const char *plait_policy_user(uid_t uid, char name[PLAIT_POLICY_USER]);

/* The nodes that a job runs on, or those of them that matter here. */
struct plait_job_nodes {
    uint32_t job;
    char **name;
    int n;
};

/* plait_policy_check() for a job on these nodes: its partition, user, account
 * and QOS and its nodes' GPUs are as slurmctld knows them, since the user could
 * have changed the environment. `site` may be NULL. */
int plait_policy_check_job(const struct plait_site *site,
                           const struct plait_job_nodes *nodes,
                           const struct plait_layout *layout,
                           enum plait_within *within, struct plait_error *err);
/* The name of the step's node `node`, counted from 0, as slurmctld knows it. */
int plait_policy_node_name(slurm_step_id_t *id, uint32_t node,
                           char name[PLAIT_POLICY_NODE],
                           struct plait_error *err);

#endif

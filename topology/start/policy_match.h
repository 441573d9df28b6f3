/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_POLICY_MATCH_H
#define PLAIT_TOPOLOGY_START_POLICY_MATCH_H

#include <stdbool.h>

#include "topology/job/site.h"

/* What is known of a job when the site file's policies are checked; NULL: not
 * known yet. */
struct plait_policy_job {
    const char *partition; /* or several, separated by commas */
    const char *user, *account, *qos;
    const char *gpus; /* Slurm's text, "gpu:h100:8(S:0-1)" */
};

/* Whether the site file's policy is about such a job: each of its keys matches
 * one of the job's names. */
bool plait_policy_applies(const struct plait_policy *policy,
                          const struct plait_policy_job *job);

#endif

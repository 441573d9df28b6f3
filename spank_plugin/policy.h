/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_POLICY_H
#define PLAIT_SPANK_PLUGIN_POLICY_H

#include "topology/job/site.h"
#include "topology/layout/layout.h"

/* What is known of a job when the site file's policies are checked; NULL:
 * not known yet. `gpus` is Slurm's text, "gpu:h100:8(S:0-1)". */
struct plait_job {
    const char *partition;
    const char *gpus;
};

/* -1, with the reason, if the layout breaks a policy that applies to the job.
 * *within is where tp groups must stay, which only the node can check. */
int plait_policy_check(const struct plait_site *site,
                       const struct plait_job *job,
                       const struct plait_layout *layout,
                       enum plait_within *within, struct plait_error *err);

#endif

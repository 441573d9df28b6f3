/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_POLICY_H
#define PLAIT_POLICY_H

#include "topology/layout.h"
#include "topology/site.h"

/* What is known of a job when a policy of the site file is held against it;
 * NULL: nothing yet. `gpus` is Slurm's text, "gpu:h100:8(S:0-1)". */
struct plait_job {
    const char *partition;
    const char *gpus;
};

/* Are all policies that apply to the job kept? -1, with the reason, if not.
 * What only the node can tell is left to it: *within. */
int plait_policy_check(const struct plait_site *site,
                       const struct plait_job *job,
                       const struct plait_layout *layout,
                       enum plait_within *within, struct plait_error *err);

#endif

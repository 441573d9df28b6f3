/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_POLICY_H
#define PLAIT_SPANK_PLUGIN_POLICY_H

#include <stdbool.h>

#include "topology/job/site.h"
#include "topology/layout/layout.h"
#include "topology/start/policy_match.h"

/* -1, with the reason, if the layout breaks a policy that applies to the job.
 * *within is where tp groups must stay, which only the node can check. */
int plait_policy_check(const struct plait_site *site,
                       const struct plait_policy_job *job,
                       const struct plait_layout *layout,
                       enum plait_within *within, struct plait_error *err);

/* Does it depend on the job whether the layout breaks a policy, or where tp
 * groups must stay, unless that is PLAIT_WITHIN_NVLINK anyway? */
bool plait_policy_matters(const struct plait_site *site,
                          const struct plait_layout *layout,
                          enum plait_within within);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_RANKS_H
#define PLAIT_SPANK_PLUGIN_RANKS_H

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "topology/job/site.h"
#include "topology/plan/plan.h"
#include "topology/start/options.h"

/* A trainer that reads SLURM_PROCID is in other groups than the planned ones
 * where the ranks are other numbers, and nothing else would say so. One line on
 * srun's stderr, unless the user, the site (NULL: has no file) or the command,
 * plait-train, does not need it. */
void plait_tell_ranks(spank_t spank, const struct plait_plan *plan,
                      const slurm_step_layout_t *step,
                      const struct plait_options *options,
                      const struct plait_site *site);

#endif

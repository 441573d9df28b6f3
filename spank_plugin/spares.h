/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_SPARES_H
#define PLAIT_SPANK_PLUGIN_SPARES_H

#include "spank_plugin/slurm_options.h"
#include "topology/base/error.h"
#include "topology/start/options.h"

/* --spares: srun runs the preflight on all nodes of its job in a step of its
 * own, whose tasks measure and end, and then makes the step that was asked for
 * on the rest. So nobody in that step sees a node that was left out: not MPI,
 * not a trainer that reads SLURM_NTASKS. */

/* In the srun of a preflight step nothing is spared. Before any check. */
void plait_spares_begin(struct plait_options *options);

/* Take the tasks of the spare nodes off those that Slurm is asked for. -1, with
 * the reason in err, where none would be left or nodes have unequally many. */
int plait_spares_subtract(const struct plait_options *options,
                          struct plait_slurm_options *slurm,
                          struct plait_error *err);

/* In srun before it makes its step: measure, leave out nodes below a bound and
 * as many others as there are spares left, and take back --preflight. 0, or
 * srun's exit status and the reason in err. */
int plait_spares_choose(struct plait_options *options, struct plait_error *err);

#endif

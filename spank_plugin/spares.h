/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_SPARES_H
#define PLAIT_SPANK_PLUGIN_SPARES_H

#include "spank_plugin/slurm_options.h"
#include "topology/base/error.h"
#include "topology/start/options.h"

/* --node-spares: srun first runs the preflight on all nodes of its job, in a
 * separate step whose tasks measure and exit. Then it makes the step that was
 * asked for on the nodes that remain. So nothing in that step sees a node that
 * was left out: neither MPI nor a trainer that reads SLURM_NTASKS. */

/* In the srun of the preflight step itself: set measure_only, and clear
 * --node-spares. Call before any check. */
void plait_spares_begin(struct plait_options *options);

/* Subtract the tasks of the spare nodes from slurm->tasks. -1, with the reason
 * in err, where no node would be left or the number of tasks of a node is not
 * known. */
int plait_spares_subtract(const struct plait_options *options,
                          struct plait_slurm_options *slurm,
                          struct plait_error *err);

/* In srun before it makes its step: measure, exclude the nodes below a bound
 * and as many others as there are spares left, and clear options->preflight,
 * which is done then. 0, or srun's exit status and the reason in err. */
int plait_spares_choose(struct plait_options *options, struct plait_error *err);

/* Tell the nodes of a preflight. They run one only if srun sends this token: a
 * flag that they find in the environment is not enough. */
int plait_spares_export(const struct plait_options *options);

#endif

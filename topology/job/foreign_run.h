/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FOREIGN_RUN_H
#define PLAIT_TOPOLOGY_JOB_FOREIGN_RUN_H

#include "topology/job/foreign_pairs.h"
#include "topology/job/job_config.h"

/* How many layers behind the last predict further tokens. */
int plait_foreign_further(const struct plait_pairs *pairs);

/* How other software will run a model, which no key of plait.yaml says: what it
 * hides, fuses, recomputes and keeps in bf16, by the names of Megatron's
 * arguments. */
void plait_foreign_run_set(const struct plait_pairs *pairs,
                           struct plait_job_config *config);

#endif

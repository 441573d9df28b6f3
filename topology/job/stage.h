/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_STAGE_H
#define PLAIT_TOPOLOGY_JOB_STAGE_H

#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which layers pipeline stage `stage` of `stages` holds: as even as the head
 * allows, which counts as the layers it costs. Every stage holds at least
 * one. Pure; config->layers >= stages. The runtime builds its stages by this
 * and the planner predicts them. */
void plait_model_stage(const struct plait_model_config *config, int stages,
                       int stage, int *first, int *count);

/* Chunks of layers a pipeline rank holds: only interleaving has more than
 * one. */
int plait_model_chunks(const struct plait_parallel_config *parallel);

#ifdef __cplusplus
}
#endif
#endif

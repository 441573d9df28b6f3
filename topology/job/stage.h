/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_STAGE_H
#define PLAIT_TOPOLOGY_JOB_STAGE_H

#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a model's layers are divided among pipeline stages: as parallel.stages
 * says, or else as evenly as the head allows, which counts as the layers it
 * costs. Where stages differ, the first ones, which hold the most
 * micro-batches, get fewer layers. Every stage has a layer, except the last
 * one, where the head takes as long as the other stages or there are too few
 * layers, and then the first one, which has the embedding. Megatron's stages
 * are even, or the embedding and the head count as a layer each. Pure: the
 * runtime builds its stages by this and the planner predicts them. */
struct plait_stage_split {
    const int64_t *given; /* [stages] of parallel.stages; NULL: not given */
    int stages;
    int last;       /* layers of the last stage */
    int each, more; /* of each other stage; `more` of them have one more: */
    bool early;     /* the first of them; else the last */
    int taken;      /* layers that the embedding replaces on the first stage */
};

/* config->model.layers is at least stages - 2. */
void plait_stage_split_set(struct plait_stage_split *split,
                           const struct plait_job_config *config, int stages);
/* Whether a planner should try `v` chunks on each of pp ranks: whether users of
 * config's framework can divide the layers so, and the estimate holds. */
bool plait_stage_divides(const struct plait_job_config *config, int pp, int v);
/* Layers of a stage. */
int plait_stage_split_at(const struct plait_stage_split *split, int stage);

/* One stage of such a split: its first layer, and how many. */
void plait_model_stage(const struct plait_job_config *config, int stages,
                       int stage, int *first, int *count);

/* "7,14x8,7": the layers of all stages, which parallel.stages takes in
 * brackets. Cut where the room ends. */
void plait_stage_split_print(const struct plait_stage_split *split,
                             const char *between, char *buf, size_t size);

/* Chunks of layers a pipeline rank holds: only interleaving has more than
 * one. */
int plait_model_chunks(const struct plait_parallel_config *parallel);

#ifdef __cplusplus
}
#endif
#endif

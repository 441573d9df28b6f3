/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_RESUME_H
#define PLAIT_RUNTIME_TRAIN_RESUME_H

#include "runtime/checkpoint/checkpoint.h"

/* The key for --resume-anyway that stands for the training data. */
#define PLAIT_RESUME_DATA "data.train"

/* Whether `keys`, "KEY[,KEY]...", are settings that a checkpoint may be held
 * to; -1 names one that is not. */
int plait_resume_check_anyway(const char *keys, struct plait_error *err);

/* Whether a checkpoint was trained on these data; -1 with err. */
int plait_resume_check_data(const struct plait_checkpoint_info *done,
                            const struct plait_data_identity *now,
                            const char *anyway, struct plait_error *err);

/* Which checkpoint a run goes on from. */
struct plait_resume_from {
    const char *what;   /* a directory, "auto" (the newest whole one under
                           checkpoint.dir) or "none" */
    const char *anyway; /* settings that may differ; all others are refused */
    /* "auto" considers only checkpoints before this step: INT64_MAX at first,
     * later the step of a checkpoint that proved useless; then it is an error
     * if there is none before it. */
    int64_t below;
};

/* Loads a checkpoint into `optim`, or with NULL the weights of `shards` alone;
 * the caller then calls plait_optim_refresh() or plait_shards_gather_weights().
 * Reports on stderr what it passes over.
 *
 * Collective over the world. 0: *done describes the checkpoint; 1: there is
 * none, and nothing was touched; -1: on all ranks together, with text on at
 * most one. */
int plait_resume(const struct plait_resume_from *from,
                 struct plait_shards *shards, struct plait_optim *optim,
                 struct plait_checkpoint_info *done, struct plait_error *err);

/* The newest checkpoint under checkpoint.dir and checkpoint.fallback, which
 * plait_resume() would try first; malloc'ed. NULL: there is none, or it cannot
 * be found. */
char *plait_resume_newest(const struct plait_job_config *c,
                          struct plait_error *err);

/* How many replicas that train apart are in the checkpoint that plait_resume()
 * would try first; 0: there is none, or it has one model. Collective. */
int plait_resume_replicas(const char *resume, const struct plait_job_config *c,
                          struct plait_comm *world, int *replicas,
                          struct plait_error *err);

#endif

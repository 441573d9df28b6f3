/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_RESUME_H
#define PLAIT_RUNTIME_TRAIN_RESUME_H

#include "runtime/checkpoint/checkpoint.h"

/* Which checkpoint a run goes on from: `resume` is a directory, "auto" (the
 * newest whole one under checkpoint.dir) or "none". Loads it into `optim`, or
 * with NULL the weights of `shards` alone; the caller then calls
 * plait_optim_refresh() or plait_shards_gather_weights(). Writes what it passes
 * over to stderr.
 *
 * Collective over the world. 0: *done is what it says; 1: there is none, and
 * nothing was touched; -1: on all ranks together, with text on at most one. */
int plait_resume(const char *resume, struct plait_shards *shards,
                 struct plait_optim *optim, struct plait_checkpoint_info *done,
                 struct plait_error *err);

#endif

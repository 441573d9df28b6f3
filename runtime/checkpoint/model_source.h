/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_MODEL_SOURCE_H
#define PLAIT_RUNTIME_CHECKPOINT_MODEL_SOURCE_H

#include <stdbool.h>

#include "topology/base/error.h"
#include "topology/job/job_config.h"

/* The directory of a model. */
struct plait_model_source {
    bool hf;         /* a Hugging Face model, else a checkpoint */
    char path[4096]; /* where config.json or manifest.json is: for several
                        checkpoints, the one saved last */
};

/* Find out what `dir` is; -1 with errno: neither. */
int plait_model_source_find(const char *dir, struct plait_model_source *source,
                            struct plait_error *err);

/* Whether the model `there`, found in `name`, computes the same as the
 * configuration's; -1 with EINVAL, naming the key. The sequence length may
 * differ, and what only affects training. */
int plait_model_same(const char *name, const struct plait_model_config *there,
                     const struct plait_model_config *configured,
                     struct plait_error *err);

#endif

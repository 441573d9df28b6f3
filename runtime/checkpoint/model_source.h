/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_MODEL_SOURCE_H
#define PLAIT_RUNTIME_CHECKPOINT_MODEL_SOURCE_H

#include <stdbool.h>

#include "topology/base/error.h"
#include "topology/job/job_config.h"

/* A directory that a model is taken from. */
struct plait_model_source {
    bool hf;         /* of Hugging Face's, else a checkpoint */
    char path[4096]; /* of config.json, or of manifest.json: the checkpoint
                        itself, the one saved last of several */
};

/* What is in `dir`; -1 with errno: neither. */
int plait_model_source_find(const char *dir, struct plait_model_source *source,
                            struct plait_error *err);

/* Whether the model that is there, described in `name`, computes what a
 * configuration's computes; -1 with EINVAL, naming the key. The length of
 * sequences may differ, and what only training knows. */
int plait_model_same(const char *name, const struct plait_model_config *there,
                     const struct plait_model_config *configured,
                     struct plait_error *err);

#endif

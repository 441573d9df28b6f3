/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_MODEL_EXTRAS_H
#define PLAIT_RUNTIME_CHECKPOINT_MODEL_EXTRAS_H

#include "topology/base/error.h"

/* What belongs to a model besides its weights and its config.json: the
 * tokenizer's files and generation_config.json. */

/* Copy FROM/name to TO/name, whole or not at all, in place of what is there. 0;
 * 1: there is none; -1 with errno. */
int plait_copy_file(const char *from, const char *to, const char *name,
                    struct plait_error *err);

/* Copy those of a model's directory, or of the one above a checkpoint. What is
 * not there is left out. */
int plait_model_extras_copy(const char *from, const char *to,
                            struct plait_error *err);

/* The same for a training run: the tokenizer of its data, beside which
 * `data`/prep.json lies, and what the model in `init` has, unless that is of
 * another tokenizer. Either may be NULL. */
int plait_model_extras_gather(const char *data, const char *init,
                              const char *to, struct plait_error *err);

#endif

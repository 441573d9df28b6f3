/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_MODEL_EXTRAS_H
#define PLAIT_RUNTIME_CHECKPOINT_MODEL_EXTRAS_H

#include <stdint.h>

#include "topology/base/error.h"

/* The files that belong to a model besides its weights: the tokenizer's files,
 * generation_config.json and config.json. */

/* Copy FROM/name to TO/name, atomically, replacing what is there. 0; 1: there
 * is no such file; -1 with errno. */
int plait_copy_file(const char *from, const char *to, const char *name,
                    struct plait_error *err);

/* Copy the files of a model's directory, or of the one above a checkpoint, but
 * for config.json. Missing ones are skipped. */
int plait_model_extras_copy(const char *from, const char *to,
                            struct plait_error *err);

/* The same for a training run: the tokenizer that the folder `data` was
 * prepared with, by its prep.json, and the files of the model in `init`, its
 * config.json among them. Either may be NULL. If the two have different
 * tokenizers, the data's is taken, and with it `end`, the token that ends its
 * texts (-1: not known), in place of the model's special tokens. */
int plait_model_extras_gather(const char *data, const char *init, int32_t end,
                              const char *to, struct plait_error *err);

#endif

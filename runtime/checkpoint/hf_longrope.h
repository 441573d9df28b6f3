/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_HF_LONGROPE_H
#define PLAIT_RUNTIME_CHECKPOINT_HF_LONGROPE_H

#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"

/* The rotary positions of rope_type longrope, of which `object` is the object
 * in config.json. The model's rope_columns are known. */
int plait_hf_longrope(const struct plait_hf_read *r, const json_t *object,
                      const struct plait_hf_type *type);
/* Sets their keys; not 0: out of memory. */
int plait_hf_longrope_write(json_t *root,
                            const struct plait_model_config *model,
                            const struct plait_hf_type *type);

#endif

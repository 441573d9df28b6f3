/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_HF_CONFIG_H
#define PLAIT_RUNTIME_CHECKPOINT_HF_CONFIG_H

#include "kernels/types.h"
#include "topology/base/error.h"
#include "topology/job/job_config.h"

/* config.json of a Hugging Face directory and the section "model" of
 * plait.yaml: the same model in two notations. */

/* What DIR/config.json describes. -1 with EINVAL or errno of the file, naming
 * what plait-train does not support: a type of model, an activation, ... */
int plait_hf_config_read(const char *dir, struct plait_model_config *model,
                         struct plait_error *err);

/* Whether its type keeps q, k and v in one tensor, and gate and up in another;
 * and whether the type does that plait_hf_config_write() would write. */
bool plait_hf_config_fused(const char *dir);
bool plait_hf_config_like_fused(const struct plait_model_config *model,
                                const char *like);

/* Whether some type of Hugging Face's models has all features of this one; -1
 * with EINVAL, naming the key that none has. */
int plait_hf_config_possible(const struct plait_model_config *model,
                             struct plait_error *err);

/* Write DIR/config.json of a possible model, for weights of `type`. Where
 * `like` (NULL: none) or, above a checkpoint, the directory of that has the
 * config.json of this model, it comes back byte for byte, but for that type and
 * without layers of multi-token prediction or a model of images; keys that
 * training has changed are replaced. One of another model is ignored, and so is
 * its generation_config.json, which is removed from `dir`. Without a
 * config.json the ids of special tokens are those of
 * DIR/generation_config.json, else `end` ends a text (-1: not known), and
 * nothing begins or pads one. */
int plait_hf_config_write(const char *dir,
                          const struct plait_model_config *model,
                          enum plait_dtype type, const char *like, int32_t end,
                          struct plait_error *err);

/* Whether DIR/config.json is of a text model beside one of images, which
 * plait-train leaves out. */
bool plait_hf_config_images(const char *dir);

/* The key by which DIR/config.json has layers of multi-token prediction, which
 * follow the last layer and which plait-train leaves out; NULL: it has none. */
const char *plait_hf_config_predicts(const char *dir);

#endif

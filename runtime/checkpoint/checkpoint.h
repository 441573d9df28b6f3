/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_CHECKPOINT_H
#define PLAIT_CHECKPOINT_H

#include <stdint.h>

#include "runtime/model/model.h"
#include "runtime/optim/optim.h"

/* A checkpoint is a directory DIR/step-00000020 with one safetensors shard
 * per writing rank and manifest.json, written last. It is made in a hidden
 * temporary directory, every file fsynced, then renamed: a directory with a
 * manifest is complete. Tensors carry their whole-model name and shape and
 * the slice they hold, so that another layout can read them. */

struct plait_checkpoint_info {
    int64_t step;   /* steps done */
    int64_t tokens; /* tokens seen */
    struct plait_loss_scale loss_scale; /* used where it is dynamic */
};

/* Collective over the world. Only one copy of each slice is written. Keeps
 * the newest `keep` checkpoints (0: all). */
int plait_checkpoint_save(const char *dir, int keep,
                          const struct plait_checkpoint_info *info,
                          struct plait_model *model, struct plait_optim *optim,
                          struct plait_error *err);

/* The newest complete checkpoint under `dir`, or NULL with err->text empty
 * if there is none (a missing dir is none). Caller frees. */
char *plait_checkpoint_latest(const char *dir, struct plait_error *err);

/* Collective. Fills optimizer slices and info; the caller then calls
 * plait_optim_refresh(). Refuses a checkpoint of another model, naming the
 * tensor and the shapes. */
int plait_checkpoint_load(const char *path, struct plait_checkpoint_info *info,
                          struct plait_model *model, struct plait_optim *optim,
                          struct plait_error *err);

#endif

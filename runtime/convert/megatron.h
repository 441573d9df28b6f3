/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_MEGATRON_H
#define PLAIT_RUNTIME_CONVERT_MEGATRON_H

#include "runtime/convert/convert.h"
#include "runtime/convert/megatron_map.h"

/* Checkpoints of Megatron-LM's: DIR/latest_checkpointed_iteration.txt names
 * DIR/iter_0000100 or DIR/release. As --ckpt-format torch writes them, that has
 * mp_rank_XX/model_optim_rng.pt for each rank; of these files "args" and
 * "model", a GPTModel of Megatron-core's, are read. As torch_dist, it is read
 * by megatron_dist.c. */

/* Find the checkpoint in `dir`, of several the newest: 1 and its path; 0: there
 * is none; -1 with errno: it cannot be read. */
int plait_megatron_find(const char *dir, char path[4096],
                        struct plait_error *err);

/* As plait_convert_from_hf(), from such a path. */
int plait_convert_from_megatron(const char *path, const char *dir,
                                struct plait_converted *done,
                                struct plait_error *err);

/* Writes the weights of the checkpoint `path` as `type` to DIR/release. -1 with
 * EINVAL, naming what Megatron-LM's GPT does not have. */
int plait_convert_to_megatron(const char *path, const char *dir,
                              enum plait_dtype type,
                              const struct plait_megatron_layout *layout,
                              struct plait_converted *done,
                              struct plait_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_MEGATRON_H
#define PLAIT_RUNTIME_CONVERT_MEGATRON_H

#include "runtime/convert/convert.h"
#include "runtime/convert/megatron_map.h"

/* Checkpoints of Megatron-LM's as --ckpt-format torch has them: DIR/latest_
 * checkpointed_iteration.txt names DIR/iter_0000100 or DIR/release, with
 * mp_rank_XX/model_optim_rng.pt in it for each rank; of these "args" and
 * "model", a GPTModel of Megatron-core's, are read. */

/* Where in `dir` there is one: of a directory of checkpoints the newest; 1;
 * 0: none is there; -1 with errno: it is none that can be read. */
int plait_megatron_find(const char *dir, char path[4096],
                        struct plait_error *err);

/* As plait_convert_from_hf(), of such a path. */
int plait_convert_from_megatron(const char *path, const char *dir,
                                struct plait_converted *done,
                                struct plait_error *err);

/* The weights of the checkpoint `path`, written as `type`, to DIR/release. -1
 * with EINVAL, naming what Megatron-LM's GPT has not. */
int plait_convert_to_megatron(const char *path, const char *dir,
                              enum plait_dtype type,
                              const struct plait_megatron_layout *layout,
                              struct plait_converted *done,
                              struct plait_error *err);

#endif

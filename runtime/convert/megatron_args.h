/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_MEGATRON_ARGS_H
#define PLAIT_RUNTIME_CONVERT_MEGATRON_ARGS_H

#include "kernels/types.h"
#include "runtime/convert/megatron_map.h"
#include "runtime/convert/pickle_out.h"
#include "runtime/pickle/pickle.h"
#include "topology/base/error.h"

/* The arguments that Megatron-LM keeps in its checkpoints, and the section
 * "model" of plait.yaml: the same model in two notations. */

/* Llama 3's rope scaling, whose constants are built into Megatron-LM. */
enum {
    PLAIT_MEGATRON_ROPE_LOW = 1,
    PLAIT_MEGATRON_ROPE_HIGH = 4,
    PLAIT_MEGATRON_ROPE_LEN = 8192
};

struct plait_megatron_args {
    struct plait_model_config model;
    int padded_vocab;
    struct plait_megatron_layout layout; /* without `local` */
};

/* Reads the arguments. -1 with EINVAL, naming the one that plait-train does not
 * support. `path` stands for the file in errors. distributed: the tensors are
 * whole ones in any layout, so the layout of the arguments is not looked at,
 * and args->layout is that of one rank. */
int plait_megatron_args_read(const char *path,
                             const struct plait_pickle_value *namespace,
                             bool distributed, struct plait_megatron_args *args,
                             struct plait_error *err);

/* Whether Megatron-LM's GPT has all features of the model, and the layout
 * divides it; -1 with EINVAL. */
int plait_megatron_args_possible(const struct plait_model_config *model,
                                 const struct plait_megatron_layout *layout,
                                 struct plait_error *err);

/* Writes the arguments as one value of a pickle, for weights of `type`. */
void plait_megatron_args_write(const struct plait_megatron_args *args,
                               enum plait_dtype type,
                               struct plait_pickle_out *out);

#endif

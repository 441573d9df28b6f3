/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_HF_WEIGHTS_H
#define PLAIT_RUNTIME_CHECKPOINT_HF_WEIGHTS_H

#include <stdio.h>

#include "runtime/checkpoint/hf_map.h"
#include "runtime/checkpoint/tensor_slice.h"
#include "topology/base/error.h"

/* The weights of a Hugging Face directory: model.safetensors, or the files that
 * model.safetensors.index.json names. Opening reads only their heads. */
struct plait_hf_weights;

/* What config.json describes, but with a head of its own where the weights have
 * one that differs from the embedding. */
int plait_hf_model_read(const char *dir, struct plait_model_config *model,
                        struct plait_error *err);

/* What a user is told of a model that is taken over. */
struct plait_hf_notes {
    char dropout[160]; /* the rates of config.json, if the model trains with
                        * others */
    double rate, attention_rate; /* those that it trains with */
    bool untied;                 /* config.json ties a head that differs */
    bool images;                 /* a model of images is left out */
    const char *left_out; /* the key of layers of multi-token prediction, if
                           * they are there */
};

/* For training the model of `dir` as `trained` says (NULL: as config.json
 * does). Empty where the model cannot be read. */
void plait_hf_notes_read(const char *dir,
                         const struct plait_model_config *trained,
                         struct plait_hf_notes *notes);
/* As lines that begin with `mark`. */
void plait_hf_notes_print(const struct plait_hf_notes *notes, const char *mark,
                          FILE *out);

/* Reads config.json and the heads, and checks that each tensor of the model is
 * there in its shape, as fp32, bf16 or fp16, and that there are no others.
 * module: the model has that of multi-token prediction (model.mtp_layers), if
 * the files have one. NULL with errno. */
struct plait_hf_weights *plait_hf_weights_open(const char *dir, bool module,
                                               struct plait_error *err);
void plait_hf_weights_close(struct plait_hf_weights *weights);

/* Whether the embedding and the head that the module stores once more are the
 * model's; -1 with EINVAL. Reads all of them: for one rank. */
int plait_hf_weights_check_copies(const struct plait_hf_weights *weights,
                                  struct plait_error *err);
/* Opens `dir` and checks that: *layers is 1 if it has a module, else 0. */
int plait_hf_weights_find_module(const char *dir, int *layers,
                                 struct plait_error *err);

/* Whether the files have layers of multi-token prediction, which are left
 * out. */
bool plait_hf_weights_left_out(const struct plait_hf_weights *weights);

const struct plait_model_config *
plait_hf_weights_model(const struct plait_hf_weights *weights);
/* Plait's tensors; returns how many. */
int plait_hf_weights_list(const struct plait_hf_weights *weights,
                          const struct plait_hf_tensor **tensors);

int64_t plait_hf_weights_parameters(const struct plait_hf_weights *weights);

/* Rows [row, row + n) of Plait's tensor `index` of the list, to fp32 `out`
 * [n, cols]. Any thread may call it. */
int plait_hf_weights_read(const struct plait_hf_weights *weights, int index,
                          uint64_t row, uint64_t n, float *out,
                          struct plait_error *err);

/* Fill out [slice->count] with what the slice holds of the tensor of its name;
 * padding is 0. */
int plait_hf_weights_fill(const struct plait_hf_weights *weights,
                          const struct plait_tensor_slice *slice, float *out,
                          struct plait_error *err);

#endif

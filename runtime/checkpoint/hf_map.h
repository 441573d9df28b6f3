/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_HF_MAP_H
#define PLAIT_RUNTIME_CHECKPOINT_HF_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/job/job_config.h"

/* A tensor of Plait's, and which part of which tensor of Hugging Face's it
 * is. Rotary positions turn the same halves there as here, so that no row of
 * q or k moves. */
struct plait_hf_tensor {
    char name[96];       /* in the whole model of Plait's */
    uint64_t rows, cols; /* there; a vector is one row */
    char hf[96];         /* the other name */
    bool vector;
    bool transposed; /* there [cols, parts * rows], a Conv1D of GPT-2's */
    int part, parts; /* q, k and v that are one tensor there, side by side */
};

/* All tensors of a model, in their order; the parts of one tensor are
 * neighbours. malloc'ed; returns how many, or -1 with ENOMEM. */
int plait_hf_map_create(const struct plait_model_config *model,
                        struct plait_hf_tensor **tensors);

/* The shape of the whole tensor that `t` is a part of; returns the number of
 * dimensions. */
int plait_hf_map_shape(const struct plait_hf_tensor *t, uint64_t shape[2]);

#endif

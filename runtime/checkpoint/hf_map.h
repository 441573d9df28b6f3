/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_HF_MAP_H
#define PLAIT_RUNTIME_CHECKPOINT_HF_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/job/job_config.h"

/* A tensor of Plait's, and which part of which tensor of Hugging Face's it is.
 * Both apply rotary positions to the same halves of a head, so no row of q or k
 * moves, but with latent attention, where Plait has the rotary columns of a
 * head first and DeepSeek has them last, each pair side by side, as Llama 4 has
 * those of its whole heads. */
struct plait_hf_tensor {
    char name[96];       /* Plait's name, in the whole model */
    uint64_t rows, cols; /* Plait's shape; a vector is one row */
    char hf[96];         /* Hugging Face's name */
    bool vector;
    bool exact;           /* stored in fp32, whatever type the others have */
    bool transposed;      /* stored as [cols, rows], a Conv1D of GPT-2 */
    int parts;            /* that are one stored tensor, such as q, k and v */
    uint64_t before, all; /* rows of the parts before this one, and of all */
    /* Of experts that are one stored tensor, [slabs, ..], in which `all` counts
     * the rows of a slab: */
    int slabs, slab; /* how many, which one; 0: it is none of these */
    int stride;      /* rows from one row of this part to its next: 1, or 2
                      * where gate and up alternate */
    /* Of latent attention and Llama 4's, whose rows are those of heads: */
    int heads;       /* 0: it is none of these */
    uint64_t apart;  /* rows from one head of the stored tensor to the next */
    uint64_t rotary; /* rows of a head here that are its first ones, and there
                      * its last ones, in turns of the first and second half */
};

/* All tensors of a model, in order; the parts of one stored tensor are
 * neighbours. fused: a llama's q, k and v are one tensor, and so are gate and
 * up, as in Phi-3. malloc'ed; returns how many, or -1 with ENOMEM. */
int plait_hf_map_create(const struct plait_model_config *model, bool fused,
                        struct plait_hf_tensor **tensors);

/* The row of the stored tensor that row `row` of `t`, which has heads, is. */
uint64_t plait_hf_map_row(const struct plait_hf_tensor *t, uint64_t row);

/* The shape of the stored tensor that `t` is a part of; returns the number of
 * dimensions. */
int plait_hf_map_shape(const struct plait_hf_tensor *t, uint64_t shape[3]);

#endif

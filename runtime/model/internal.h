/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_MODEL_INTERNAL_H
#define PLAIT_MODEL_INTERNAL_H

#include "runtime/model/model.h"

/* Shared by the files of runtime/model/ and nobody else. */

/* What this rank computes with: sizes of its shards. */
struct plait_dims {
    int hidden;    /* C */
    int head_dim;  /* D */
    int heads;     /* query heads here */
    int kv_heads;  /* key/value heads here, at least 1 */
    int kv_copies; /* tp ranks that hold the same key/value heads */
    int kv_first;  /* the first of them, in the whole model */
    int qkv;       /* columns of the fused q, k, v: (heads + 2 kv_heads) D */
    int ffn;       /* F here */
    int up;        /* columns into the activation: F, or 2 F gated */
    int vocab;     /* rows of the embedding here, padding included */
    int vocab_first;
    int vocab_count; /* rows that are not padding; 0 is possible */
    int tp, tp_rank;
    bool gated;   /* SwiGLU, RMSNorm, rotary positions: the Llama family */
    bool bias;    /* linears and norms have biases: the GPT-2 family */
    bool tied;
};

enum plait_block_kind {
    PLAIT_BLOCK_EMBEDDING,
    PLAIT_BLOCK_LAYER,
    PLAIT_BLOCK_HEAD
};

/* A matrix that is multiplied by: [O, C] at `offset` of its region. */
struct plait_matrix {
    int region;
    size_t offset;
    size_t O, C;
    struct plait_weight *handle; /* made when the region gets its weights */
};

struct plait_block {
    enum plait_block_kind kind;
    int layer;  /* -1 but for BLOCK_LAYER */
    int region; /* its dense tensors */
    /* Offsets within `region`; only those of its kind are used. */
    size_t norm1, norm1_bias, qkv_bias, out_bias;
    size_t norm2, norm2_bias, up_bias, down_bias;
    size_t norm, norm_bias; /* the head's */
    size_t position;        /* the embedding's */
    struct plait_matrix qkv, out, up, down;
    struct plait_matrix vocab; /* of embedding and head; where they are tied
                                  on one rank, both name the same region */
};

struct plait_model_state {
    struct plait_dims dims;
    int stages;   /* pp * chunks */
    int *chunk_first; /* [chunks + 1] first block of each chunk */
    int nblocks;
    struct plait_block *blocks; /* forward order, chunk by chunk */
};

/* params.c: fill in model->tensors, regions, counts and state->blocks.
 * -1 with ENOMEM. */
int plait_model_layout(struct plait_model *model);

/* init.c: ten rounds of Philox4x32; key is the seed, low and high the two
 * halves of the counter. */
void plait_philox(uint64_t key, uint64_t low, uint64_t high, uint32_t out[4]);

#endif

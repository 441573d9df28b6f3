/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_TENSORS_H
#define PLAIT_TOPOLOGY_JOB_TENSORS_H

#include <stdbool.h>
#include <stddef.h>

#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The weights of a gpt2 or llama model. Each is described once, by a line of
 * PLAIT_TENSOR_TABLE, and who needs to know what a model consists of reads that
 * table:
 *   - runtime/model/params.c makes a tensor of each line, once for each layer
 *     or expert that has it, and notes in the block where it is;
 *   - checkpoints and optimizers go by those tensors;
 *   - model_size.c counts the weights of a model, and topology/predict the
 *     bytes of its weights, gradients and optimizer.
 *
 * To add a weight: write a line here, and a member of the same name in struct
 * plait_block (and struct plait_expert, for an mlp's) in
 * runtime/model/internal.h. It is then allocated, cut, initialised, updated,
 * saved and estimated; the layer that uses it finds it by the member. Other
 * formats of models list the weights again: HACKING.md, "a weight", names them.
 *
 * How it works. The length of a weight's side is not a number but one of a few
 * kinds (enum plait_side), because sides are what a layout divides: struct
 * plait_sides has the length of each kind, in the whole model and on one rank
 * of the tp group. A weight is cut along its side that tp divides; every rank
 * has all of a weight without such a side.
 *
 * The weights of a block lie one behind the other in its region, in the order
 * of the table, each from a multiple of PLAIT_REGION_ALIGN elements on.
 * Consecutive lines with the same member lie together without a gap: q, k and v
 * are three weights to whoever saves them, and one matrix to whoever multiplies
 * by them. */

/* Elements; 128 bytes or more in every type. */
#define PLAIT_REGION_ALIGN 64

static inline size_t plait_region_align(size_t elements)
{
    return (elements + PLAIT_REGION_ALIGN - 1) / PLAIT_REGION_ALIGN *
           PLAIT_REGION_ALIGN;
}

/* What weights are divided into: a region for each block, and for the experts
 * of a layer one of their own, as other ranks share them. */
enum plait_region_kind {
    PLAIT_KIND_EMBEDDING,
    PLAIT_KIND_LAYER,
    PLAIT_KIND_EXPERT, /* in the table: an mlp, whoever has it */
    PLAIT_KIND_HEAD,
    PLAIT_KIND_MTP,   /* what a module that predicts a token further has beside
                       * a layer, in one region with that */
    PLAIT_KIND_DENSE, /* not in the table: a layer without experts in a model
                       * that has them, of plait_sides_dense() */
    PLAIT_KINDS
};

/* -- sides ----------------------------------------------------------------- */

enum plait_side {
    PLAIT_SIDE_ONE, /* columns of a vector */
    PLAIT_SIDE_HIDDEN,
    PLAIT_SIDE_JOINED,  /* two of these, one behind the other */
    PLAIT_SIDE_HEAD,    /* columns of a head */
    PLAIT_SIDE_QUERIES, /* columns of all heads' queries */
    PLAIT_SIDE_KEYS,    /* of all keys, which is also that of all values */
    PLAIT_SIDE_HEADS,   /* query heads */
    /* Of latent attention: columns of the latents of q, and of k and v; of the
     * rotary part of k, which all heads share; of the rest of all heads' k; of
     * all heads' v */
    PLAIT_SIDE_Q_LATENT,
    PLAIT_SIDE_KV_LATENT,
    PLAIT_SIDE_ROTARY,
    PLAIT_SIDE_UNTURNED,
    PLAIT_SIDE_VALUES,
    PLAIT_SIDE_FFN,
    PLAIT_SIDE_SHARED, /* of the experts that all tokens take, side by side */
    PLAIT_SIDE_EXPERTS,
    PLAIT_SIDE_VOCAB,
    PLAIT_SIDE_POSITIONS,
    PLAIT_SIDES
};

struct plait_side_length {
    size_t whole;
    size_t here;  /* on this rank, with padding */
    size_t first; /* where that begins in the whole */
    int copies;   /* tp ranks that have the same part; 0: tp does not divide
                   * this side, so that every rank has all of it */
};

struct plait_sides {
    struct plait_side_length at[PLAIT_SIDES];
    unsigned has; /* what the model has: enum plait_has */
};

/* Of rank `tp_rank` of `tp`, in a pipeline of one stage or of more. `config` is
 * no image model's. */
void plait_sides_set(struct plait_sides *sides,
                     const struct plait_model_config *config, int tp,
                     int tp_rank, bool one_stage);
/* Makes them those of the first layers of a model with experts, which have an
 * mlp instead (model.dense_layers). */
void plait_sides_dense(struct plait_sides *sides,
                       const struct plait_model_config *config, int tp,
                       int tp_rank);

/* -- the table ------------------------------------------------------------- */

/* What a weight is for, from which follows how it begins and what makes its
 * gradient (params.c). */
enum plait_tensor_role {
    PLAIT_ROLE_NORM,      /* factors of the residual stream's columns */
    PLAIT_ROLE_NORM_BIAS, /* added to them */
    PLAIT_ROLE_HEAD_NORM, /* factors of a head's columns, whole on each rank,
                           * whose gradients tp ranks sum */
    PLAIT_ROLE_WIDE_NORM, /* factors of all heads' columns, cut as these are */
    PLAIT_ROLE_LINEAR,    /* matrix in the run's precision, fp8 too */
    PLAIT_ROLE_RESIDUAL,  /* the same; its product is added to the stream */
    PLAIT_ROLE_LATENT,    /* the same as LINEAR, whole on each rank; its
                           * gradient is a part */
    PLAIT_ROLE_ROUTER,    /* matrix, never in fp8; its gradient is a part */
    PLAIT_ROLE_BALANCE,   /* added to a router's scores, in fp32 whatever the
                           * run's precision is; counts move it, no gradient */
    PLAIT_ROLE_LOAD,      /* no weight: how often a router chose each expert in
                           * the step before, which is counted like that and is
                           * a part of the optimizer's state */
    PLAIT_ROLE_PRODUCT,   /* matrix, never in fp8 */
    PLAIT_ROLE_JOIN,      /* the same, whole on each rank, of the rows of the
                           * residual stream */
    PLAIT_ROLE_BIAS,      /* of the matrix before it */
    PLAIT_ROLE_ROUTER_BIAS, /* the same; its gradient is a part, too */
    PLAIT_ROLE_SCORE,       /* a score of each head, cut as these are */
    PLAIT_ROLE_TABLE        /* rows of it are looked up */
};

/* What a model has, for the column `when` of the table; bits of
 * plait_sides.has. A line counts where the model has any one of its bits. */
enum plait_has {
    PLAIT_HAS_ALWAYS = 1 << 0,
    PLAIT_HAS_HEADS = 1 << 1, /* q, k and v from the stream, */
    PLAIT_HAS_QKV_BIAS = 1 << 2,
    PLAIT_HAS_OUT_BIAS = 1 << 3,
    PLAIT_HAS_QK_NORM = 1 << 4,
    PLAIT_HAS_BIASES = 1 << 5,    /* of norms */
    PLAIT_HAS_GATE = 1 << 6,      /* of mlps */
    PLAIT_HAS_POSITIONS = 1 << 7, /* that are learned */
    PLAIT_HAS_EXPERTS = 1 << 8,
    /* The head uses the embedding's table on the same rank, */
    PLAIT_HAS_TIED_HERE = 1 << 9,
    PLAIT_HAS_OWN_HEAD = 1 << 10,   /* or has its own, */
    PLAIT_HAS_TIED_APART = 1 << 11, /* which is a copy of the embedding's, on
                                     * the other end of the pipeline, */
    PLAIT_HAS_UNTIED = 1 << 12,     /* or independent of it. */
    PLAIT_HAS_QK_WHOLE = 1 << 13,   /* a norm of all heads' q, one of their k */
    PLAIT_HAS_NORMS_BEFORE = 1 << 14,  /* attention and mlp, */
    PLAIT_HAS_NORMS_AFTER = 1 << 15,   /* or after them, or both */
    PLAIT_HAS_SHARED = 1 << 16,        /* experts that all tokens take, */
    PLAIT_HAS_SHARED_GATE = 1 << 17,   /* with a gate */
    PLAIT_HAS_BALANCE = 1 << 18,       /* of routers */
    PLAIT_HAS_SINKS = 1 << 19,         /* of attention */
    PLAIT_HAS_MLP_BIASES = 1 << 20,    /* of mlps, */
    PLAIT_HAS_GATE_BIAS = 1 << 21,     /* with a gate, */
    PLAIT_HAS_ROUTER_OFFSET = 1 << 22, /* and of their router */
    PLAIT_HAS_LATENT = 1 << 23,   /* or k and v from a latent (DeepSeek-V2), */
    PLAIT_HAS_Q_LATENT = 1 << 24, /* q too, */
    PLAIT_HAS_Q_DIRECT = 1 << 25, /* or from the stream */
    PLAIT_HAS_LOAD = 1 << 26,     /* experts balanced over batches */
    PLAIT_HAS_TABLE_APART = 1 << 27 /* the embedding's table is on another
                                     * stage than the head, not tied to it */
};

/* X(region, member, name, rows, columns, role, when). Names and order are those
 * of checkpoints: they must not change. */
/* clang-format off */
#define PLAIT_TENSOR_TABLE(X) \
    X(EMBEDDING, vocab, "embedding.weight", VOCAB, HIDDEN, PRODUCT, TIED_HERE) \
    X(EMBEDDING, vocab, "embedding.weight", VOCAB, HIDDEN, TABLE, OWN_HEAD) \
    X(EMBEDDING, position, "position.weight", POSITIONS, HIDDEN, TABLE, \
      POSITIONS) \
    \
    X(LAYER, norm1, "attention_norm.weight", HIDDEN, ONE, NORM, NORMS_BEFORE) \
    X(LAYER, norm1_bias, "attention_norm.bias", HIDDEN, ONE, NORM_BIAS, BIASES)\
    X(LAYER, q_down, "attention.q_down.weight", Q_LATENT, HIDDEN, LATENT, \
      Q_LATENT) \
    X(LAYER, kv_down, "attention.kv_down.weight", KV_LATENT, HIDDEN, LATENT, \
      LATENT) \
    X(LAYER, k_rotary, "attention.k_rotary.weight", ROTARY, HIDDEN, LATENT, \
      LATENT) \
    X(LAYER, q_latent_norm, "attention.q_latent_norm.weight", Q_LATENT, ONE, \
      HEAD_NORM, Q_LATENT) \
    X(LAYER, kv_latent_norm, "attention.kv_latent_norm.weight", KV_LATENT, \
      ONE, HEAD_NORM, LATENT) \
    X(LAYER, q_up, "attention.q.weight", QUERIES, Q_LATENT, LINEAR, Q_LATENT) \
    X(LAYER, q_up, "attention.q.weight", QUERIES, HIDDEN, LINEAR, Q_DIRECT) \
    X(LAYER, kv_up, "attention.k.weight", UNTURNED, KV_LATENT, LINEAR, LATENT) \
    X(LAYER, kv_up, "attention.v.weight", VALUES, KV_LATENT, LINEAR, LATENT) \
    X(LAYER, qkv, "attention.q.weight", QUERIES, HIDDEN, LINEAR, HEADS) \
    X(LAYER, qkv, "attention.k.weight", KEYS, HIDDEN, LINEAR, HEADS) \
    X(LAYER, qkv, "attention.v.weight", KEYS, HIDDEN, LINEAR, HEADS) \
    X(LAYER, qkv_bias, "attention.q.bias", QUERIES, ONE, BIAS, QKV_BIAS) \
    X(LAYER, qkv_bias, "attention.k.bias", KEYS, ONE, BIAS, QKV_BIAS) \
    X(LAYER, qkv_bias, "attention.v.bias", KEYS, ONE, BIAS, QKV_BIAS) \
    X(LAYER, q_norm, "attention.q_norm.weight", HEAD, ONE, HEAD_NORM, QK_NORM) \
    X(LAYER, k_norm, "attention.k_norm.weight", HEAD, ONE, HEAD_NORM, QK_NORM) \
    X(LAYER, q_norm, "attention.q_norm.weight", QUERIES, ONE, WIDE_NORM, \
      QK_WHOLE) \
    X(LAYER, k_norm, "attention.k_norm.weight", KEYS, ONE, WIDE_NORM, QK_WHOLE)\
    X(LAYER, out, "attention.out.weight", HIDDEN, QUERIES, RESIDUAL, HEADS) \
    X(LAYER, out, "attention.out.weight", HIDDEN, VALUES, RESIDUAL, LATENT) \
    X(LAYER, out_bias, "attention.out.bias", HIDDEN, ONE, BIAS, OUT_BIAS) \
    X(LAYER, sinks, "attention.sinks", HEADS, ONE, SCORE, SINKS) \
    X(LAYER, norm1_after, "attention_norm_after.weight", HIDDEN, ONE, NORM, \
      NORMS_AFTER) \
    X(LAYER, norm2, "mlp_norm.weight", HIDDEN, ONE, NORM, NORMS_BEFORE) \
    X(LAYER, norm2_bias, "mlp_norm.bias", HIDDEN, ONE, NORM_BIAS, BIASES) \
    X(LAYER, norm2_after, "mlp_norm_after.weight", HIDDEN, ONE, NORM, \
      NORMS_AFTER) \
    X(LAYER, router, "router.weight", EXPERTS, HIDDEN, ROUTER, EXPERTS) \
    X(LAYER, router_offset, "router.offset", EXPERTS, ONE, ROUTER_BIAS, \
      ROUTER_OFFSET) \
    X(LAYER, router_bias, "router.bias", EXPERTS, ONE, BALANCE, BALANCE) \
    X(LAYER, router_load, "router.load", EXPERTS, ONE, LOAD, LOAD) \
    X(LAYER, shared_up, "shared.gate.weight", SHARED, HIDDEN, LINEAR, \
      SHARED_GATE) \
    X(LAYER, shared_up, "shared.up.weight", SHARED, HIDDEN, LINEAR, SHARED) \
    X(LAYER, shared_down, "shared.down.weight", HIDDEN, SHARED, RESIDUAL, \
      SHARED) \
    \
    X(EXPERT, up, "gate.weight", FFN, HIDDEN, LINEAR, GATE) \
    X(EXPERT, up, "up.weight", FFN, HIDDEN, LINEAR, ALWAYS) \
    X(EXPERT, up_bias, "gate.bias", FFN, ONE, BIAS, GATE_BIAS) \
    X(EXPERT, up_bias, "up.bias", FFN, ONE, BIAS, MLP_BIASES) \
    X(EXPERT, down, "down.weight", HIDDEN, FFN, RESIDUAL, ALWAYS) \
    X(EXPERT, down_bias, "down.bias", HIDDEN, ONE, BIAS, MLP_BIASES) \
    \
    X(MTP, token_norm, "token_norm.weight", HIDDEN, ONE, NORM, ALWAYS) \
    X(MTP, token_norm_bias, "token_norm.bias", HIDDEN, ONE, NORM_BIAS, BIASES)\
    X(MTP, hidden_norm, "hidden_norm.weight", HIDDEN, ONE, NORM, ALWAYS) \
    X(MTP, hidden_norm_bias, "hidden_norm.bias", HIDDEN, ONE, NORM_BIAS, \
      BIASES) \
    X(MTP, join, "join.weight", HIDDEN, JOINED, JOIN, ALWAYS) \
    X(MTP, norm, "norm.weight", HIDDEN, ONE, NORM, ALWAYS) \
    X(MTP, norm_bias, "norm.bias", HIDDEN, ONE, NORM_BIAS, BIASES) \
    X(MTP, table, "embedding.weight", VOCAB, HIDDEN, TABLE, TABLE_APART) \
    \
    X(HEAD, norm, "norm.weight", HIDDEN, ONE, NORM, ALWAYS) \
    X(HEAD, norm_bias, "norm.bias", HIDDEN, ONE, NORM_BIAS, BIASES) \
    X(HEAD, vocab, "embedding.weight", VOCAB, HIDDEN, PRODUCT, TIED_APART) \
    X(HEAD, vocab, "head.weight", VOCAB, HIDDEN, PRODUCT, UNTIED)
/* clang-format on */

#define PLAIT_TENSOR_COUNT(...) +1
enum { PLAIT_TENSOR_ROWS = 0 PLAIT_TENSOR_TABLE(PLAIT_TENSOR_COUNT) };

/* A line of the table. */
struct plait_tensor_row {
    enum plait_region_kind kind;
    const char *member;
    const char *name; /* behind that of the layer, mlp or expert */
    enum plait_side rows, cols;
    enum plait_tensor_role role;
    enum plait_has when;
};

extern const struct plait_tensor_row plait_tensor_table[PLAIT_TENSOR_ROWS];

/* The row after `before` (NULL: the first one) of those that a region of this
 * kind has; NULL: there are no more. A layer without experts has its mlp's
 * rows in its own region. */
const struct plait_tensor_row *
plait_tensor_next(const struct plait_sides *sides, enum plait_region_kind kind,
                  const struct plait_tensor_row *before);
/* Whether it lies behind the row before it without a gap. */
bool plait_tensor_joins(const struct plait_tensor_row *row,
                        const struct plait_tensor_row *before);
/* The axis along which tp cuts it; -1: none. */
int plait_tensor_axis(const struct plait_sides *sides,
                      const struct plait_tensor_row *row);
static inline bool plait_tensor_is_matrix(const struct plait_tensor_row *row)
{
    return row->cols != PLAIT_SIDE_ONE;
}
static inline bool plait_tensor_is_linear(const struct plait_tensor_row *row)
{
    return row->role == PLAIT_ROLE_LINEAR || row->role == PLAIT_ROLE_RESIDUAL ||
           row->role == PLAIT_ROLE_LATENT;
}
/* Weights of the whole model in it; a row that is no weight has none. */
static inline double plait_tensor_weights(const struct plait_sides *sides,
                                          const struct plait_tensor_row *row)
{
    if (row->role == PLAIT_ROLE_LOAD)
        return 0;
    return (double)sides->at[row->rows].whole * sides->at[row->cols].whole;
}

/* -- sums over the rows of a region ---------------------------------------- */

/* Elements on this rank, with the padding of each weight. */
double plait_tensors_elements(const struct plait_sides *sides,
                              enum plait_region_kind kind);
/* Weights of the whole model, without padding. */
double plait_tensors_weights(const struct plait_sides *sides,
                             enum plait_region_kind kind);

#ifdef __cplusplus
}
#endif
#endif

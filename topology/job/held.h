/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_HELD_H
#define PLAIT_TOPOLOGY_JOB_HELD_H

#include <math.h>
#include <string.h>

#include "topology/job/job_config.h"
#include "topology/layout/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a rank holds beside its weights, gradients and optimizer state: the
 * activations of the micro-batches in flight and the work space. Each tensor
 * stands once, as a line of PLAIT_HELD_TABLE. Two read it: the runtime
 * (runtime/model/arena.c, image_arena.c) makes one allocation and sets a
 * pointer for each line, and the estimate
 * (topology/predict/estimate_activations.c, estimate_image.c) adds up the same
 * bytes without allocating anything. So a plan names the memory that the run
 * will take.
 *
 * To add a tensor: write a line here, in the group of those that live as long
 * as it, and a member of the same name in the group's struct, which is in
 * runtime/model/internal.h or image.h. The pointer is then set where the tensor
 * exists and NULL where it does not, and the estimate counts it.
 *
 * Lifetimes, of gpt2 and llama. A rank works on several micro-batches at once,
 * each in a slot; how many is up to the schedule (schedule.h).
 *   - BATCH, DHEAD and STASH exist once per slot, the stash once per layer of
 *     it.
 *   - What a layer's backward reads of its forward is in INPUT, CHEAP and
 *     PRODUCTS. A layer that is not recomputed keeps all three per slot, from
 *     its forward to its backward. With selective recompute it keeps no CHEAP,
 *     with full recompute the INPUT alone. What is not kept is computed again
 *     right before the backward, in the work space, where one copy serves all
 *     layers in turn. What is kept of one layer is contiguous, as it may be
 *     offloaded to the host as a block; the device then has two blocks in
 *     all.
 *   - PASSED exists once and carries values from one block to the next.
 *   - WORK and HEAD exist once and lie in the same place: WORK is used only
 *     while a layer is computed and HEAD only while the head is, never both, so
 *     that the place is as large as the larger of the two.
 *   - A module that predicts a token further (model.mtp_layers) is computed,
 *     backward included, while the head is: MTP and what its layer keeps exist
 *     once, and HEAD then lies behind WORK instead of in the same place.
 * Slots are used by one chunk of the rank's layers at a time: the place is as
 * large as the chunk that needs most. Image models have IMAGE_WORK once and the
 * rest for each slot of each chunk. */
enum plait_held_group {
    PLAIT_HELD_INPUT,    /* of a layer */
    PLAIT_HELD_CHEAP,    /* cheap to compute again: what norms and the mlp's
                          * activation put out */
    PLAIT_HELD_PRODUCTS, /* what matrix products and attention put out */
    PLAIT_HELD_STASH,    /* gradients for a weight gradient that is deferred */
    PLAIT_HELD_PASSED,
    PLAIT_HELD_WORK,
    PLAIT_HELD_HEAD,
    PLAIT_HELD_BATCH, /* the tokens of a micro-batch */
    PLAIT_HELD_DHEAD, /* on the chunk that has the head */
    PLAIT_HELD_MTP,
    PLAIT_HELD_IMAGE_WORK,
    PLAIT_HELD_IMAGE_SLOT,
    PLAIT_HELD_IMAGE_UNIT, /* of a convolution with its norm */
    PLAIT_HELD_IMAGE_OUT   /* of a block that no convolution ends */
};

/* A set of groups has the bit of each. */
#define PLAIT_HELD_SET(group) (1u << PLAIT_HELD_##group)

/* X(group, member, rows, columns, type, exists). Rows, columns and the
 * condition are C expressions of `z`, a struct plait_rank_sizes. Types: T, in
 * which the model computes; WORD, fp32 or a 32-bit integer; CODES, a matrix in
 * fp8, see plait_held_codes(). Within a group tensors lie in this order. */
/* clang-format off */
#define PLAIT_HELD_TABLE(X) \
    X(INPUT, x1, z->stream, z->hidden, T, true) \
    \
    X(CHEAP, n1, z->stream, z->hidden, T, z->norms_before) \
    X(CHEAP, n2, z->stream, z->hidden, T, z->norms_before) \
    /* of latent attention: the latents after their norms; its output without \
     * the columns that fill heads of v up to those of q and k */ \
    X(CHEAP, q_normed, z->rows, z->q_latent, T, z->q_latent) \
    X(CHEAP, kv_normed, z->rows, z->kv_latent, T, z->kv_latent) \
    X(CHEAP, values, z->rows, z->values, T, z->kv_latent) \
    \
    X(PRODUCTS, qkv, z->rows, z->qkv, T, true) \
    X(PRODUCTS, att, z->rows, z->query, T, true) \
    X(PRODUCTS, lse, z->rows, z->heads, WORD, true) \
    X(PRODUCTS, x2, z->stream, z->hidden, T, true) \
    /* q and k before their norm */ \
    X(PRODUCTS, q, z->rows, z->query, T, z->qk_norm) \
    X(PRODUCTS, k, z->rows, z->keys, T, z->qk_norm) \
    X(PRODUCTS, q_rstd, z->rows, z->q_norms, WORD, z->qk_norm) \
    X(PRODUCTS, k_rstd, z->rows, z->k_norms, WORD, z->qk_norm) \
    X(PRODUCTS, l2_rstd, z->rows, z->heads + z->kv_heads, WORD, z->l2_norm) \
    X(PRODUCTS, q_latent, z->rows, z->q_latent, T, z->q_latent) \
    X(PRODUCTS, kv_latent, z->rows, z->kv_latent, T, z->kv_latent) \
    X(PRODUCTS, q_latent_rstd, z->rows, 1, WORD, z->q_latent) \
    X(PRODUCTS, kv_latent_rstd, z->rows, 1, WORD, z->kv_latent) \
    /* what attention and mlp put out, before the norms after them */ \
    X(PRODUCTS, o1, z->stream, z->hidden, T, z->norms_after) \
    X(PRODUCTS, o2, z->stream, z->hidden, T, z->norms_after) \
    X(PRODUCTS, o1_rstd, z->stream, 1, WORD, z->norms_after) \
    X(PRODUCTS, o2_rstd, z->stream, 1, WORD, z->norms_after) \
    X(PRODUCTS, mean1, z->stream, 1, WORD, true) \
    X(PRODUCTS, rstd1, z->stream, 1, WORD, true) \
    X(PRODUCTS, mean2, z->stream, 1, WORD, true) \
    X(PRODUCTS, rstd2, z->stream, 1, WORD, true) \
    X(PRODUCTS, amax, 1, 4, WORD, true) \
    \
    /* Those that differ in layers with experts and without come last: a layer \
     * of one kind reads the stream of one of the other in the same place \
     * (arena.c: place_again()), which must then lie where its own will. */ \
    X(CHEAP, act, z->mlp, z->ffn, T, true) \
    X(CHEAP, shared_act, z->rows, z->shared, T, z->shared) \
    X(PRODUCTS, pre, z->mlp, z->up, T, true) \
    X(PRODUCTS, shared_pre, z->rows, (z->gated ? 2 : 1) * z->shared, T, \
      z->shared) \
    X(PRODUCTS, routed.prob, z->rows, z->experts, WORD, z->experts) \
    X(PRODUCTS, routed.expert, z->rows, z->top_k, WORD, z->experts) \
    X(PRODUCTS, routed.gate, z->rows, z->top_k, WORD, z->experts) \
    X(PRODUCTS, routed.place, z->rows, z->top_k, WORD, z->experts) \
    /* a row per sequence, and each sequence has a row or more */ \
    X(PRODUCTS, routed.load, z->rows, z->experts, WORD, z->experts) \
    X(PRODUCTS, routed.count, 1, z->experts + 1, WORD, z->experts) \
    X(PRODUCTS, routed.x, z->mlp, z->hidden, T, z->experts) \
    X(PRODUCTS, routed.z, z->rows * z->top_k, z->hidden, T, z->experts) \
    \
    X(STASH, ddown, z->stream, z->hidden, T, !z->experts) \
    X(STASH, dpre, z->rows, z->up, T, !z->experts) \
    X(STASH, dout, z->stream, z->hidden, T, !z->kv_latent) \
    X(STASH, dqkv, z->rows, z->qkv, T, !z->kv_latent) \
    \
    X(PASSED, full, z->rows, z->hidden, T, z->stream != z->rows) \
    X(PASSED, part, z->rows, z->hidden, T, true) \
    X(PASSED, local, z->stream, z->hidden, T, z->stream != z->rows) \
    X(PASSED, dx, z->stream, z->hidden, T, true) \
    X(PASSED, amax, 1, 2, WORD, true) \
    X(PASSED, balance, 1, 1, WORD, z->experts) \
    X(PASSED, replicas, z->all_keys, z->hidden, WORD, z->kv_copies > 1) \
    \
    /* of experts, of shared ones and of layers without, one at a time */ \
    X(WORK, dact, 1, \
      fmax(z->mlp * z->ffn, z->rows * fmax(z->dense, z->shared)), T, \
      z->gated) \
    X(WORK, datt, z->rows, z->query, T, true) \
    X(WORK, now.dpre, 1, \
      fmax(z->mlp * z->up, \
           z->rows * fmax(z->dense, z->shared) * (z->gated ? 2 : 1)), \
      T, true) \
    X(WORK, now.dqkv, z->rows, z->qkv, T, true) \
    X(WORK, codes, z->rows, z->gradient, CODES, z->codes) \
    X(WORK, normed, z->rows, z->query, T, z->qk_norm) \
    X(WORK, sums, z->rows, 1, WORD, z->qk_parts) \
    /* of latent attention: heads of q, or of k and v, side by side without \
     * what fills them up, or their gradients; the latents' gradients; what \
     * all heads of k share, or its gradient */ \
    X(WORK, up, z->rows, fmax(z->query, z->latent_up), T, z->kv_latent) \
    X(WORK, dlatent, z->rows, fmax(z->q_latent, z->kv_latent), T, \
      z->kv_latent) \
    X(WORK, rotary, z->rows, z->rotary, T, z->kv_latent) \
    X(WORK, dout, z->stream, z->hidden, T, z->norms_after) \
    X(WORK, dropped, z->stream, z->hidden, T, z->drops_stream) \
    /* keys, values and gradients that go around a context-parallel group; sums \
     * over the ring are in fp32, and what one step adds for half of the rows is \
     * in T */ \
    X(WORK, kv[0], z->rows, 2 * z->keys, T, z->cp > 1) \
    X(WORK, kv[1], z->rows, 2 * z->keys, T, z->cp > 1) \
    X(WORK, dkv[0], z->rows, 2 * z->keys, WORD, z->cp > 1) \
    X(WORK, dkv[1], z->rows, 2 * z->keys, WORD, z->cp > 1) \
    X(WORK, dkv[2], z->rows, 2 * z->keys, WORD, z->cp > 1) \
    X(WORK, dkv2, floor(z->rows / 2), 2 * z->keys, T, z->cp > 1) \
    X(WORK, over_keys, z->rows, z->query, WORD, z->cp > 1) \
    X(WORK, att2, floor(z->rows / 2), z->query, T, z->cp > 1) \
    X(WORK, lse2, floor(z->rows / 2), z->heads, WORD, z->cp > 1) \
    X(WORK, route, z->rows, z->experts, T, z->experts) \
    X(WORK, dgate, z->rows, z->top_k, WORD, z->experts) \
    X(WORK, kept, z->rows, z->top_k, WORD, z->capacity) \
    X(WORK, grouped, z->mlp, z->hidden, T, z->experts) \
    X(WORK, sorted, z->rows * z->top_k, z->hidden, T, z->experts && z->ep > 1) \
    X(WORK, runs, 2 * z->sequences, z->experts, WORD, \
      z->capacity && z->cp > 1) \
    X(WORK, all_runs, z->cp * 2 * z->sequences, z->experts, WORD, \
      z->capacity && z->cp > 1) \
    X(WORK, before, 2 * z->sequences, z->experts, WORD, \
      z->capacity && z->cp > 1) \
    \
    X(HEAD, hx, z->stream, z->hidden, T, true) \
    X(HEAD, hn, z->stream, z->hidden, T, true) \
    X(HEAD, hmean, z->stream, 1, WORD, true) \
    X(HEAD, hrstd, z->stream, 1, WORD, true) \
    X(HEAD, logits, z->logit_rows, z->vocab, T, true) \
    X(HEAD, max, z->logit_rows, 1, WORD, true) \
    X(HEAD, allmax, z->logit_rows, 1, WORD, true) \
    X(HEAD, sum, z->logit_rows, 2, WORD, true) \
    \
    X(BATCH, tokens, z->rows, 1, WORD, true) \
    X(BATCH, targets, z->rows, 1, WORD, true) \
    X(BATCH, starts, z->rows, 1, WORD, z->documents) \
    X(BATCH, windows, z->rows, 1, WORD, z->windows) \
    /* a key of two words for each sequence */ \
    X(BATCH, keys, z->sequences, 2, WORD, z->drops) \
    X(DHEAD, dhead, z->stream, z->hidden, T, true) \
    X(DHEAD, next_tokens, z->rows, 1, WORD, z->mtp) \
    X(DHEAD, next_targets, z->rows, 1, WORD, z->mtp) \
    \
    X(MTP, x, z->stream, z->hidden, T, true) \
    X(MTP, joined, z->stream, 2 * z->hidden, T, true) \
    X(MTP, token_mean, z->stream, 1, WORD, true) \
    X(MTP, token_rstd, z->stream, 1, WORD, true) \
    X(MTP, hidden_mean, z->stream, 1, WORD, true) \
    X(MTP, hidden_rstd, z->stream, 1, WORD, true) \
    X(MTP, hx, z->stream, z->hidden, T, true) \
    X(MTP, hn, z->stream, z->hidden, T, true) \
    X(MTP, hmean, z->stream, 1, WORD, true) \
    X(MTP, hrstd, z->stream, 1, WORD, true) \
    X(MTP, dhidden, z->stream, z->hidden, T, true) \
    \
    X(IMAGE_WORK, grad, z->rows, z->largest, WORD, true) \
    X(IMAGE_WORK, pre, z->rows, z->largest, WORD, true) \
    X(IMAGE_WORK, spare, z->rows, z->largest, WORD, true) \
    X(IMAGE_WORK, sums, z->groups, 2 * z->norm, WORD, true) \
    X(IMAGE_WORK, all, z->dp, 2 * z->norm, WORD, z->sync) \
    X(IMAGE_WORK, pooled, z->rows, z->head, WORD, true) \
    X(IMAGE_WORK, dpooled, z->rows, z->head, WORD, true) \
    X(IMAGE_WORK, logits, z->rows, z->classes, WORD, true) \
    \
    X(IMAGE_SLOT, labels, z->rows, 1, WORD, true) \
    X(IMAGE_SLOT, dhead, z->rows, z->last_in, WORD, true) \
    X(IMAGE_SLOT, input, z->rows, z->first_in, WORD, true) \
    X(IMAGE_UNIT, pre, z->rows, z->unit, WORD, true) \
    X(IMAGE_UNIT, post, z->rows, z->unit, WORD, true) \
    X(IMAGE_UNIT, stats, z->groups, 2 * z->channels, WORD, true) \
    X(IMAGE_OUT, out, z->rows, z->out, WORD, true)
/* clang-format on */

#define PLAIT_HELD_ONE(group, member, rows, columns, type, exists) +1
enum { PLAIT_HELD_TENSORS = 0 PLAIT_HELD_TABLE(PLAIT_HELD_ONE) };

/* The sizes of a rank's tensors, of which rows, columns and weights are made.
 * They are whole numbers, and doubles because estimates are also made of what
 * no machine could hold. */
struct plait_rank_sizes {
    /* rows */
    double rows;       /* tokens of a micro-batch here */
    double stream;     /* of the residual stream: all, or their tp-th part */
    double mlp;        /* of the mlp; more where experts get those of others */
    double logit_rows; /* whose logits are computed at a time */
    double sequences;  /* of a micro-batch */
    /* columns */
    double hidden, head_dim;
    double heads, kv_heads; /* here, at least 1 */
    double kv_copies;       /* tp ranks that hold the same key/value heads */
    double query, keys;     /* of all q here; of all k, as of all v */
    double qkv;             /* of q, k and v side by side */
    double all_keys;        /* of all k of the model */
    double q_latent, kv_latent; /* of latent attention: of its latents, */
    double rotary;              /* of the part of k that all heads share, */
    double latent_up;           /* of all k here without it and all v, */
    double values;              /* and of all v here */
    double ffn, up;             /* out of the mlp's activation, and into it */
    double shared; /* of the experts that all tokens take, side by side */
    double dense;  /* ffn of layers without experts, where others have them */
    double q_norms, k_norms; /* of a row, where q and k have norms */
    double vocab;            /* here, padding included */
    double gradient;         /* of the widest gradient that has fp8 codes */
    double experts, top_k;   /* of the whole model */
    double here;             /* experts on this rank */
    double capacity; /* most choices of an expert per sequence; 0: any number */
    double cp, ep;
    double message; /* numbers that go from one stage to the next */
    double element; /* bytes of T */
    bool gated, qk_norm, l2_norm, documents, windows, codes;
    bool drops, drops_stream; /* dropout: any; of the residual stream */
    bool qk_parts;            /* a norm of q is of columns on several ranks */
    bool norms_before, norms_after;
    bool mtp; /* a module predicts a token further */
    /* Of image models, whose rows are images. What is of a chunk, block or unit
     * is set by those who walk along the blocks. */
    double dp, groups, classes; /* groups: of images, for norms' statistics */
    bool sync;                  /* statistics of all data-parallel ranks */
    double largest, norm, head; /* plait_rank_sizes_widest() */
    double first_in, last_in;   /* numbers of an image that go into a chunk's
                                 * first and last block */
    double unit, channels;      /* numbers of a unit's output; its channels */
    double out;                 /* numbers of a block's output */
};

/* For micro-batches of `rows` tokens on this rank in `sequences` sequences. */
void plait_rank_sizes_set(struct plait_rank_sizes *sizes,
                          const struct plait_job_config *config,
                          const struct plait_layout *layout, double rows,
                          double sequences, bool gpu);
/* Makes them those of a layer without experts in a model that has them: for the
 * groups of a layer's activations. */
void plait_rank_sizes_dense(struct plait_rank_sizes *sizes);
/* For image models, of all blocks of pipeline rank `rank` of `pp`: the numbers
 * of an image that one reads or writes at most; the channels of the widest
 * norm; the columns of the head's matrix, 0 where it is not here. */
void plait_rank_sizes_widest(struct plait_rank_sizes *sizes,
                             const struct plait_job_config *config, int pp,
                             int rank);
/* Rows of the residual stream on a rank that has so many tokens. */
double plait_rank_stream(const struct plait_job_config *config,
                         const struct plait_layout *layout, double rows);
/* Groups of images whose statistics norms take apart. */
size_t plait_image_groups(const struct plait_model_config *config,
                          size_t images);

/* Every tensor begins at a multiple of so many bytes. */
#define PLAIT_HELD_ALIGN 256

static inline double plait_held_align(double bytes)
{
    return ceil(bytes / PLAIT_HELD_ALIGN) * PLAIT_HELD_ALIGN;
}

/* Bytes of the codes of a matrix in fp8: as plait_fp8_bytes() of
 * kernels/kernels.h, where they are written. */
double plait_held_codes(double rows, double columns);

/* A line of the table for given sizes. */
struct plait_held {
    enum plait_held_group group;
    bool exists;
    double bytes; /* aligned */
};

void plait_held_list(const struct plait_rank_sizes *sizes,
                     struct plait_held list[PLAIT_HELD_TENSORS]);
/* Bytes of all that exists of a set of groups. */
double plait_held_bytes(const struct plait_held list[PLAIT_HELD_TENSORS],
                        unsigned groups);

/* The groups that a layer keeps until its backward, and those that are computed
 * again instead. */
unsigned plait_held_kept(enum plait_recompute recompute);
unsigned plait_held_again(enum plait_recompute recompute);

#ifdef __cplusplus
}
#endif
#endif

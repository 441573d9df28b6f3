/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_HF_TYPES_H
#define PLAIT_RUNTIME_CHECKPOINT_HF_TYPES_H

#include <stdbool.h>

#include "topology/job/job_config.h"

/* Whether a type of model has the key sliding_window. */
enum plait_hf_window {
    PLAIT_HF_WINDOW_NONE,
    PLAIT_HF_WINDOW,
    PLAIT_HF_WINDOW_ASKED, /* only if use_sliding_window is true */
    PLAIT_HF_WINDOW_TYPES  /* in the layers that layer_types says, or else in
                            * all but every so many */
};

/* How those types of Hugging Face's models that are llama models here differ
 * from each other. */
struct plait_hf_type {
    const char *name;  /* model_type; NULL ends the list */
    const char *class; /* class of the package transformers */
    double theta;      /* rope_theta where it is not given */
    /* Where these keys are missing, which is not the same as null: */
    int kv_heads; /* num_key_value_heads; 0: as many as heads */
    int head_dim; /* 0: hidden_size / num_attention_heads */
    int reach;    /* sliding_window; 0: none */
    enum plait_hf_window window;
    int every; /* layer_types where it is missing: the last of so many layers
                * has no window */
    double theta_window; /* theta of those with one, where it is not given; 0:
                          * rotary positions are not said for each kind */
    int no_rope; /* no_rope_layer_interval where it is missing; 0: the type
                  * has none of these keys */
    bool no_rope_full; /* of layers with windows and without, the latter have no
                        * rotary positions */
    bool experts;      /* the type always has them, as the two below */
    bool own_width;    /* of experts: in a key of its own, as their names are */
    bool topk_prob;    /* norm_topk_prob and num_experts without such a width */
    bool qkv;          /* biases of q, k and v */
    bool qk_norm;
    bool gemma; /* GeGLU, norms of 1 + weight, scaled embeddings */
    bool both;  /* norms before and after */
    int scalar; /* query_pre_attn_scalar where it is missing; 0: no such key */
    double score_cap; /* attn_logit_softcapping where it is missing; 0: the type
                       * has none */
    bool capped;      /* final_logit_softcapping */
    double logit_cap; /* and that where it is missing */
    bool sinks;       /* GPT-OSS: of attention, and with them biases of experts,
                       * clamped gates, biases of attention and YaRN where the
                       * keys of these are missing */
    bool whole;       /* with qk_norm: one of all heads' q and one of their k */
    bool square;      /* heads have hidden_size columns together */
    bool after;       /* norms after */
    bool multipliers; /* embedding_multiplier and its like */
    bool partial;     /* partial_rotary_factor may be below 1; transformers
                       * takes no rope_type with it that plait-train has, but
                       * longrope of a phi3 */
    bool fused;       /* q, k and v are one tensor, gate and up another */
    bool tied;        /* tie_word_embeddings where it is missing */
    bool all;         /* attention_bias: biases of q, k, v and the output */
    bool out_bias;    /* attention_bias: of q, k and v, and attention_out_bias:
                       * of the output */
    bool mlp_bias;    /* that key: biases of the mlp's three matrices */
    bool glm;         /* attention_bias: of q, k and v; use_qk_norm; experts by
                       * sigmoids, shared ones, first layers without; half of
                       * each head is rotated where no key says how much */
    bool softmax;     /* these experts by softmax instead, whose scores are
                       * weights as they are, as in DeepSeek-V2 */
    bool llama4;      /* experts whose inputs are weighted, in some layers;
                       * interleaved pairs of rotary columns; norms after the
                       * rotation; chunks; tempered queries */
    bool latent;      /* latent attention, whose biases are of other matrices,
                       * and experts as above with other defaults */
    bool lite;        /* of these, with mlp_layer_types and defaults again */
    bool sigmoid;     /* MiniMax-M2: Mixtral's experts, chosen by sigmoids */
};

extern const struct plait_hf_type plait_hf_types[];

/* The type `like` (may be NULL) if the model fits it, or the first that it
 * does; NULL: none. */
const struct plait_hf_type *
plait_hf_choose(const struct plait_model_config *model, const char *like);

/* Says what of the model no type has: -1. */
int plait_hf_choose_refuse(const struct plait_model_config *model,
                           struct plait_error *err);

#endif

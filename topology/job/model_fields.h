/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_MODEL_FIELDS_H
#define PLAIT_TOPOLOGY_JOB_MODEL_FIELDS_H

#include "topology/job/fields.h"
#include "topology/job/job_config.h"

/* The keys of the section `model`, for job_config.c alone. */

static const char *const attention_biases[] = {"none", "qkv", "all"};
static const char *const norms[] = {"batch", "ghost", "sync"};
static const char *const losses[] = {"cross-entropy", "squared"};
static const char *const gates[] = {"silu", "gelu", "clamped"};
static const char *const rope_scalings[] = {"llama3", "yarn"};
static const char *const norm_places[] = {"before", "after", "both"};

static const struct plait_yaml_field model_fields[] = {
    FIELD(model, "family", family, CHOICE, CHOICES(plait_family_names)),
    FIELD(model, "layers", layers, INT, RANGE(0, COUNT_MOST), DEFAULT(12),
          .also = "num_hidden_layers num_layers n_layer"),
    FIELD(model, "hidden", hidden, INT, RANGE(1, COUNT_MOST), DEFAULT(768),
          .also = "hidden_size n_embd d_model"),
    FIELD(model, "heads", heads, INT, RANGE(1, COUNT_MOST), DEFAULT(12),
          .also = "num_attention_heads n_head"),
    FIELD(model, "kv_heads", kv_heads, INT, RANGE(1, COUNT_MOST),
          .also = "num_key_value_heads num_query_groups"),
    FIELD(model, "head_dim", head_dim, INT, RANGE(0, COUNT_MOST)),
    FIELD(model, "ffn", ffn, INT, RANGE(1, COUNT_MOST),
          .also = "intermediate_size ffn_hidden_size n_inner"),
    FIELD(model, "vocab", vocab, INT, RANGE(2, 1 << 24), DEFAULT(50304),
          .also = "vocab_size"),
    FIELD(model, "seq_len", seq_len, INT, RANGE(1, 1 << 24), DEFAULT(1024),
          .also = "max_position_embeddings n_positions seq_length"),
    FIELD(model, "tie_embeddings", tie_embeddings, BOOL,
          .also = "tie_word_embeddings"),
    FIELD(model, "rope_theta", rope_theta, REAL, RANGE(1, 1e12), DEFAULT(1e4)),
    FIELD(model, "rope_scaling", rope_scaling, CHOICE, CHOICES(rope_scalings)),
    FIELD(model, "rope_factor", rope_factor, REAL, RANGE(1, 1e6), DEFAULT(1)),
    FIELD(model, "rope_low_freq_factor", rope_low_freq_factor, REAL,
          RANGE(1e-3, 1e6), DEFAULT(1)),
    FIELD(model, "rope_high_freq_factor", rope_high_freq_factor, REAL,
          RANGE(1e-3, 1e6), DEFAULT(4)),
    FIELD(model, "rope_original_len", rope_original_len, INT, RANGE(1, 1 << 24),
          DEFAULT(8192)),
    FIELD(model, "rope_truncate", rope_truncate, BOOL, ),
    FIELD(model, "rope_attention_factor", rope_attention_factor, REAL,
          RANGE(0, 1e3)),
    FIELD(model, "rope_columns", rope_columns, INT, RANGE(0, COUNT_MOST)),
    FIELD(model, "rope_theta_window", rope_theta_window, REAL, RANGE(0, 1e12)),
    FIELD(model, "attention_bias", attention_bias, CHOICE,
          CHOICES(attention_biases)),
    FIELD(model, "mlp_bias", mlp_bias, BOOL, ),
    FIELD(model, "qk_norm", qk_norm, BOOL, ),
    FIELD(model, "qk_norm_whole", qk_norm_whole, BOOL, ),
    FIELD(model, "norm_place", norm_place, CHOICE, CHOICES(norm_places)),
    FIELD(model, "norm_plus_one", norm_plus_one, BOOL, ),
    FIELD(model, "gate", gate, CHOICE, CHOICES(gates)),
    FIELD(model, "sliding_window", sliding_window, INT, RANGE(0, 1 << 24)),
    FIELD(model, "full_attention_every", full_attention_every, INT,
          RANGE(0, COUNT_MOST)),
    FIELD(model, "full_attention_first", full_attention_first, INT,
          RANGE(0, COUNT_MOST)),
    FIELD(model, "embedding_multiplier", embedding_multiplier, REAL,
          RANGE(1e-6, 1e6), DEFAULT(1)),
    FIELD(model, "attention_multiplier", attention_multiplier, REAL,
          RANGE(0, 1e6)),
    FIELD(model, "residual_multiplier", residual_multiplier, REAL,
          RANGE(1e-6, 1e6), DEFAULT(1)),
    FIELD(model, "logits_scaling", logits_scaling, REAL, RANGE(1e-6, 1e6),
          DEFAULT(1)),
    FIELD(model, "mup", mup, INT, RANGE(0, COUNT_MOST)),
    FIELD(model, "mup_layers", mup_layers, INT, RANGE(0, COUNT_MOST)),
    FIELD(model, "mup_head_dim", mup_head_dim, INT, RANGE(0, COUNT_MOST)),
    FIELD(model, "attention_softcap", attention_softcap, REAL, RANGE(0, 1e4)),
    FIELD(model, "logit_softcap", logit_softcap, REAL, RANGE(0, 1e6)),
    FIELD(model, "attention_sinks", attention_sinks, BOOL, ),
    FIELD(model, "no_rope_every", no_rope_every, INT, RANGE(0, COUNT_MOST),
          .also = "no_rope_layer_interval"),
    FIELD(model, "mla", mla, NUMBERS, RANGE(0, COUNT_MOST)),
    FIELD(model, "norm_eps", norm_eps, REAL, RANGE(1e-12, 1), DEFAULT(1e-5),
          .also = "rms_norm_eps layer_norm_epsilon"),
    FIELD(model, "experts", experts, INT, RANGE(0, COUNT_MOST),
          .also = "num_experts num_local_experts n_routed_experts"),
    FIELD(model, "experts_top_k", experts_top_k, INT, RANGE(1, COUNT_MOST),
          DEFAULT(2), .also = "num_experts_per_tok moe_router_topk"),
    FIELD(model, "shared_experts", shared_experts, INT, RANGE(0, COUNT_MOST)),
    FIELD(model, "dense_layers", dense_layers, INT, RANGE(0, COUNT_MOST)),
    FIELD(model, "dense_ffn", dense_ffn, INT, RANGE(0, COUNT_MOST)),
    FIELD(model, "experts_capacity", experts_capacity, REAL, RANGE(0, 1e6)),
    FIELD(model, "experts_balance", experts_balance, REAL, RANGE(0, 1e6),
          DEFAULT(0.01)),
    FIELD(model, "depth", depth, INT, RANGE(1, 6002), DEFAULT(20)),
    FIELD(model, "width", width, INT, RANGE(0, COUNT_MOST)),
    FIELD(model, "classes", classes, INT, RANGE(1, COUNT_MOST), DEFAULT(10)),
    FIELD(model, "input", input, NUMBERS, RANGE(1, 65536)),
    FIELD(model, "norm", norm, CHOICE, CHOICES(norms)),
    FIELD(model, "ghost_batch", ghost_batch, INT, RANGE(1, COUNT_MOST),
          DEFAULT(32)),
    FIELD(model, "loss", loss, CHOICE, CHOICES(losses)),
    FIELD(model, "label_smoothing", label_smoothing, REAL, RANGE(0, 1)),
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The types of models of Hugging Face's that can be planned. */
#include "topology/job/foreign_types.h"

#include <stdio.h>
#include <string.h>

#define QK_NORM "model.qk_norm=true"
#define GEMMA "model.norm_plus_one=true", "model.gate=gelu"
#define NORMS_BOTH "model.norm_place=both"
#define QK_WHOLE QK_NORM, "model.qk_norm_whole=true"
#define AFTER "model.norm_place=after"
#define SIGMOID "model.experts_scores=sigmoid"
#define LATENT                                                \
    "q_lora_rank=1536 kv_lora_rank=512 qk_nope_head_dim=128 " \
    "qk_rope_head_dim=64 v_head_dim=128 "

static const struct plait_foreign_type types[] = {
    {.name = "gpt2", .family = "gpt2"},
    {.name = "llama", .family = "llama"},
    {.name = "mistral", .family = "llama"},
    {.name = "mixtral", .family = "llama"},
    {.name = "qwen2", .family = "llama", .more = {"model.attention_bias=qkv"}},
    {.name = "qwen3", .family = "llama", .more = {QK_NORM}},
    {.name = "qwen3_moe", .family = "llama", .more = {QK_NORM}},
    {.name = "llama4_text",
     .family = "llama",
     .more = {"model.shared_experts=1", "model.experts_scores=input"},
     .sizes = "num_key_value_heads=8 head_dim=128 attention_chunk_size=8192 "
              "no_rope_layer_interval=4 use_qk_norm=true"},
    {.name = "gpt_oss",
     .family = "llama",
     .more = {"model.attention_sinks=true", "model.mlp_bias=true",
              "model.gate=clamped"},
     .every = 2,
     .sizes = "head_dim=64 num_key_value_heads=8 sliding_window=128 "
              "attention_bias=true"},
    {.name = "gemma",
     .family = "llama",
     .more = {GEMMA},
     .sizes = "head_dim=256 num_key_value_heads=16"},
    {.name = "gemma2",
     .family = "llama",
     .every = 2,
     .more = {GEMMA, NORMS_BOTH},
     .sizes = "num_attention_heads=8 num_key_value_heads=4 head_dim=256 "
              "vocab_size=256000 sliding_window=4096 "
              "attn_logit_softcapping=50 final_logit_softcapping=30"},
    {.name = "gemma3_text",
     .family = "llama",
     .more = {QK_NORM, GEMMA, NORMS_BOTH},
     .every = 6,
     .sizes = "num_attention_heads=8 num_key_value_heads=4 head_dim=256 "
              "vocab_size=262208 sliding_window=4096"},
    {.name = "phi3", .family = "llama"},
    {.name = "smollm3", .family = "llama"},
    {.name = "olmo2", .family = "llama", .more = {QK_WHOLE, AFTER}},
    {.name = "olmo3",
     .family = "llama",
     .more = {QK_WHOLE, AFTER},
     .every = 4,
     .sizes = "sliding_window=4096"},
    {.name = "olmoe", .family = "llama", .more = {QK_WHOLE}},
    {.name = "exaone4",
     .family = "llama",
     .more = {QK_NORM, AFTER},
     .every = 4,
     .sizes = "num_key_value_heads=32 sliding_window=4096"},
    {.name = "seed_oss",
     .family = "llama",
     .sizes = "num_key_value_heads=8 head_dim=128 attention_bias=true"},
    {.name = "minimax_m2",
     .family = "llama",
     .more = {QK_WHOLE, SIGMOID},
     .sizes = "num_key_value_heads=8 head_dim=128"},
    {.name = "granite", .family = "llama"},
    {.name = "glm4_moe",
     .family = "llama",
     .more = {SIGMOID},
     .sizes = "first_k_dense_replace=1 n_shared_experts=1"},
    {.name = "deepseek_v2",
     .family = "llama",
     .more = {"model.experts_weights=scores"},
     .sizes = LATENT "n_shared_experts=2"},
    {.name = "deepseek_v3",
     .family = "llama",
     .more = {SIGMOID},
     .sizes = LATENT "first_k_dense_replace=3 n_shared_experts=1"},
    {.name = "kimi_k2",
     .family = "llama",
     .more = {SIGMOID},
     .sizes = LATENT "first_k_dense_replace=3 n_shared_experts=1"},
    {.name = "glm4_moe_lite",
     .family = "llama",
     .more = {SIGMOID},
     .sizes = "q_lora_rank=768 kv_lora_rank=512 qk_nope_head_dim=192 "
              "qk_rope_head_dim=64 v_head_dim=256 first_k_dense_replace=1 "
              "n_shared_experts=1"},
};

enum { NTYPES = sizeof(types) / sizeof(types[0]) };

const struct plait_foreign_type *plait_foreign_type_find(const char *name)
{
    for (int i = 0; i < NTYPES; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

void plait_foreign_type_names(char *text, size_t size)
{
    size_t n = 0;

    *text = '\0';
    for (int i = 0; i < NTYPES && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i > 0 ? ", " : "",
                              types[i].name);
}

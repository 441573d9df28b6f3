/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_MODEL_UTIL_H
#define PLAIT_TESTS_UNIT_MODEL_UTIL_H

#include <string.h>

#include "runtime/model/model.h"

/* Passed as a family: llama with everything that Llama 3, Qwen 2, Qwen 3,
 * SmolLM 3 and Granite add. */
#define RICH_LLAMA ((enum plait_family)100)

static inline void enrich(struct plait_model_config *m)
{
    m->family = PLAIT_LLAMA;
    m->head_dim = 10;
    m->attention_bias = PLAIT_BIAS_ALL;
    m->qk_norm = true;
    m->rope_factor = 8;
    m->rope_low_freq_factor = 1;
    m->rope_high_freq_factor = 4;
    m->rope_original_len = 12;
    m->rope_columns = 6;
    m->sliding_window = 7;
    m->full_attention_every = 3;
    m->no_rope_every = 4;
    m->embedding_multiplier = 3;
    m->attention_multiplier = 0.4;
    m->residual_multiplier = 0.7;
    m->logits_scaling = 1.5;
}

/* Or with OLMo's norms after attention and mlp, or with Gemma's before and
 * after, which experts cannot have. */
#define AFTER_LLAMA ((enum plait_family)101)
#define BOTH_LLAMA ((enum plait_family)102)

/* Or with a first layer that has an mlp of its own width where others have
 * experts, some of them for all tokens. */
#define FIRST_LLAMA ((enum plait_family)103)

/* Or with latent attention, where queries have a latent too or have none. */
#define LATENT_LLAMA ((enum plait_family)104)
#define DIRECT_LLAMA ((enum plait_family)105)

/* Or with what Llama 4 adds. */
#define PLACED_LLAMA ((enum plait_family)106)

static inline void put_placed(struct plait_model_config *m)
{
    m->family = PLAIT_LLAMA;
    m->qk_l2_norm = true;
    m->no_rope_every = 2;
    m->attention_chunk = 7;
    m->attention_temperature = 0.5;
    m->attention_temperature_floor = 3;
    m->experts = 4;
    m->experts_scores = PLAIT_SCORES_INPUT;
    m->experts_every = 2;
    m->dense_ffn = 300;
    m->shared_experts = 1;
}

static inline void put_latents(struct plait_model_config *m, bool q)
{
    m->family = PLAIT_LLAMA;
    m->mla_q = q ? 20 : 0;
    m->mla_kv = 12;
    m->mla_nope = 4;
    m->mla_rope = 6;
    m->mla_value = 8;
    m->attention_multiplier = 0.4;
    m->attention_sinks = !q;
}

static inline void put_norms_after(struct plait_model_config *m, bool both)
{
    m->family = PLAIT_LLAMA;
    m->norm_place = both ? PLAIT_NORMS_BOTH : PLAIT_NORMS_AFTER;
    m->qk_norm = true;
    m->qk_norm_whole = !both;
    m->sliding_window = 7;
    m->full_attention_every = 3;
    m->rope_theta_window = 100;
    m->norm_plus_one = both;
    m->gate = both ? PLAIT_GATE_GELU : PLAIT_GATE_SILU;
    m->attention_softcap = both ? 1 : 0;
    m->logit_softcap = both ? 3 : 0;
    m->attention_sinks = both;
    m->mlp_bias = both;
    m->attention_multiplier = 0.4;
    m->embedding_multiplier = 3;
}

/* Small models for tests. Their sizes are multiples of 4 but not of the block
 * sizes that kernels prefer. */
static inline void small_config(struct plait_job_config *config,
                                enum plait_family family)
{
    memset(config, 0, sizeof(*config));
    config->model.family = family;
    if (family == RICH_LLAMA)
        enrich(&config->model);
    if (family == AFTER_LLAMA || family == BOTH_LLAMA)
        put_norms_after(&config->model, family == BOTH_LLAMA);
    if (family == LATENT_LLAMA || family == DIRECT_LLAMA)
        put_latents(&config->model, family == LATENT_LLAMA);
    if (family == PLACED_LLAMA)
        put_placed(&config->model);
    if (family == FIRST_LLAMA) {
        config->model.family = PLAIT_LLAMA;
        config->model.experts = 4;
        config->model.dense_layers = 1;
        config->model.dense_ffn = 300;
        config->model.shared_experts = 2;
    }
    family = config->model.family;
    config->model.layers = 4;
    config->model.hidden = 48;
    config->model.heads = 8;
    config->model.kv_heads =
        family == PLAIT_LLAMA && !config->model.mla_kv ? 2 : 8;
    config->model.ffn = family == PLAIT_LLAMA ? 136 : 192;
    config->model.vocab = 259;
    config->model.seq_len = 16;
    config->model.tie_embeddings = family == PLAIT_GPT2;
    config->model.rope_theta = 10000;
    config->model.norm_eps = 1e-5;
    config->model.experts_top_k = 2; /* used if a test asks for experts */
    config->parallel.schedule = PLAIT_SCHEDULE_1F1B;
    config->parallel.virtual_stages = 1;
    config->train.micro_batch = 2;
    config->train.seed = 1;
}

/* Sets a mesh to a place in a layout, without devices or groups. */
static inline void place(struct plait_mesh *mesh, int tp, int tp_rank, int pp,
                         int pp_rank)
{
    memset(mesh, 0, sizeof(*mesh));
    for (int i = 0; i < PLAIT_NAXES; i++) {
        mesh->layout.size[i] = 1;
        mesh->layout.order[i] = i;
    }
    mesh->layout.size[PLAIT_TP] = tp;
    mesh->layout.size[PLAIT_PP] = pp;
    mesh->coord.at[PLAIT_TP] = tp_rank;
    mesh->coord.at[PLAIT_PP] = pp_rank;
    mesh->world_size = tp * pp;
    mesh->rank = pp_rank * tp + tp_rank;
}

static inline const struct plait_tensor *
find_tensor(const struct plait_model *m, const char *name)
{
    for (int i = 0; i < m->ntensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return &m->tensors[i];
    return NULL;
}

#endif

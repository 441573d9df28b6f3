/* SPDX-License-Identifier: Apache-2.0 */
/* Which of Hugging Face's types a model is written as. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"
#include "topology/job/model_size.h"

/* Whether the model is a Gemma, whose embedding is scaled by its width. */
static bool is_gemma(const struct plait_model_config *m)
{
    return m->gate == PLAIT_GATE_GELU && m->norm_plus_one &&
           fabs(m->embedding_multiplier / sqrt(m->hidden) - 1) < 1e-6 &&
           plait_model_factor(m->residual_multiplier) == 1 &&
           plait_model_factor(m->logits_scaling) == 1;
}

/* Its multipliers, caps, gate and norms. */
static bool fits_constants(const struct plait_model_config *m,
                           const struct plait_hf_type *type)
{
    double all;

    if ((m->attention_softcap > 0 && !(type->score_cap > 0)) ||
        (m->logit_softcap > 0 && !type->capped))
        return false;
    if (type->latent && !plait_hf_latent_scales(m, &all))
        return false;
    if (type->gemma)
        return is_gemma(m) && (type->scalar || !(m->attention_multiplier > 0));
    return m->gate == (type->sinks ? PLAIT_GATE_CLAMPED : PLAIT_GATE_SILU) &&
           !m->norm_plus_one &&
           (type->multipliers || type->latent || !plait_model_multiplier(m));
}

/* Its rotary positions. Types that say them for each kind of layers stretch
 * none of those with windows, and transformers always rounds YaRN's there. */
static bool fits_positions(const struct plait_model_config *m,
                           const struct plait_hf_type *type)
{
    bool own_window = m->rope_theta_window > 0, scaled = m->rope_factor > 1;
    bool longrope = scaled && m->rope_scaling == PLAIT_ROPE_LONGROPE;

    if (type->partial ? scaled && !(longrope && type->fused)
                      : plait_model_partly_rotated(m))
        return false;
    if (!(type->theta_window > 0))
        return !own_window;
    if (longrope)
        return false;
    if (scaled && m->rope_scaling == PLAIT_ROPE_YARN && !m->rope_truncate)
        return false;
    return own_window || !m->sliding_window || !scaled;
}

/* Whether its experts, and what it has of Llama 4's attention, are the type's.
 */
static bool fits_llama4(const struct plait_model_config *m,
                        const struct plait_hf_type *type)
{
    bool input = m->experts && m->experts_scores == PLAIT_SCORES_INPUT;

    if (type->llama4)
        return input && m->shared_experts == 1;
    return !input && !m->qk_l2_norm && !m->attention_chunk &&
           !(m->attention_temperature > 0) && m->experts_every < 2;
}

/* Its experts: how tokens choose them and weigh their outputs. */
static bool fits_experts(const struct plait_model_config *m,
                         const struct plait_hf_type *type)
{
    bool sigmoid = m->experts_scores == PLAIT_SCORES_SIGMOID;

    if (type->llama4 || !m->experts)
        return type->experts == (m->experts > 0);
    if (type->sigmoid)
        return sigmoid && !m->shared_experts && !m->dense_layers &&
               m->experts_groups < 2 &&
               m->experts_weights == PLAIT_WEIGHTS_SHARES &&
               plait_model_factor(m->experts_scale) == 1;
    if (!type->experts || type->glm != (m->shared_experts > 0) ||
        sigmoid != (type->glm && !type->softmax))
        return false;
    if (type->softmax)
        return m->experts_weights == PLAIT_WEIGHTS_SCORES;
    if (sigmoid)
        return true;
    return m->experts_groups < 2 && plait_model_factor(m->experts_scale) == 1 &&
           (type->own_width || !m->dense_layers) &&
           (type->own_width || type->topk_prob ||
            m->experts_weights == PLAIT_WEIGHTS_SHARES);
}

static bool fits_bias(const struct plait_model_config *m,
                      const struct plait_hf_type *type)
{
    if (m->attention_bias == PLAIT_BIAS_NONE)
        return !type->qkv;
    if (m->attention_bias == PLAIT_BIAS_ALL)
        return type->all || type->out_bias;
    return type->qkv || type->out_bias || (type->glm && !type->latent);
}

/* Which layers have windows, and which have no rotary positions. */
static bool fits_layers(const struct plait_model_config *m,
                        const struct plait_hf_type *type)
{
    bool windows = !m->sliding_window ||
                   type->window == PLAIT_HF_WINDOW_ASKED ||
                   type->window == PLAIT_HF_WINDOW_TYPES ||
                   (type->window == PLAIT_HF_WINDOW &&
                    !m->full_attention_every && !m->full_attention_first);

    if (type->no_rope_full)
        return m->sliding_window
                   ? m->no_rope_every == m->full_attention_every &&
                         !m->full_attention_first
                   : !m->no_rope_every;
    return windows && (type->no_rope || !m->no_rope_every);
}

/* Whether heads have as many columns together as the type wants. */
static bool fits_heads(const struct plait_model_config *m,
                       const struct plait_hf_type *type)
{
    return !type->square ||
           (int64_t)plait_model_head_dim(m) * m->heads == m->hidden;
}

/* Whether the type has exactly the features that the model has. */
static bool fits_type(const struct plait_model_config *m,
                      const struct plait_hf_type *type)
{
    return fits_bias(m, type) && fits_layers(m, type) && fits_heads(m, type) &&
           fits_experts(m, type) && type->latent == (m->mla_kv > 0) &&
           ((type->glm && !type->softmax) || !m->mtp_layers) &&
           (type->glm || type->qk_norm == m->qk_norm) &&
           type->sinks == m->attention_sinks &&
           (type->mlp_bias || type->sinks == m->mlp_bias) &&
           type->after == (m->norm_place == PLAIT_NORMS_AFTER) &&
           type->whole == (m->qk_norm && m->qk_norm_whole) &&
           fits_positions(m, type) && fits_llama4(m, type) &&
           type->both == (m->norm_place == PLAIT_NORMS_BOTH) &&
           fits_constants(m, type);
}

const struct plait_hf_type *plait_hf_choose(const struct plait_model_config *m,
                                            const char *like)
{
    const struct plait_hf_type *first = NULL;

    for (const struct plait_hf_type *type = plait_hf_types; type->name;
         type++) {
        if (!fits_type(m, type))
            continue;
        if (like && !strcmp(type->name, like))
            return type;
        if (!first)
            first = type;
    }
    return first;
}

/* What only a llama4_text has, which has no more than that. */
static const char *find_llama4_key(const struct plait_model_config *m)
{
    return m->experts && m->experts_scores == PLAIT_SCORES_INPUT
               ? "experts_scores input"
           : m->qk_l2_norm                ? "qk_l2_norm"
           : m->attention_chunk           ? "attention_chunk"
           : m->attention_temperature > 0 ? "attention_temperature"
           : m->experts_every > 1         ? "experts_every"
                                          : NULL;
}

/* What those with latent attention, of DeepSeek and a kimi_k2, cannot have.
 * 0: nothing. */
static int refuse_latent(const struct plait_model_config *m,
                         struct plait_error *err)
{
    double all;

    if (!m->experts)
        return plait_errorf(err, "model.mla without model.experts: model types "
                                 "of Hugging Face that have latent attention "
                                 "have experts");
    if (!plait_model_multiplier(m) || plait_hf_latent_scales(m, &all))
        return 0;
    return plait_errorf(err,
                        "model.mla with multipliers: a model of Hugging Face "
                        "with latent attention has none but a "
                        "model.attention_multiplier above 1 / sqrt(%d columns "
                        "of a head) where model.rope_factor stretches "
                        "positions",
                        plait_model_head_dim(m));
}

/* What experts that are chosen by softmax cannot have. 0: nothing. */
static int refuse_softmax(const struct plait_model_config *m,
                          struct plait_error *err)
{
    bool shares = m->experts_weights == PLAIT_WEIGHTS_SHARES;
    double scale = plait_model_factor(m->experts_scale);

    if (!m->experts || m->experts_scores != PLAIT_SCORES_SOFTMAX)
        return 0;
    if (m->mla_kv && shares)
        return plait_errorf(err, "model.mla with model.experts_scores softmax: "
                                 "model.experts_weights must be scores, as "
                                 "in a deepseek_v2");
    if (!m->mla_kv && m->experts_groups > 1)
        return plait_errorf(err,
                            "model.experts_groups %d with model.experts_scores "
                            "softmax: of Hugging Face's types only deepseek_v2 "
                            "has groups, with model.mla; without model.mla "
                            "model.experts_groups must be 0",
                            m->experts_groups);
    if (!m->mla_kv && scale != 1)
        return plait_errorf(err,
                            "model.experts_scale %g with model.experts_scores "
                            "softmax: of Hugging Face's types only deepseek_v2 "
                            "has a scale, with model.mla; without model.mla "
                            "model.experts_scale must be 1",
                            scale);
    if (!m->mla_kv && !m->qk_norm && !shares)
        return plait_errorf(err, "model.experts_weights scores: of Hugging "
                                 "Face's types without model.mla only "
                                 "qwen3_moe and olmoe have it, with "
                                 "model.qk_norm");
    return 0;
}

/* The settings of its experts, of which a model without has one alone. */
static void list_experts(const struct plait_model_config *m, char *text,
                         size_t size)
{
    if (m->experts)
        snprintf(text, size,
                 "model.experts %d, model.dense_layers %d, "
                 "model.shared_experts %d, model.experts_scores %s, "
                 "model.experts_weights %s, model.experts_groups %d, "
                 "model.experts_scale %g",
                 m->experts, m->dense_layers, m->shared_experts,
                 m->experts_scores ? "sigmoid" : "softmax",
                 m->experts_weights ? "scores" : "shares", m->experts_groups,
                 plait_model_factor(m->experts_scale));
    else
        snprintf(text, size, "model.experts 0");
}

/* Where one or two keys are the reason. */
static int refuse_few(const struct plait_model_config *m,
                      struct plait_error *err)
{
    if ((m->mla_kv && refuse_latent(m, err) < 0) || refuse_softmax(m, err) < 0)
        return -1;
    if (find_llama4_key(m))
        return plait_errorf(
            err,
            "model.%s: of Hugging Face's model types only "
            "llama4_text has it, and needs model.experts_scores "
            "input, model.shared_experts 1 and no setting that "
            "only other types have",
            find_llama4_key(m));
    if (m->mtp_layers && !(m->experts && m->experts_scores))
        return plait_errorf(err,
                            "model.mtp_layers %d without "
                            "model.experts_scores sigmoid: of Hugging Face's "
                            "model types only glm4_moe, glm4_moe_lite, "
                            "deepseek_v3 and kimi_k2 have multi-token "
                            "prediction, and they need sigmoid",
                            m->mtp_layers);
    if (m->rope_factor > 1 && m->rope_scaling != PLAIT_ROPE_LONGROPE &&
        plait_model_partly_rotated(m))
        return plait_errorf(err,
                            "model.rope_columns %d with model.rope_factor %g: "
                            "no model type of Hugging Face has both",
                            m->rope_columns, m->rope_factor);
    if (m->rope_factor > 1 && m->rope_scaling == PLAIT_ROPE_YARN &&
        !m->rope_truncate && m->rope_theta_window > 0)
        return plait_errorf(err,
                            "model.rope_scaling yarn with "
                            "model.rope_theta_window %g: model.rope_truncate "
                            "must be true, as transformers always rounds there",
                            m->rope_theta_window);
    return 0;
}

int plait_hf_choose_refuse(const struct plait_model_config *m,
                           struct plait_error *err)
{
    char experts[300];

    if (refuse_few(m, err) < 0)
        return -1;
    list_experts(m, experts, sizeof(experts));
    return plait_errorf(
        err,
        "no model type of Hugging Face combines these: model.attention_bias "
        "%s, model.qk_norm %s, %s, model.sliding_window %d, "
        "model.full_attention_first %d, model.full_attention_every %d, "
        "model.no_rope_every %d, multipliers (model.mup makes some) %s, "
        "model.norm_place %s, "
        "model.qk_norm_whole %s, model.norm_plus_one %s, model.gate %s, "
        "model.embedding_multiplier %g, model.rope_factor %g, "
        "model.rope_theta_window %g, model.rope_columns %d, "
        "model.attention_softcap %g, model.logit_softcap %g, "
        "model.attention_sinks %s, model.mlp_bias %s, model.mla %s",
        m->attention_bias == PLAIT_BIAS_ALL   ? "all"
        : m->attention_bias == PLAIT_BIAS_QKV ? "qkv"
                                              : "none",
        m->qk_norm ? "true" : "false", experts, m->sliding_window,
        m->full_attention_first, m->full_attention_every, m->no_rope_every,
        plait_model_multiplier(m) ? "true" : "false",
        m->norm_place == PLAIT_NORMS_AFTER  ? "after"
        : m->norm_place == PLAIT_NORMS_BOTH ? "both"
                                            : "before",
        m->qk_norm_whole ? "true" : "false",
        m->norm_plus_one ? "true" : "false",
        m->gate == PLAIT_GATE_GELU      ? "gelu"
        : m->gate == PLAIT_GATE_CLAMPED ? "clamped"
                                        : "silu",
        plait_model_factor(m->embedding_multiplier), m->rope_factor,
        m->rope_theta_window, m->rope_columns, m->attention_softcap,
        m->logit_softcap, m->attention_sinks ? "true" : "false",
        m->mlp_bias ? "true" : "false", m->mla_kv ? "given" : "not given");
}

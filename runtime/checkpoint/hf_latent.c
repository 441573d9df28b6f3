/* SPDX-License-Identifier: Apache-2.0 */
/* The latent attention of a deepseek_v2, a deepseek_v3, a kimi_k2 and a
 * glm4_moe_lite. */
#include "config.h"

#include <float.h>
#include <math.h>

#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"
#include "topology/job/model_size.h"

int plait_hf_latent(const struct plait_hf_read *r,
                    const struct plait_hf_type *type)
{
    static const struct plait_hf_only only[] = {{"attention_bias", {"false"}},
                                                {"rope_interleave", {"true"}},
                                                {"moe_layer_freq", {"1"}},
                                                {NULL, {NULL}}};
    static const struct plait_hf_only v2[] = {
        {"scoring_func", {"\"softmax\""}},
        {"topk_method", {"\"greedy\"", "\"group_limited_greedy\""}},
        {NULL, {NULL}}};
    static const struct plait_hf_only v3[] = {{"scoring_func", {"\"sigmoid\""}},
                                              {"topk_method", {"\"noaux_tc\""}},
                                              {NULL, {NULL}}};
    static const struct plait_hf_count keys[] = {
        {"kv_lora_rank", PLAIT_HF_MODEL(mla_kv), true},
        {"qk_nope_head_dim", PLAIT_HF_MODEL(mla_nope), true},
        {"qk_rope_head_dim", PLAIT_HF_MODEL(mla_rope), true},
        {"v_head_dim", PLAIT_HF_MODEL(mla_value), true},
        {"q_lora_rank", PLAIT_HF_MODEL(mla_q), true},
        {NULL, 0, false}};
    struct plait_model_config *m = r->model;
    const json_t *pairs = json_object_get(r->root, "rope_interleave");

    if (json_is_null(pairs)) /* transformers takes it for false */
        return plait_hf_refuse(r, "rope_interleave", pairs,
                               "plait-train supports only true");
    if (!json_object_get(r->root, "q_lora_rank")) /* null: queries have none */
        m->mla_q = type->lite ? 768 : 1536;
    m->mla_kv = 512;
    m->mla_nope = type->lite ? 192 : 128;
    m->mla_value = type->lite ? 256 : 128;
    m->mla_rope = 64;
    if (plait_hf_check_only(r, only) < 0 ||
        plait_hf_check_only(r, type->softmax ? v2 : v3) < 0 ||
        plait_hf_counts(r, keys) < 0)
        return -1;
    if (m->kv_heads && m->kv_heads != m->heads)
        return plait_hf_refuse(r, "num_key_value_heads",
                               json_object_get(r->root, "num_key_value_heads"),
                               "it must be num_attention_heads, as each head "
                               "has a key and a value of its own");
    return 0;
}

int plait_hf_latent_write(json_t *root, const struct plait_model_config *m,
                          const struct plait_hf_type *type)
{
    const char *method = !type->softmax          ? "noaux_tc"
                         : m->experts_groups > 1 ? "group_limited_greedy"
                                                 : "greedy";
    const struct {
        const char *name;
        int value;
    } counts[] = {{"kv_lora_rank", m->mla_kv},
                  {"qk_nope_head_dim", m->mla_nope},
                  {"qk_rope_head_dim", m->mla_rope},
                  {"v_head_dim", m->mla_value},
                  {"head_dim", m->mla_rope}}; /* as transformers has it */
    int bad = 0;

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        bad |= json_object_set_new(root, counts[i].name,
                                   json_integer(counts[i].value));
    if (!type->softmax)
        bad |= json_object_set_new(root, "rope_interleave", json_true());
    bad |=
        json_object_set_new(root, "scoring_func",
                            json_string(type->softmax ? "softmax" : "sigmoid"));
    bad |= json_object_set_new(root, "topk_method", json_string(method));
    bad |= json_object_set_new(root, "moe_layer_freq", json_integer(1));
    return json_object_set_new(root, "q_lora_rank",
                               m->mla_q ? json_integer(m->mla_q)
                                        : json_null()) |
           bad;
}

double plait_hf_latent_scale(const struct plait_model_config *m, double all_dim)
{
    double size = plait_hf_magnitude(m->rope_factor, all_dim);

    return size * size / sqrt(plait_model_head_dim(m));
}

/* mscale_all_dim of the model's factor of scores, which rounding has blurred:
 * a number of few digits if that gives this factor, else the nearest. */
static double find_all_dim(const struct plait_model_config *m, double size)
{
    double by = 0.1 * log(m->rope_factor), all = (size - 1) / by, scale;
    double few = round(all * 1e9) / 1e9, step = DBL_EPSILON / 2 / by;

    if (plait_hf_latent_scale(m, few) == m->attention_multiplier)
        return few;
    for (int i = 0; i < 64; i++) {
        scale = plait_hf_latent_scale(m, all);
        if (scale == m->attention_multiplier)
            break;
        all += scale < m->attention_multiplier ? step : -step;
    }
    return all;
}

bool plait_hf_latent_scales(const struct plait_model_config *m, double *all_dim)
{
    double usual = 1 / sqrt(plait_model_head_dim(m)), size;

    *all_dim = 0;
    if ((m->rope_factor > 1 && m->rope_scaling == PLAIT_ROPE_LONGROPE) ||
        plait_model_factor(m->embedding_multiplier) != 1 ||
        plait_model_factor(m->residual_multiplier) != 1 ||
        plait_model_factor(m->logits_scaling) != 1)
        return false;
    if (!(m->attention_multiplier > 0) ||
        fabs(m->attention_multiplier / usual - 1) < 1e-12)
        return true;
    size = sqrt(m->attention_multiplier / usual);
    if (!(m->rope_factor > 1) || !(size > 1))
        return false;
    *all_dim = find_all_dim(m, size);
    return true;
}

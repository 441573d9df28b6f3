/* SPDX-License-Identifier: Apache-2.0 */
/* What a glm4_moe, glm4_moe_lite or deepseek_v3 has beside other types' keys:
 * experts that tokens choose by sigmoids, in the words of DeepSeek-V3, and
 * layers of multi-token prediction, of which plait-train has one
 * (hf_weights.c); and the experts of a deepseek_v2, in the same words. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"
#include "topology/job/model_size.h"

/* The first layers, which have an mlp of the width of other types' in place of
 * experts. */
static int read_first(const struct plait_hf_read *r, json_int_t missing)
{
    static const char name[] = "first_k_dense_replace";
    const json_t *value = json_object_get(r->root, name);
    struct plait_model_config *m = r->model;
    json_int_t n = value ? json_integer_value(value) : missing;

    if (value && (!json_is_integer(value) || n < 0))
        return plait_hf_refuse(r, name, value, "it must be a whole number");
    m->dense_layers = (int)(n < m->layers ? n : m->layers);
    m->dense_ffn = m->dense_layers ? m->ffn : 0;
    return 0;
}

/* The same of a glm4_moe_lite, by a name for each layer; where these are
 * missing it is one layer, whatever the key above says. */
static int read_mlp_types(const struct plait_hf_read *r)
{
    static const char name[] = "mlp_layer_types",
                      key[] = "first_k_dense_replace";
    const json_t *list = json_object_get(r->root, name), *layer;
    const json_t *first = json_object_get(r->root, key);
    struct plait_model_config *m = r->model;
    bool there = list && !json_is_null(list);
    bool known = !there || json_array_size(list) == (size_t)m->layers;
    size_t i, n = 0;

    json_array_foreach(list, i, layer)
    {
        const char *text = json_string_value(layer);
        bool dense = text && !strcmp(text, "dense");

        known &= text && (dense ? n == i : !strcmp(text, "sparse"));
        n += dense;
    }
    if (!known)
        return plait_hf_refuse(r, name, list,
                               "it must be a list of \"dense\", for the first "
                               "layers, and \"sparse\", for all others");
    m->dense_layers = there ? (int)n : 1;
    m->dense_ffn = m->dense_layers ? m->ffn : 0;
    return !first || json_is_null(first) ||
                   json_integer_value(first) == m->dense_layers
               ? 0
               : plait_hf_refuse(r, key, first,
                                 "mlp_layer_types says another number");
}

/* A key that may be missing, but whose null says nothing that transformers
 * could compute with. */
static int refuse_null(const struct plait_hf_read *r, const char *name,
                       const char *want)
{
    const json_t *value = json_object_get(r->root, name);

    return json_is_null(value) ? plait_hf_refuse(r, name, value, want) : 0;
}

/* Whether a deepseek_v2 has groups of experts, whose keys count by another one
 * alone. */
static bool is_grouped(const struct plait_hf_read *r)
{
    const json_t *method = json_object_get(r->root, "topk_method");

    return json_is_string(method) &&
           !strcmp(json_string_value(method), "group_limited_greedy");
}

/* One group is none. Without the keys a deepseek_v3 has eight of them; a null
 * says nothing that transformers could compute with. */
static int read_groups(const struct plait_hf_read *r,
                       const struct plait_hf_type *type)
{
    static const struct plait_hf_count keys[] = {
        {"n_group", PLAIT_HF_MODEL(experts_groups), true},
        {"topk_group", PLAIT_HF_MODEL(experts_top_groups), true},
        {NULL, 0, false}};
    struct plait_model_config *m = r->model;

    if (type->softmax && !is_grouped(r))
        return 0;
    for (int i = 0; i < 2 && type->latent; i++) {
        const json_t *value = json_object_get(r->root, keys[i].name);

        if (json_is_null(value) || (type->softmax && !value))
            return plait_hf_refuse(r, keys[i].name, value,
                                   "it must be a whole number of at least 1");
    }

    m->experts_groups = type->latent && !type->lite ? 8 : 1;
    m->experts_top_groups = type->latent && !type->lite ? 4 : 1;
    if (plait_hf_counts(r, keys) < 0)
        return -1;
    if (m->experts_groups == 1 && m->experts_top_groups == 1)
        m->experts_groups = m->experts_top_groups = 0;
    return 0;
}

int plait_hf_glm_experts(const struct plait_hf_read *r,
                         const struct plait_hf_type *type)
{
    static const struct plait_hf_count keys[] = {
        {"moe_intermediate_size", PLAIT_HF_MODEL(ffn), false},
        {"num_local_experts", PLAIT_HF_MODEL(experts), true},
        {"n_routed_experts", PLAIT_HF_MODEL(experts), true},
        {"n_shared_experts", PLAIT_HF_MODEL(shared_experts), true},
        {"num_experts_per_tok", PLAIT_HF_MODEL(experts_top_k), false},
        {NULL, 0, false}};
    struct plait_model_config *m = r->model;
    bool v2 = type->softmax, v3 = type->latent && !v2, norm;

    if (plait_hf_bool(r, "norm_topk_prob", !v2, &norm) < 0 ||
        (type->lite ? read_mlp_types(r)
                    : read_first(r, v2   ? 0
                                    : v3 ? 3
                                         : 1)) < 0)
        return -1;
    if (v2 && norm) /* for transformers it is false whatever it is */
        return plait_hf_refuse(r, "norm_topk_prob",
                               json_object_get(r->root, "norm_topk_prob"),
                               "plait-train supports only false");
    m->experts_scores = v2 ? PLAIT_SCORES_SOFTMAX : PLAIT_SCORES_SIGMOID;
    m->experts_weights = norm ? PLAIT_WEIGHTS_SHARES : PLAIT_WEIGHTS_SCORES;
    m->experts_scale = type->lite ? 1.8 : v3 ? 2.5 : 1;
    m->shared_experts = v2 ? 2 : 1;
    if (refuse_null(r, "n_shared_experts",
                    "it must be a whole number of at least 1") < 0 ||
        (v2 && refuse_null(r, "topk_method",
                           "plait-train supports only \"greedy\"") < 0) ||
        plait_hf_counts(r, keys) < 0 || read_groups(r, type) < 0)
        return -1;
    if (!m->experts)
        return plait_hf_refuse(r, "n_routed_experts", NULL,
                               "it must be a whole number of at least 1");
    return json_object_get(r->root, "routed_scaling_factor")
               ? plait_hf_real(r, r->root, "routed_scaling_factor",
                               &m->experts_scale)
               : 0;
}

int plait_hf_glm_attention(const struct plait_hf_read *r)
{
    bool bias;

    if (plait_hf_bool(r, "attention_bias", false, &bias) < 0)
        return -1;
    r->model->attention_bias = bias ? PLAIT_BIAS_QKV : PLAIT_BIAS_NONE;
    return plait_hf_bool(r, "use_qk_norm", false, &r->model->qk_norm);
}

/* One for each layer. */
static int set_mlp_types(json_t *root, const struct plait_model_config *m)
{
    json_t *list = json_array();
    int bad = 0;

    for (int i = 0; i < m->layers; i++)
        bad |= json_array_append_new(
            list, json_string(i < m->dense_layers ? "dense" : "sparse"));
    return json_object_set_new(root, "mlp_layer_types", list) | bad;
}

int plait_hf_glm_write(json_t *root, const struct plait_model_config *m,
                       const struct plait_hf_type *type)
{
    const struct {
        const char *name;
        int value;
    } counts[] = {
        {"intermediate_size",
         m->dense_layers ? plait_model_dense_ffn(m) : m->ffn},
        {"moe_intermediate_size", m->ffn},
        {"n_routed_experts", m->experts},
        {"n_shared_experts", m->shared_experts},
        {"first_k_dense_replace", m->dense_layers},
        {"n_group", m->experts_groups > 1 ? m->experts_groups : 1},
        {"topk_group", m->experts_groups > 1 ? m->experts_top_groups : 1},
        {"num_experts_per_tok", m->experts_top_k}};
    int bad = 0;

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        bad |= json_object_set_new(root, counts[i].name,
                                   json_integer(counts[i].value));
    bad |=
        json_object_set_new(root, "attention_bias",
                            json_boolean(m->attention_bias == PLAIT_BIAS_QKV));
    if (type->lite)
        bad |= set_mlp_types(root, m);
    if (!type->latent)
        bad |=
            json_object_set_new(root, "use_qk_norm", json_boolean(m->qk_norm));
    if (!type->softmax)
        bad |= json_object_set_new(root, "num_nextn_predict_layers",
                                   json_integer(m->mtp_layers));
    bad |= json_object_set_new(
        root, "norm_topk_prob",
        json_boolean(m->experts_weights == PLAIT_WEIGHTS_SHARES));
    return json_object_set_new(
               root, "routed_scaling_factor",
               json_real(plait_model_factor(m->experts_scale))) |
           bad;
}

const char *plait_hf_config_predicts(const char *dir)
{
    static const char *const names[] = {"num_nextn_predict_layers",
                                        "num_mtp_layers"};
    const char *found = NULL;
    char path[4200];
    json_t *root;

    snprintf(path, sizeof(path), "%s/config.json", dir);
    root = json_load_file(path, 0, NULL);
    for (int i = 0; i < 2 && !found; i++)
        if (json_integer_value(json_object_get(root, names[i])) > 0)
            found = names[i];
    json_decref(root);
    return found;
}

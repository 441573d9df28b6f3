/* SPDX-License-Identifier: Apache-2.0 */
/* The experts of a config.json, read and written, but those of hf_glm.c and of
 * hf_llama4.c. */
#include "config.h"

#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"
#include "topology/job/model_size.h"

/* Of types that have none of these. */
static const struct plait_hf_only no_experts[] = {
    {"num_local_experts", {"null"}},
    {"num_experts_per_tok", {"null"}},
    {NULL, {NULL}}};
static const struct plait_hf_only no_qwen[] = {
    {"num_experts", {"null"}}, {"norm_topk_prob", {"null"}}, {NULL, {NULL}}};
static const struct plait_hf_only no_own_width[] = {
    {"moe_intermediate_size", {"null"}},
    {"mlp_only_layers", {"[]"}},
    {NULL, {NULL}}};

/* The first layers, which have an mlp of the width of other types' in place of
 * experts. */
static int read_dense(const struct plait_hf_read *r)
{
    const json_t *list = json_object_get(r->root, "mlp_only_layers");
    struct plait_model_config *m = r->model;
    bool first = !list || json_is_null(list) || json_is_array(list);
    const json_t *layer;
    size_t i;

    json_array_foreach(list, i, layer)
    {
        first &= json_is_integer(layer) &&
                 json_integer_value(layer) == (json_int_t)i &&
                 i < (size_t)m->layers;
    }
    if (!first)
        return plait_hf_refuse(r, "mlp_only_layers", list,
                               "it must be a list of the first layers, 0, 1 "
                               "and so on; plait-train supports no others");
    m->dense_layers = (int)json_array_size(list);
    m->dense_ffn = m->dense_layers ? m->ffn : 0;
    return 0;
}

/* Experts by Qwen's keys, whose width may have one of its own. */
static int read_qwen(const struct plait_hf_read *r,
                     const struct plait_hf_type *type)
{
    static const struct plait_hf_count keys[] = {
        {"moe_intermediate_size", PLAIT_HF_MODEL(ffn), false},
        {"num_experts", PLAIT_HF_MODEL(experts), true},
        {"num_local_experts", PLAIT_HF_MODEL(experts), true},
        {"num_experts_per_tok", PLAIT_HF_MODEL(experts_top_k), false},
        {NULL, 0, false}};
    bool norm;

    if (plait_hf_bool(r, "norm_topk_prob", false, &norm) < 0 ||
        (type->own_width ? read_dense(r)
                         : plait_hf_check_only(r, no_own_width)) < 0 ||
        plait_hf_counts(r, keys + !type->own_width) < 0)
        return -1;
    r->model->experts_weights =
        norm ? PLAIT_WEIGHTS_SHARES : PLAIT_WEIGHTS_SCORES;
    return r->model->experts ? 0
                             : plait_hf_refuse(r, "num_experts", NULL,
                                               "it must be a whole number of "
                                               "at least 1");
}

/* The kinds of attention of a MiniMax-M2's layers, of which 1 is that of all
 * types here. */
static int check_attention_kinds(const struct plait_hf_read *r)
{
    static const char name[] = "attn_type_list";
    const json_t *list = json_object_get(r->root, name), *kind;
    bool known = !list || json_is_null(list) || json_is_array(list);
    size_t i;

    json_array_foreach(list, i, kind)
    {
        known &= json_integer_value(kind) == 1;
    }
    return known ? 0
                 : plait_hf_refuse(r, name, list,
                                   "plait-train supports only a list of 1");
}

/* A MiniMax-M2's, by Mixtral's keys. Of others that its files have transformers
 * reads none: they have one value. */
static int read_sigmoid(const struct plait_hf_read *r)
{
    static const struct plait_hf_only only[] = {
        {"scoring_func", {"\"sigmoid\""}},
        {"norm_topk_prob", {"true"}},
        {"use_routing_bias", {"true"}},
        {"use_qk_norm", {"true"}},
        {"qk_norm_type", {"\"per_layer\""}},
        {"shared_intermediate_size", {"0"}},
        {"layernorm_full_attention_beta", {"1.0", "1"}},
        {"layernorm_mlp_beta", {"1.0", "1"}},
        {"num_experts", {"null"}},
        {NULL, {NULL}}};

    r->model->experts_scores = PLAIT_SCORES_SIGMOID;
    return plait_hf_check_only(r, only) < 0 ? -1 : check_attention_kinds(r);
}

int plait_hf_experts(const struct plait_hf_read *r,
                     const struct plait_hf_type *type)
{
    static const struct plait_hf_count experts[] = {
        {"num_local_experts", PLAIT_HF_MODEL(experts), false},
        {"num_experts_per_tok", PLAIT_HF_MODEL(experts_top_k), false},
        {NULL, 0, false}};

    if (type->glm)
        return plait_hf_glm_experts(r, type);
    if (type->llama4)
        return plait_hf_llama4_experts(r);
    if (type->own_width || type->topk_prob)
        return read_qwen(r, type);
    if ((type->sigmoid ? read_sigmoid(r) : plait_hf_check_only(r, no_qwen)) <
            0 ||
        plait_hf_check_only(r, no_own_width) < 0)
        return -1;
    return type->experts ? plait_hf_counts(r, experts)
                         : plait_hf_check_only(r, no_experts);
}

/* Of experts' width, and of the first layers, whose mlp is as wide as other
 * types'. */
static int set_own_width(json_t *root, const struct plait_model_config *m)
{
    json_t *dense = json_array();
    int bad = json_object_set_new(root, "moe_intermediate_size",
                                  json_integer(m->ffn));

    for (int i = 0; i < m->dense_layers; i++)
        bad |= json_array_append_new(dense, json_integer(i));
    if (m->dense_layers)
        bad |= json_object_set_new(root, "intermediate_size",
                                   json_integer(plait_model_dense_ffn(m)));
    bad |= json_object_set_new(root, "decoder_sparse_step", json_integer(1));
    return json_object_set_new(root, "mlp_only_layers", dense) | bad;
}

int plait_hf_experts_write(json_t *root, const struct plait_model_config *m,
                           const struct plait_hf_type *type)
{
    bool qwen = type->own_width || type->topk_prob;
    int bad = 0;

    if (type->glm)
        return plait_hf_glm_write(root, m, type);
    if (!type->experts)
        return 0;
    if (type->own_width)
        bad = set_own_width(root, m);
    if (qwen)
        bad |= json_object_set_new(
            root, "norm_topk_prob",
            json_boolean(m->experts_weights == PLAIT_WEIGHTS_SHARES));
    if (type->sigmoid) /* which is read by others than transformers */
        bad |=
            json_object_set_new(root, "scoring_func", json_string("sigmoid"));
    bad |= json_object_set_new(root, qwen ? "num_experts" : "num_local_experts",
                               json_integer(m->experts));
    return json_object_set_new(root, "num_experts_per_tok",
                               json_integer(m->experts_top_k)) |
           bad;
}

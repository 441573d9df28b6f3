/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/job/fits.h"
#include "topology/job/foreign_config.h"
#include "topology/job/foreign_types.h"

/* The keys are those of the classes GPT2Config, LlamaConfig, ... of the
 * package transformers, version 4 and 5. */

static const struct plait_hf_count gpt2_counts[] = {
    {"n_layer", PLAIT_HF_MODEL(layers), false},
    {"n_embd", PLAIT_HF_MODEL(hidden), false},
    {"n_head", PLAIT_HF_MODEL(heads), false},
    {"n_inner", PLAIT_HF_MODEL(ffn), true},
    {"n_positions", PLAIT_HF_MODEL(seq_len), false},
    {"vocab_size", PLAIT_HF_MODEL(vocab), false},
    {NULL, 0, false}};

static const struct plait_hf_count llama_counts[] = {
    {"num_hidden_layers", PLAIT_HF_MODEL(layers), false},
    {"hidden_size", PLAIT_HF_MODEL(hidden), false},
    {"num_attention_heads", PLAIT_HF_MODEL(heads), false},
    {"num_key_value_heads", PLAIT_HF_MODEL(kv_heads), true},
    {"intermediate_size", PLAIT_HF_MODEL(ffn), false},
    {"max_position_embeddings", PLAIT_HF_MODEL(seq_len), false},
    {"vocab_size", PLAIT_HF_MODEL(vocab), false},
    {NULL, 0, false}};

static const struct plait_hf_only gpt2_only[] = {
    {"activation_function", {"\"gelu_new\"", "\"gelu_pytorch_tanh\""}},
    {"scale_attn_weights", {"true"}},
    {"scale_attn_by_inverse_layer_idx", {"false"}},
    {NULL, {NULL}}};

static const struct plait_hf_only all_only[] = {
    {"add_cross_attention", {"false"}},
    {"is_encoder_decoder", {"false"}},
    {"quantization_config", {"null"}},
    {"pruned_heads", {"{}"}},
    {NULL, {NULL}}};

static const struct plait_hf_only llama_only[] = {
    {"rope_interleaved", {"false"}},
    {"use_mrope", {"false"}},
    {"router_jitter_noise", {"0.0", "0"}},
    {"decoder_sparse_step", {"1"}},
    {NULL, {NULL}}};
static const struct plait_hf_only not_latent[] = {
    {"rope_interleave", {"false"}}, {NULL, {NULL}}};

/* Of types that have none of these. */
static const struct plait_hf_only no_experts[] = {
    {"num_local_experts", {"null"}},
    {"num_experts_per_tok", {"null"}},
    {NULL, {NULL}}};
static const struct plait_hf_only no_own_width[] = {
    {"num_experts", {"null"}},
    {"moe_intermediate_size", {"null"}},
    {"norm_topk_prob", {"null"}},
    {"mlp_only_layers", {"[]"}},
    {NULL, {NULL}}};

const struct plait_hf_type plait_hf_types[] = {
    /* the first that fits a model is written */
    {.name = "llama",
     .class = "LlamaForCausalLM",
     .theta = 1e4,
     .all = true,
     .mlp_bias = true},
    {.name = "mistral",
     .class = "MistralForCausalLM",
     .theta = 1e4,
     .kv_heads = 8,
     .reach = 4096,
     .window = PLAIT_HF_WINDOW},
    {.name = "mixtral",
     .class = "MixtralForCausalLM",
     .theta = 1e6,
     .kv_heads = 8,
     .window = PLAIT_HF_WINDOW,
     .experts = true},
    {.name = "gpt_oss",
     .class = "GptOssForCausalLM",
     .theta = 1.5e5,
     .kv_heads = 8,
     .head_dim = 64,
     .reach = 128,
     .window = PLAIT_HF_WINDOW_TYPES,
     .every = 2,
     .experts = true,
     .sinks = true,
     .all = true},
    {.name = "qwen2",
     .class = "Qwen2ForCausalLM",
     .theta = 1e4,
     .kv_heads = 32,
     .reach = 4096,
     .window = PLAIT_HF_WINDOW_ASKED,
     .qkv = true},
    {.name = "qwen3",
     .class = "Qwen3ForCausalLM",
     .theta = 1e4,
     .kv_heads = 32,
     .head_dim = 128,
     .reach = 4096,
     .window = PLAIT_HF_WINDOW_ASKED,
     .all = true,
     .qk_norm = true},
    {.name = "qwen3_moe",
     .class = "Qwen3MoeForCausalLM",
     .theta = 1e4,
     .kv_heads = 4,
     .experts = true,
     .own_width = true,
     .all = true,
     .qk_norm = true},
    {.name = "glm4_moe",
     .class = "Glm4MoeForCausalLM",
     .theta = 1e4,
     .kv_heads = 8,
     .experts = true,
     .partial = true,
     .glm = true},
    {.name = "deepseek_v3",
     .class = "DeepseekV3ForCausalLM",
     .theta = 1e4,
     .kv_heads = 128,
     .experts = true,
     .glm = true,
     .latent = true},
    {.name = "deepseek_v2",
     .class = "DeepseekV2ForCausalLM",
     .theta = 1e4,
     .experts = true,
     .glm = true,
     .softmax = true,
     .latent = true},
    {.name = "kimi_k2", /* a deepseek_v3 by another name */
     .class = "DeepseekV3ForCausalLM",
     .theta = 1e4,
     .kv_heads = 128,
     .experts = true,
     .glm = true,
     .latent = true},
    {.name = "granite",
     .class = "GraniteForCausalLM",
     .theta = 1e4,
     .all = true,
     .mlp_bias = true,
     .multipliers = true},
    {.name = "gemma",
     .class = "GemmaForCausalLM",
     .theta = 1e4,
     .kv_heads = 16,
     .head_dim = 256,
     .gemma = true,
     .tied = true,
     .all = true},
    {.name = "gemma2",
     .class = "Gemma2ForCausalLM",
     .theta = 1e4,
     .kv_heads = 4,
     .head_dim = 256,
     .reach = 4096,
     .window = PLAIT_HF_WINDOW_TYPES,
     .every = 2,
     .scalar = 256,
     .score_cap = 50,
     .capped = true,
     .logit_cap = 30,
     .gemma = true,
     .both = true,
     .tied = true,
     .all = true},
    {.name = "gemma3_text",
     .class = "Gemma3ForCausalLM",
     .theta = 1e6,
     .kv_heads = 4,
     .head_dim = 256,
     .reach = 4096,
     .window = PLAIT_HF_WINDOW_TYPES,
     .every = 6,
     .theta_window = 1e4,
     .scalar = 256,
     .capped = true,
     .gemma = true,
     .both = true,
     .tied = true,
     .all = true,
     .qk_norm = true},
    {.name = "olmo2",
     .class = "Olmo2ForCausalLM",
     .theta = 1e4,
     .all = true,
     .qk_norm = true,
     .olmo = true},
    {.name = "olmo3",
     .class = "Olmo3ForCausalLM",
     .theta = 5e5,
     .reach = 4096,
     .window = PLAIT_HF_WINDOW_TYPES,
     .every = 4,
     .theta_window = 5e5,
     .all = true,
     .qk_norm = true,
     .olmo = true},
    {.name = "phi3",
     .class = "Phi3ForCausalLM",
     .theta = 1e4,
     .window = PLAIT_HF_WINDOW,
     .partial = true,
     .fused = true},
    {.name = "smollm3",
     .class = "SmolLM3ForCausalLM",
     .theta = 2e6,
     .kv_heads = 4,
     .window = PLAIT_HF_WINDOW_ASKED,
     .no_rope = 4,
     .all = true,
     .mlp_bias = true,
     .tied = true},
    {.name = "llama4_text",
     .class = "Llama4ForCausalLM",
     .theta = 5e5,
     .kv_heads = 8,
     .head_dim = 128,
     .no_rope = 4,
     .experts = true,
     .llama4 = true},
    {.name = NULL}};

static int read_head_dim(const struct plait_hf_read *r, int missing)
{
    static const struct plait_hf_count key[] = {
        {"head_dim", PLAIT_HF_MODEL(head_dim), true}, {NULL, 0, false}};
    struct plait_model_config *m = r->model;

    if (!json_object_get(r->root, "head_dim"))
        m->head_dim = missing;
    if (plait_hf_counts(r, key) < 0)
        return -1;
    if (m->head_dim && (int64_t)m->head_dim * m->heads == m->hidden)
        m->head_dim = 0;
    return 0;
}

static int read_attention(const struct plait_hf_read *r,
                          const struct plait_hf_type *type)
{
    static const struct plait_hf_only no_bias[] = {
        {"attention_bias", {"false"}}, {NULL, {NULL}}};
    bool bias = false;

    r->model->attention_sinks = type->sinks;
    r->model->qk_norm = type->qk_norm;
    r->model->qk_norm_whole = type->olmo;
    r->model->norm_place = type->olmo   ? PLAIT_NORMS_AFTER
                           : type->both ? PLAIT_NORMS_BOTH
                                        : PLAIT_NORMS_BEFORE;
    if (!type->glm &&
        (type->all ? plait_hf_bool(r, "attention_bias", type->sinks, &bias) < 0
                   : plait_hf_check_only(r, no_bias) < 0))
        return -1;
    r->model->attention_bias = bias        ? PLAIT_BIAS_ALL
                               : type->qkv ? PLAIT_BIAS_QKV
                                           : PLAIT_BIAS_NONE;
    if (type->glm && !type->latent && plait_hf_glm_attention(r) < 0)
        return -1;
    if (!json_object_get(r->root, "num_key_value_heads"))
        r->model->kv_heads = type->kv_heads;
    if (type->latent)
        return plait_hf_latent(r, type) < 0 || plait_hf_layers(r, type) < 0 ? -1
                                                                            : 0;
    if (plait_hf_check_only(r, not_latent) < 0)
        return -1;
    return read_head_dim(r, type->head_dim) < 0 || plait_hf_layers(r, type) < 0
               ? -1
               : 0;
}

static int read_gpt2(const struct plait_hf_read *r)
{
    r->model->family = PLAIT_GPT2;
    if (plait_hf_counts(r, gpt2_counts) < 0 ||
        plait_hf_check_only(r, gpt2_only) < 0 ||
        plait_hf_bool(r, "tie_word_embeddings", true,
                      &r->model->tie_embeddings) < 0)
        return -1;
    if (!r->model->ffn)
        r->model->ffn = 4 * r->model->hidden;
    return plait_hf_real(r, r->root, "layer_norm_epsilon", &r->model->norm_eps);
}

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

/* Experts whose width has a key of its own. */
static int read_own_width(const struct plait_hf_read *r)
{
    static const struct plait_hf_count keys[] = {
        {"moe_intermediate_size", PLAIT_HF_MODEL(ffn), false},
        {"num_experts", PLAIT_HF_MODEL(experts), true},
        {"num_local_experts", PLAIT_HF_MODEL(experts), true},
        {"num_experts_per_tok", PLAIT_HF_MODEL(experts_top_k), false},
        {NULL, 0, false}};
    bool norm;

    if (plait_hf_bool(r, "norm_topk_prob", false, &norm) < 0 ||
        read_dense(r) < 0 || plait_hf_counts(r, keys) < 0)
        return -1;
    r->model->experts_weights =
        norm ? PLAIT_WEIGHTS_SHARES : PLAIT_WEIGHTS_SCORES;
    return r->model->experts ? 0
                             : plait_hf_refuse(r, "num_experts", NULL,
                                               "it must be a whole number of "
                                               "at least 1");
}

static int read_experts(const struct plait_hf_read *r,
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
    if (type->own_width)
        return read_own_width(r);
    if (plait_hf_check_only(r, no_own_width) < 0)
        return -1;
    return type->experts ? plait_hf_counts(r, experts)
                         : plait_hf_check_only(r, no_experts);
}

/* A number that is 1 where it is missing. */
static int read_factor(const struct plait_hf_read *r, const char *name,
                       double *to)
{
    *to = 1;
    return json_object_get(r->root, name) ? plait_hf_real(r, r->root, name, to)
                                          : 0;
}

static int read_multipliers(const struct plait_hf_read *r)
{
    struct plait_model_config *m = r->model;

    if (read_factor(r, "embedding_multiplier", &m->embedding_multiplier) < 0 ||
        read_factor(r, "attention_multiplier", &m->attention_multiplier) < 0 ||
        read_factor(r, "residual_multiplier", &m->residual_multiplier) < 0)
        return -1;
    return read_factor(r, "logits_scaling", &m->logits_scaling);
}

static int read_llama(const struct plait_hf_read *r,
                      const struct plait_hf_type *type)
{
    r->model->family = PLAIT_LLAMA;
    if (plait_hf_counts(r, llama_counts) < 0 ||
        plait_hf_check_only(r, llama_only) < 0 || read_experts(r, type) < 0 ||
        read_attention(r, type) < 0 ||
        (type->multipliers && read_multipliers(r) < 0) ||
        plait_hf_gate(r, type) < 0 ||
        plait_hf_bool(r, "tie_word_embeddings", type->tied,
                      &r->model->tie_embeddings) < 0 ||
        plait_hf_rope(r, type) < 0)
        return -1;
    return plait_hf_real(r, r->root, "rms_norm_eps", &r->model->norm_eps);
}

/* Say what is missing for a type of model that is known. */
static int refuse_type(const struct plait_hf_read *r, const json_t *type)
{
    const json_t *part = json_object_get(r->root, "text_config");
    const json_t *inner = json_object_get(part, "model_type");
    const struct plait_foreign_type *known;
    const char *name;
    char want[400];

    if (json_is_string(inner))
        type = inner;
    name = json_string_value(type);
    known = name ? plait_foreign_type_find(name) : NULL;
    snprintf(want, sizeof(want),
             "%s%s%s; plait-train supports gpt2, llama, mistral, mixtral, "
             "gpt_oss, qwen2, qwen3, qwen3_moe, gemma, gemma2, gemma3_text, "
             "glm4_moe, deepseek_v2, deepseek_v3, kimi_k2, granite, olmo2, "
             "olmo3, phi3, smollm3, llama4 and llama4_text",
             known && known->missing ? known->missing : "",
             known && known->missing && json_is_object(part) ? ", " : "",
             known && json_is_object(part)
                 ? "a text model beside one of images: planned, not trained"
             : known ? ": planned, not trained"
                     : "its layers are not known");
    return plait_hf_refuse(r, "model_type", type, want);
}

static int read_model(const struct plait_hf_read *r)
{
    const json_t *value = json_object_get(r->root, "model_type");
    const char *name = json_string_value(value);
    const struct plait_hf_type *type = plait_hf_types;
    int rc;

    while (type->name && !(name && !strcmp(type->name, name)))
        type++;
    if (name && !strcmp(name, "gpt2"))
        rc = read_gpt2(r);
    else if (type->name)
        rc = read_llama(r, type);
    else
        return refuse_type(r, value);
    if (!r->model->kv_heads)
        r->model->kv_heads = r->model->heads;
    if (rc < 0 || plait_hf_check_only(r, all_only) < 0 ||
        plait_hf_dropout_read(r, name) < 0)
        return -1;
    return plait_hf_check_keys(r, name);
}

static json_t *load_config(const char *path, struct plait_error *err)
{
    json_error_t why;
    json_t *root;

    errno = 0;
    root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(root))
        return root;
    if (!root && json_error_code(&why) == json_error_cannot_open_file)
        plait_errorf(err, "%s: %s", path, strerror(errno));
    else
        plait_errorf(err, "%s: not a JSON object: line %d: %s", path,
                     root ? 1 : why.line, root ? "something else" : why.text);
    json_decref(root);
    if (!errno)
        errno = EINVAL;
    return NULL;
}

/* Whether each value is one that a plait.yaml may have, in which the model is
 * written next: of the error there the line of that file is left out. */
static int check_ranges(const struct plait_hf_read *r)
{
    struct plait_job_config *job;
    struct plait_error why;
    char *text = NULL, *what;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return plait_errorf(r->err, "%s: out of memory", r->path);
    plait_job_config_print_model(r->model, out);
    if (fclose(out) != 0) {
        free(text);
        return plait_errorf(r->err, "%s: out of memory", r->path);
    }
    job = plait_job_config_parse("model", text, size, NULL, 0, &why);
    free(text);
    plait_job_config_destroy(job);
    if (job)
        return 0;
    what = strstr(why.text, ": ");
    return plait_errorf(r->err, "%s: %s", r->path, what ? what + 2 : why.text);
}

/* Whether plait-train accepts the sizes. */
static int check_fits(const struct plait_hf_read *r,
                      struct plait_job_config *job)
{
    struct plait_error why;

    job->model = *r->model;
    if (plait_fits_config(job, &why) == 0)
        return check_ranges(r);
    return plait_errorf(r->err, "%s: %s", r->path, why.text);
}

int plait_hf_config_read(const char *dir, struct plait_model_config *model,
                         struct plait_error *err)
{
    struct plait_job_config *job =
        plait_job_config_parse("default", "", 0, NULL, 0, err);
    struct plait_model_config read;
    struct plait_hf_read r = {.model = &read, .err = err};
    json_t *root;
    int rc = -1;

    if (!job)
        return -1;
    read = job->model;
    read.kv_heads = read.ffn = 0;
    snprintf(r.path, sizeof(r.path), "%s/config.json", dir);
    r.root = root = load_config(r.path, err);
    if (!root || plait_hf_check_text_part(&r) < 0)
        goto out;
    if (!(r.root = root = plait_hf_text_part(root)))
        plait_errorf(err, "%s: out of memory", r.path);
    else if (read_model(&r) == 0)
        rc = check_fits(&r, job);
    if (rc == 0)
        *model = read;
out:
    json_decref(root);
    plait_job_config_destroy(job);
    return rc;
}

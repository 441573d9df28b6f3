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

#define MODEL(member) offsetof(struct plait_model_config, member)

/* A whole number of config.json. */
struct count_key {
    const char *name;
    size_t offset; /* int, of plait_model_config */
    bool optional; /* missing or null: as Plait's default, 0 */
};

static const struct count_key gpt2_counts[] = {
    {"n_layer", MODEL(layers), false},
    {"n_embd", MODEL(hidden), false},
    {"n_head", MODEL(heads), false},
    {"n_inner", MODEL(ffn), true},
    {"n_positions", MODEL(seq_len), false},
    {"vocab_size", MODEL(vocab), false},
    {NULL, 0, false}};

static const struct count_key llama_counts[] = {
    {"num_hidden_layers", MODEL(layers), false},
    {"hidden_size", MODEL(hidden), false},
    {"num_attention_heads", MODEL(heads), false},
    {"num_key_value_heads", MODEL(kv_heads), true},
    {"intermediate_size", MODEL(ffn), false},
    {"max_position_embeddings", MODEL(seq_len), false},
    {"vocab_size", MODEL(vocab), false},
    {NULL, 0, false}};

/* A setting of which only these values are supported: any other is refused by
 * name. A missing or null key means the first one. */
struct only_key {
    const char *name;
    const char *values[2]; /* as JSON has them, quotes included */
};

static const struct only_key gpt2_only[] = {
    {"activation_function", {"\"gelu_new\"", "\"gelu_pytorch_tanh\""}},
    {"scale_attn_weights", {"true"}},
    {"scale_attn_by_inverse_layer_idx", {"false"}},
    {NULL, {NULL}}};

static const struct only_key all_only[] = {{"add_cross_attention", {"false"}},
                                           {"is_encoder_decoder", {"false"}},
                                           {"quantization_config", {"null"}},
                                           {"pruned_heads", {"{}"}},
                                           {NULL, {NULL}}};

static const struct only_key llama_only[] = {
    {"hidden_act", {"\"silu\""}},
    {"mlp_bias", {"false"}},
    {"rope_interleaved", {"false"}},
    {"rope_interleave", {"false"}},
    {"use_mrope", {"false"}},
    {"router_jitter_noise", {"0.0", "0"}},
    {"decoder_sparse_step", {"1"}},
    {"mlp_only_layers", {"[]"}},
    {NULL, {NULL}}};

/* Of types that have none of these. */
static const struct only_key no_experts[] = {{"num_local_experts", {"null"}},
                                             {"num_experts_per_tok", {"null"}},
                                             {NULL, {NULL}}};
static const struct only_key no_own_width[] = {
    {"num_experts", {"null"}},
    {"moe_intermediate_size", {"null"}},
    {"norm_topk_prob", {"null"}},
    {NULL, {NULL}}};
static const struct only_key no_window[] = {{"sliding_window", {"null"}},
                                            {"use_sliding_window", {"false"}},
                                            {"layer_types", {"null"}},
                                            {NULL, {NULL}}};
static const struct only_key whole_window[] = {{"use_sliding_window", {"true"}},
                                               {"layer_types", {"null"}},
                                               {NULL, {NULL}}};

const struct plait_hf_type plait_hf_types[] = {
    {.name = "llama", .class = "LlamaForCausalLM", .theta = 1e4, .all = true},
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
    {.name = NULL}};

static int read_counts(const struct plait_hf_read *r,
                       const struct count_key *key)
{
    for (; key->name; key++) {
        int *to = (int *)((char *)r->model + key->offset);
        const json_t *value = json_object_get(r->root, key->name);

        if (key->optional && (!value || json_is_null(value)))
            continue;
        if (!json_is_integer(value) || json_integer_value(value) < 1 ||
            json_integer_value(value) > PLAIT_HF_COUNT_MOST)
            return plait_hf_refuse(r, key->name, value,
                                   "it must be a whole number of at least 1");
        *to = (int)json_integer_value(value);
    }
    return 0;
}

static int check_only(const struct plait_hf_read *r, const struct only_key *key)
{
    for (; key->name; key++) {
        const json_t *value = json_object_get(r->root, key->name);
        char buf[80], want[64];
        const char *text;

        if (!value || json_is_null(value))
            continue;
        text = plait_hf_text(value, buf);
        if (!strcmp(text, key->values[0]) ||
            (key->values[1] && !strcmp(text, key->values[1])))
            continue;
        snprintf(want, sizeof(want), "plait-train supports only %s",
                 key->values[0]);
        return plait_hf_refuse(r, key->name, value, want);
    }
    return 0;
}

static int read_bool(const struct plait_hf_read *r, const char *name,
                     bool missing, bool *to)
{
    const json_t *value = json_object_get(r->root, name);

    *to = missing;
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_boolean(value))
        return plait_hf_refuse(r, name, value, "it must be true or false");
    *to = json_is_true(value);
    return 0;
}

static int read_head_dim(const struct plait_hf_read *r, int missing)
{
    static const struct count_key key[] = {{"head_dim", MODEL(head_dim), true},
                                           {NULL, 0, false}};
    struct plait_model_config *m = r->model;

    if (!json_object_get(r->root, "head_dim"))
        m->head_dim = missing;
    if (read_counts(r, key) < 0)
        return -1;
    if (m->head_dim && (int64_t)m->head_dim * m->heads == m->hidden)
        m->head_dim = 0;
    return 0;
}

/* Whether layer_types, a list of names, has a layer with a window. */
static int read_layer_types(const struct plait_hf_read *r, const json_t *types,
                            bool *windowed)
{
    const json_t *type;
    size_t i;

    *windowed = false;
    if (!json_is_array(types) ||
        json_array_size(types) != (size_t)r->model->layers)
        return plait_hf_refuse(r, "layer_types", types,
                               "it must be a list with a name for each layer");
    json_array_foreach(types, i, type)
    {
        const char *name = json_string_value(type);

        if (!name || (strcmp(name, "full_attention") != 0 &&
                      strcmp(name, "sliding_attention") != 0))
            return plait_hf_refuse(r, "layer_types", type,
                                   "plait-train supports full_attention and "
                                   "sliding_attention");
        *windowed |= strcmp(name, "sliding_attention") == 0;
    }
    return 0;
}

/* Whether some layer has the window that was asked for: by layer_types, or
 * else all but the first max_window_layers. */
static int read_windowed(const struct plait_hf_read *r, bool *windowed)
{
    const json_t *value = json_object_get(r->root, "layer_types");

    if (value && !json_is_null(value))
        return read_layer_types(r, value, windowed);
    value = json_object_get(r->root, "max_window_layers");
    if (value && !json_is_integer(value))
        return plait_hf_refuse(r, "max_window_layers", value,
                               "it must be a whole number");
    *windowed = (value ? json_integer_value(value) : PLAIT_WINDOW_LAYERS) <
                r->model->layers;
    return 0;
}

/* The reach of attention. Sequences no longer than the window are not affected
 * by it, so it limits the sequence length. */
static int read_window(const struct plait_hf_read *r,
                       const struct plait_hf_type *type)
{
    static const struct count_key key[] = {
        {"sliding_window", MODEL(sliding_window), true}, {NULL, 0, false}};
    struct plait_model_config *m = r->model;
    bool asked = true;

    if (type->window == PLAIT_HF_WINDOW_NONE)
        return check_only(r, no_window);
    if (type->window == PLAIT_HF_WINDOW && check_only(r, whole_window) < 0)
        return -1;
    if (type->window == PLAIT_HF_WINDOW_ASKED &&
        (read_bool(r, "use_sliding_window", false, &asked) < 0 ||
         (asked && read_windowed(r, &asked) < 0)))
        return -1;
    if (!asked)
        return 0;
    if (!json_object_get(r->root, "sliding_window"))
        m->sliding_window = type->reach;
    if (read_counts(r, key) < 0)
        return -1;
    if (m->sliding_window && m->seq_len > m->sliding_window)
        m->seq_len = m->sliding_window;
    return 0;
}

static int read_attention(const struct plait_hf_read *r,
                          const struct plait_hf_type *type)
{
    static const struct only_key no_bias[] = {{"attention_bias", {"false"}},
                                              {NULL, {NULL}}};
    bool bias = false;

    r->model->qk_norm = type->qk_norm;
    if (type->all ? read_bool(r, "attention_bias", false, &bias) < 0
                  : check_only(r, no_bias) < 0)
        return -1;
    r->model->attention_bias = bias        ? PLAIT_BIAS_ALL
                               : type->qkv ? PLAIT_BIAS_QKV
                                           : PLAIT_BIAS_NONE;
    if (!json_object_get(r->root, "num_key_value_heads"))
        r->model->kv_heads = type->kv_heads;
    return read_head_dim(r, type->head_dim) < 0 || read_window(r, type) < 0 ? -1
                                                                            : 0;
}

static int read_gpt2(const struct plait_hf_read *r)
{
    r->model->family = PLAIT_GPT2;
    if (read_counts(r, gpt2_counts) < 0 || check_only(r, gpt2_only) < 0 ||
        read_bool(r, "tie_word_embeddings", true, &r->model->tie_embeddings) <
            0)
        return -1;
    if (!r->model->ffn)
        r->model->ffn = 4 * r->model->hidden;
    return plait_hf_real(r, r->root, "layer_norm_epsilon", &r->model->norm_eps);
}

/* Experts whose width has a key of its own. That a token's weights of them add
 * up to 1 is not what the type's default says. */
static int read_own_width(const struct plait_hf_read *r)
{
    static const struct count_key keys[] = {
        {"moe_intermediate_size", MODEL(ffn), false},
        {"num_experts", MODEL(experts), true},
        {"num_local_experts", MODEL(experts), true},
        {"num_experts_per_tok", MODEL(experts_top_k), false},
        {NULL, 0, false}};
    const json_t *norm = json_object_get(r->root, "norm_topk_prob");

    if (!json_is_true(norm))
        return plait_hf_refuse(r, "norm_topk_prob", norm,
                               "plait-train supports only true");
    if (read_counts(r, keys) < 0)
        return -1;
    return r->model->experts ? 0
                             : plait_hf_refuse(r, "num_experts", NULL,
                                               "it must be a whole number of "
                                               "at least 1");
}

static int read_experts(const struct plait_hf_read *r,
                        const struct plait_hf_type *type)
{
    static const struct count_key experts[] = {
        {"num_local_experts", MODEL(experts), false},
        {"num_experts_per_tok", MODEL(experts_top_k), false},
        {NULL, 0, false}};

    if (type->own_width)
        return read_own_width(r);
    if (check_only(r, no_own_width) < 0)
        return -1;
    return type->experts ? read_counts(r, experts) : check_only(r, no_experts);
}

static int read_llama(const struct plait_hf_read *r,
                      const struct plait_hf_type *type)
{
    r->model->family = PLAIT_LLAMA;
    if (read_counts(r, llama_counts) < 0 || check_only(r, llama_only) < 0 ||
        read_experts(r, type) < 0 || read_attention(r, type) < 0 ||
        read_bool(r, "tie_word_embeddings", false, &r->model->tie_embeddings) <
            0 ||
        plait_hf_rope(r, type->theta) < 0)
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
             "qwen2, qwen3 and qwen3_moe",
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
    if (rc < 0 || check_only(r, all_only) < 0)
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
    if (root)
        rc = read_model(&r);
    if (rc == 0)
        rc = check_fits(&r, job);
    if (rc == 0)
        *model = read;
    json_decref(root);
    plait_job_config_destroy(job);
    return rc;
}

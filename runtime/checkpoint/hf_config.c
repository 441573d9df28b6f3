/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_types.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/job/fits.h"
#include "topology/job/foreign_config.h"

/* The keys are those of the classes GPT2Config, LlamaConfig, ... of the
 * package transformers, version 4 and 5. */

#define COUNT_MOST (1 << 24) /* of any number of things */
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
    {"add_cross_attention", {"false"}},
    {"quantization_config", {"null"}},
    {NULL, {NULL}}};

static const struct only_key llama_only[] = {
    {"hidden_act", {"\"silu\""}},
    {"mlp_bias", {"false"}},
    {"partial_rotary_factor", {"1.0", "1"}},
    {"quantization_config", {"null"}},
    {NULL, {NULL}}};

const struct plait_hf_type plait_hf_types[] = {
    {.name = "llama", .class = "LlamaForCausalLM", .theta = 1e4, .all = true},
    {.name = "mistral",
     .class = "MistralForCausalLM",
     .theta = 1e4,
     .window = PLAIT_HF_WINDOW},
    {.name = "mixtral",
     .class = "MixtralForCausalLM",
     .theta = 1e6,
     .window = PLAIT_HF_WINDOW,
     .experts = true},
    {.name = "qwen2",
     .class = "Qwen2ForCausalLM",
     .theta = 1e4,
     .window = PLAIT_HF_WINDOW_ASKED,
     .qkv = true},
    {.name = "qwen3",
     .class = "Qwen3ForCausalLM",
     .theta = 1e4,
     .window = PLAIT_HF_WINDOW_ASKED,
     .all = true,
     .qk_norm = true},
    {.name = NULL}};

struct read {
    char path[4096];
    const json_t *root;
    struct plait_model_config *model;
    struct plait_error *err;
};

/* The value's text in the file, for errors. */
static const char *json_text(const json_t *value, char buf[80])
{
    if (!value)
        return "missing";
    memset(buf, 0, 80);
    if (json_dumpb(value, buf, 79, JSON_ENCODE_ANY) > 79)
        return json_is_object(value) ? "an object" : "too long";
    return buf;
}

static int refuse_value(const struct read *r, const char *name,
                        const json_t *value, const char *want)
{
    char buf[80];

    errno = EINVAL;
    return plait_errorf(r->err, "%s: %s is %s; %s", r->path, name,
                        json_text(value, buf), want);
}

static int read_counts(const struct read *r, const struct count_key *key)
{
    for (; key->name; key++) {
        int *to = (int *)((char *)r->model + key->offset);
        const json_t *value = json_object_get(r->root, key->name);

        if (key->optional && (!value || json_is_null(value)))
            continue;
        if (!json_is_integer(value) || json_integer_value(value) < 1 ||
            json_integer_value(value) > COUNT_MOST)
            return refuse_value(r, key->name, value,
                                "it must be a whole number of at least 1");
        *to = (int)json_integer_value(value);
    }
    return 0;
}

static int check_only(const struct read *r, const struct only_key *key)
{
    for (; key->name; key++) {
        const json_t *value = json_object_get(r->root, key->name);
        char buf[80], want[64];
        const char *text;

        if (!value || json_is_null(value))
            continue;
        text = json_text(value, buf);
        if (!strcmp(text, key->values[0]) ||
            (key->values[1] && !strcmp(text, key->values[1])))
            continue;
        snprintf(want, sizeof(want), "plait-train supports only %s",
                 key->values[0]);
        return refuse_value(r, key->name, value, want);
    }
    return 0;
}

static int read_real(const struct read *r, const json_t *in, const char *name,
                     double *to)
{
    const json_t *value = json_object_get(in, name);

    if (!json_is_number(value) || !(json_number_value(value) > 0))
        return refuse_value(r, name, value, "it must be a number above 0");
    *to = json_number_value(value);
    return 0;
}

static int read_bool(const struct read *r, const char *name, bool missing,
                     bool *to)
{
    const json_t *value = json_object_get(r->root, name);

    *to = missing;
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_boolean(value))
        return refuse_value(r, name, value, "it must be true or false");
    *to = json_is_true(value);
    return 0;
}

/* The rope scaling of Llama 3. */
static int read_rope_scaling(const struct read *r, const json_t *rope)
{
    struct plait_model_config *m = r->model;
    double original;

    if (read_real(r, rope, "factor", &m->rope_factor) < 0 ||
        read_real(r, rope, "low_freq_factor", &m->rope_low_freq_factor) < 0 ||
        read_real(r, rope, "high_freq_factor", &m->rope_high_freq_factor) < 0 ||
        read_real(r, rope, "original_max_position_embeddings", &original) < 0)
        return -1;
    if (original > COUNT_MOST)
        return refuse_value(
            r, "original_max_position_embeddings",
            json_object_get(rope, "original_max_position_embeddings"),
            "that is too long");
    m->rope_original_len = (int)original;
    return 0;
}

/* rope_parameters is what transformers 5 writes for rope_theta and
 * rope_scaling. */
static int read_rope(const struct read *r)
{
    const json_t *rope = json_object_get(r->root, "rope_parameters");
    const json_t *in = rope, *type;
    const char *name;

    if (!json_is_object(rope)) {
        rope = json_object_get(r->root, "rope_scaling");
        in = r->root;
    }
    type = json_object_get(rope, "rope_type");
    if (!type)
        type = json_object_get(rope, "type");
    name = json_is_object(rope) ? json_string_value(type) : "default";
    if (!name || (strcmp(name, "default") && strcmp(name, "llama3")))
        return refuse_value(r, "rope_type", type,
                            "plait-train supports \"default\" and \"llama3\"");
    if (!strcmp(name, "llama3") && read_rope_scaling(r, rope) < 0)
        return -1;
    if (!json_object_get(in, "rope_theta"))
        return 0; /* older than the key */
    return read_real(r, in, "rope_theta", &r->model->rope_theta);
}

static int read_head_dim(const struct read *r)
{
    static const struct count_key key[] = {{"head_dim", MODEL(head_dim), true},
                                           {NULL, 0, false}};
    struct plait_model_config *m = r->model;

    if (read_counts(r, key) < 0)
        return -1;
    if (m->head_dim && (int64_t)m->head_dim * m->heads == m->hidden)
        m->head_dim = 0;
    return 0;
}

/* Whether some layer has the window that was asked for: the first
 * max_window_layers have none. */
static int read_windowed(const struct read *r, bool *windowed)
{
    const json_t *value = json_object_get(r->root, "max_window_layers");

    if (value && !json_is_integer(value))
        return refuse_value(r, "max_window_layers", value,
                            "it must be a whole number");
    *windowed = (value ? json_integer_value(value) : PLAIT_WINDOW_LAYERS) <
                r->model->layers;
    return 0;
}

/* The reach of attention. Sequences no longer than the window are not affected
 * by it, so it limits the sequence length. */
static int read_window(const struct read *r, const struct plait_hf_type *type)
{
    static const struct count_key key[] = {
        {"sliding_window", MODEL(sliding_window), true}, {NULL, 0, false}};
    struct plait_model_config *m = r->model;
    bool asked = true;

    if (type->window == PLAIT_HF_WINDOW_NONE ||
        (type->window == PLAIT_HF_WINDOW_ASKED &&
         read_bool(r, "use_sliding_window", false, &asked) < 0))
        return type->window == PLAIT_HF_WINDOW_NONE ? 0 : -1;
    if (asked && type->window == PLAIT_HF_WINDOW_ASKED &&
        read_windowed(r, &asked) < 0)
        return -1;
    if (!asked)
        return 0;
    if (read_counts(r, key) < 0)
        return -1;
    if (m->sliding_window && m->seq_len > m->sliding_window)
        m->seq_len = m->sliding_window;
    return 0;
}

static int read_attention(const struct read *r,
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
    return read_head_dim(r) < 0 || read_window(r, type) < 0 ? -1 : 0;
}

static int read_gpt2(const struct read *r)
{
    r->model->family = PLAIT_GPT2;
    if (read_counts(r, gpt2_counts) < 0 || check_only(r, gpt2_only) < 0 ||
        read_bool(r, "tie_word_embeddings", true, &r->model->tie_embeddings) <
            0)
        return -1;
    if (!r->model->ffn)
        r->model->ffn = 4 * r->model->hidden;
    return read_real(r, r->root, "layer_norm_epsilon", &r->model->norm_eps);
}

static int read_llama(const struct read *r, const struct plait_hf_type *type)
{
    static const struct count_key experts[] = {
        {"num_local_experts", MODEL(experts), false},
        {"num_experts_per_tok", MODEL(experts_top_k), false},
        {NULL, 0, false}};

    r->model->family = PLAIT_LLAMA;
    r->model->rope_theta = type->theta;
    if (read_counts(r, llama_counts) < 0 || check_only(r, llama_only) < 0 ||
        (type->experts && read_counts(r, experts) < 0) ||
        read_attention(r, type) < 0 ||
        read_bool(r, "tie_word_embeddings", false, &r->model->tie_embeddings) <
            0 ||
        read_rope(r) < 0)
        return -1;
    return read_real(r, r->root, "rms_norm_eps", &r->model->norm_eps);
}

static int read_model(const struct read *r)
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
        return refuse_value(r, "model_type", value,
                            "plait-train supports gpt2, llama, mistral, "
                            "mixtral, qwen2 and qwen3");
    if (!r->model->kv_heads)
        r->model->kv_heads = r->model->heads;
    return rc;
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

/* Whether plait-train accepts the sizes. */
static int check_fits(const struct read *r, struct plait_job_config *job)
{
    struct plait_error why;

    job->model = *r->model;
    if (plait_fits_config(job, &why) == 0)
        return 0;
    return plait_errorf(r->err, "%s: %s", r->path, why.text);
}

int plait_hf_config_read(const char *dir, struct plait_model_config *model,
                         struct plait_error *err)
{
    struct plait_job_config *job =
        plait_job_config_parse("default", "", 0, NULL, 0, err);
    struct plait_model_config read;
    struct read r = {.model = &read, .err = err};
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the config.json of a Hugging Face model: the type whose settings fit
 * this model, and whatever else the model had that it was made from. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_types.h"

static json_t *gpt2_json(const struct plait_model_config *m)
{
    return json_pack("{s:s,s:[s],s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:f,s:b}",
                     "model_type", "gpt2", "architectures", "GPT2LMHeadModel",
                     "n_layer", m->layers, "n_embd", m->hidden, "n_head",
                     m->heads, "n_inner", m->ffn, "n_positions", m->seq_len,
                     "vocab_size", m->vocab, "activation_function", "gelu_new",
                     "layer_norm_epsilon", m->norm_eps, "tie_word_embeddings",
                     m->tie_embeddings);
}

/* Whether the type has exactly the features that the model has. */
static bool fits_type(const struct plait_model_config *m,
                      const struct plait_hf_type *type)
{
    bool bias = (type->qkv && m->attention_bias == PLAIT_BIAS_QKV) ||
                (type->all && m->attention_bias == PLAIT_BIAS_ALL) ||
                (!type->qkv && m->attention_bias == PLAIT_BIAS_NONE);

    return bias && type->qk_norm == m->qk_norm &&
           type->experts == (m->experts > 0) &&
           (type->window != PLAIT_HF_WINDOW_NONE || !m->sliding_window);
}

/* The type `like` (may be NULL) if it fits, or the first that does. */
static const struct plait_hf_type *
choose_type(const struct plait_model_config *m, const char *like)
{
    const struct plait_hf_type *type, *first = NULL;

    for (type = plait_hf_types; type->name; type++) {
        if (!fits_type(m, type))
            continue;
        if (like && !strcmp(type->name, like))
            return type;
        if (!first)
            first = type;
    }
    return first;
}

int plait_hf_config_possible(const struct plait_model_config *m,
                             struct plait_error *err)
{
    errno = EINVAL;
    if (m->family != PLAIT_GPT2 && m->family != PLAIT_LLAMA)
        return plait_errorf(err, "model.family: only gpt2 and llama models "
                                 "can be written in Hugging Face's format");
    if (m->experts && m->experts_capacity > 0)
        return plait_errorf(err,
                            "model.experts_capacity %g: no model type of "
                            "Hugging Face limits the tokens that an expert "
                            "takes",
                            m->experts_capacity);
    if (m->family == PLAIT_GPT2 && m->experts)
        return plait_errorf(err,
                            "model.experts %d: Hugging Face's gpt2 has "
                            "no experts",
                            m->experts);
    if (m->family == PLAIT_GPT2 || choose_type(m, NULL))
        return 0;
    return plait_errorf(
        err,
        "no model type of Hugging Face combines these: model.attention_bias "
        "%s, model.qk_norm %s, model.experts %d, model.sliding_window %d",
        m->attention_bias == PLAIT_BIAS_ALL   ? "all"
        : m->attention_bias == PLAIT_BIAS_QKV ? "qkv"
                                              : "none",
        m->qk_norm ? "true" : "false", m->experts, m->sliding_window);
}

static int set_rope(json_t *root, const struct plait_model_config *m)
{
    if (!(m->rope_factor > 1))
        return 0;
    return json_object_set_new(
        root, "rope_scaling",
        json_pack("{s:s,s:f,s:f,s:f,s:i}", "rope_type", "llama3", "factor",
                  m->rope_factor, "low_freq_factor", m->rope_low_freq_factor,
                  "high_freq_factor", m->rope_high_freq_factor,
                  "original_max_position_embeddings", m->rope_original_len));
}

/* The keys that not all types have. */
static int set_own(json_t *root, const struct plait_model_config *m,
                   const struct plait_hf_type *type)
{
    json_t *window =
        m->sliding_window ? json_integer(m->sliding_window) : json_null();
    int bad = 0;

    if (type->window != PLAIT_HF_WINDOW_NONE)
        bad |= json_object_set(root, "sliding_window", window);
    if (type->window == PLAIT_HF_WINDOW_ASKED) {
        bad |= json_object_set_new(root, "use_sliding_window",
                                   json_boolean(m->sliding_window));
        bad |= json_object_set_new(root, "max_window_layers", json_integer(0));
    }
    json_decref(window);
    if (type->experts) {
        bad |= json_object_set_new(root, "num_local_experts",
                                   json_integer(m->experts));
        bad |= json_object_set_new(root, "num_experts_per_tok",
                                   json_integer(m->experts_top_k));
    }
    if (type->all)
        bad |= json_object_set_new(
            root, "attention_bias",
            json_boolean(m->attention_bias == PLAIT_BIAS_ALL));
    return bad;
}

static json_t *llama_json(const struct plait_model_config *m, const char *like)
{
    const struct plait_hf_type *type = choose_type(m, like);
    json_t *root = json_pack(
        "{s:s,s:[s],s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:f,s:f,s:b}",
        "model_type", type->name, "architectures", type->class,
        "num_hidden_layers", m->layers, "hidden_size", m->hidden,
        "num_attention_heads", m->heads, "num_key_value_heads", m->kv_heads,
        "head_dim", plait_model_head_dim(m), "intermediate_size", m->ffn,
        "max_position_embeddings", m->seq_len, "vocab_size", m->vocab,
        "hidden_act", "silu", "rms_norm_eps", m->norm_eps, "rope_theta",
        m->rope_theta, "tie_word_embeddings", m->tie_embeddings);

    if (root && !set_rope(root, m) && !set_own(root, m, type))
        return root;
    json_decref(root);
    return NULL;
}

/* The config.json that a checkpoint was made of, or NULL. That of a single
 * checkpoint is in the directory above. */
static json_t *load_like(const char *like)
{
    char path[4096];

    if (!like)
        return NULL;
    snprintf(path, sizeof(path), "%s/config.json", like);
    if (access(path, F_OK) == 0)
        return json_load_file(path, 0, NULL);
    snprintf(path, sizeof(path), "%s/manifest.json", like);
    if (access(path, F_OK) < 0)
        return NULL;
    snprintf(path, sizeof(path), "%s/../config.json", like);
    return json_load_file(path, 0, NULL);
}

/* Copy keys that do not follow from the weights. `like` has the original
 * longest text, which a window or a job may have cut here, and the first layer
 * with a window, within which all layers are the same. */
static void copy_rest(json_t *to, const json_t *like)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id",
                                       "pad_token_id",
                                       "max_position_embeddings"};
    const json_t *layers = json_object_get(like, "max_window_layers");

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_object_get(like, keys[i]))
            json_object_set(to, keys[i], json_object_get(like, keys[i]));
    if (layers && json_object_get(to, "max_window_layers"))
        json_object_set(to, "max_window_layers", (json_t *)layers);
}

/* Without these keys a model would have the ids of one tokenizer that the
 * package transformers takes for granted. */
static int set_ids(json_t *to, int32_t end)
{
    return json_object_set_new(to, "bos_token_id", json_null()) ||
           json_object_set_new(to, "pad_token_id", json_null()) ||
           json_object_set_new(to, "eos_token_id",
                               end < 0 ? json_null() : json_integer(end));
}

static const char *torch_name(enum plait_dtype type)
{
    return type == PLAIT_BF16_T   ? "bfloat16"
           : type == PLAIT_FP16_T ? "float16"
                                  : "float32";
}

int plait_hf_config_write(const char *dir, const struct plait_model_config *m,
                          enum plait_dtype type, const char *like, int32_t end,
                          struct plait_error *err)
{
    json_t *old = load_like(like), *root;
    char path[4096];
    int rc = 0;

    snprintf(path, sizeof(path), "%s/config.json", dir);
    root = m->family == PLAIT_GPT2
               ? gpt2_json(m)
               : llama_json(
                     m, json_string_value(json_object_get(old, "model_type")));
    if (!root ||
        json_object_set_new(root, "torch_dtype",
                            json_string(torch_name(type))) ||
        (!old && set_ids(root, end < m->vocab ? end : -1)))
        rc = plait_errorf(err, "%s: out of memory", path);
    if (rc == 0)
        copy_rest(root, old);
    if (rc == 0 && json_dump_file(root, path, JSON_INDENT(2)) < 0)
        rc = plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    json_decref(root);
    json_decref(old);
    return rc;
}

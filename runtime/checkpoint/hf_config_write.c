/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the config.json of a Hugging Face model: the type whose settings fit
 * this model, and whatever else the model had that it was made from. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"
#include "runtime/checkpoint/model_source.h"
#include "topology/base/files.h"
#include "topology/job/model_size.h"

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
    if (m->family == PLAIT_GPT2 && m->mtp_layers)
        return plait_errorf(err,
                            "model.mtp_layers %d: Hugging Face's gpt2 has no "
                            "multi-token prediction",
                            m->mtp_layers);
    if (m->family == PLAIT_GPT2 && plait_model_multiplier(m))
        return plait_errorf(err,
                            "model.mup needs %s, which Hugging Face's gpt2 "
                            "lacks; only a llama model with model.mup can be "
                            "converted (to granite)",
                            plait_model_multiplier(m));
    if (m->family == PLAIT_GPT2 || plait_hf_choose(m, NULL))
        return 0;
    return plait_hf_choose_refuse(m, err);
}

static int set_layer_types(json_t *root, const struct plait_model_config *m)
{
    struct plait_model_config longer = *m;
    json_t *types = json_array();
    int bad = 0;

    longer.seq_len = m->sliding_window + 1; /* where windows matter */
    for (int i = 0; i < m->layers; i++)
        bad |= json_array_append_new(
            types,
            json_string(plait_model_windowed(&longer, i) ? "sliding_attention"
                                                         : "full_attention"));
    return json_object_set_new(root, "layer_types", types) | bad;
}

static int set_no_rope(json_t *root, const struct plait_model_config *m)
{
    json_t *list = json_array();
    int bad = 0;

    for (int i = 0; i < m->layers; i++)
        bad |= json_array_append_new(list,
                                     json_integer(plait_model_rotated(m, i)));
    return json_object_set_new(root, "no_rope_layers", list) | bad;
}

static int set_multipliers(json_t *root, const struct plait_model_config *m)
{
    double scores = m->attention_multiplier > 0
                        ? m->attention_multiplier
                        : 1 / sqrt(plait_model_head_dim(m));
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"embedding_multiplier", plait_model_factor(m->embedding_multiplier)},
        {"attention_multiplier", scores},
        {"residual_multiplier", plait_model_factor(m->residual_multiplier)},
        {"logits_scaling", plait_model_factor(m->logits_scaling)}};
    int bad = 0;

    for (int i = 0; i < 4; i++)
        bad |= json_object_set_new(root, all[i].name, json_real(all[i].value));
    return bad;
}

/* A whole number, as the type wants it, if it is one but for rounding. */
static int set_scalar(json_t *root, const struct plait_model_config *m)
{
    double by = m->attention_multiplier;
    double scalar = by > 0 ? 1 / (by * by) : plait_model_head_dim(m);
    double whole = round(scalar);

    return json_object_set_new(root, "query_pre_attn_scalar",
                               fabs(scalar - whole) < 1e-6 * whole
                                   ? json_integer((json_int_t)whole)
                                   : json_real(scalar));
}

/* Caps of the type's keys; 0 is null. */
static int set_caps(json_t *root, const struct plait_model_config *m,
                    const struct plait_hf_type *type)
{
    double scores = m->attention_softcap, logits = m->logit_softcap;
    int bad = 0;

    if (type->score_cap > 0)
        bad |=
            json_object_set_new(root, "attn_logit_softcapping",
                                scores > 0 ? json_real(scores) : json_null());
    if (type->capped)
        bad |=
            json_object_set_new(root, "final_logit_softcapping",
                                logits > 0 ? json_real(logits) : json_null());
    return bad;
}

/* Of types that say it of q, k and v and of the output. */
static int set_out_bias(json_t *root, const struct plait_model_config *m)
{
    return json_object_set_new(
               root, "attention_bias",
               json_boolean(m->attention_bias != PLAIT_BIAS_NONE)) |
           json_object_set_new(
               root, "attention_out_bias",
               json_boolean(m->attention_bias == PLAIT_BIAS_ALL));
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
        bad |= json_object_set_new(root, "max_window_layers",
                                   json_integer(m->full_attention_first));
        if (m->sliding_window && (m->full_attention_every || type->no_rope))
            bad |= set_layer_types(root, m);
    }
    json_decref(window);
    if (type->window == PLAIT_HF_WINDOW_TYPES)
        bad |= set_layer_types(root, m);
    if (type->no_rope)
        bad |= set_no_rope(root, m);
    if (type->multipliers)
        bad |= set_multipliers(root, m);
    if (type->scalar)
        bad |= set_scalar(root, m);
    bad |= set_caps(root, m, type);
    bad |= plait_hf_experts_write(root, m, type);
    if (type->latent)
        bad |= plait_hf_latent_write(root, m, type);
    if (type->llama4)
        bad |= plait_hf_llama4_write(root, m);
    if (type->all)
        bad |= json_object_set_new(
            root, "attention_bias",
            json_boolean(m->attention_bias == PLAIT_BIAS_ALL));
    if (type->out_bias)
        bad |= set_out_bias(root, m);
    if (type->mlp_bias && m->mlp_bias)
        bad |= json_object_set_new(root, "mlp_bias", json_true());
    return bad;
}

static json_t *llama_json(const struct plait_model_config *m, const char *like)
{
    const struct plait_hf_type *type = plait_hf_choose(m, like);
    json_t *root = json_pack(
        "{s:s,s:[s],s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:f,s:f,s:b}",
        "model_type", type->name, "architectures", type->class,
        "num_hidden_layers", m->layers, "hidden_size", m->hidden,
        "num_attention_heads", m->heads, "num_key_value_heads", m->kv_heads,
        "head_dim", plait_model_head_dim(m), "intermediate_size", m->ffn,
        "max_position_embeddings", m->seq_len, "vocab_size", m->vocab,
        type->both ? "hidden_activation" : "hidden_act",
        type->gemma ? "gelu_pytorch_tanh" : "silu", "rms_norm_eps", m->norm_eps,
        "rope_theta", m->rope_theta, "tie_word_embeddings", m->tie_embeddings);

    if (root && !plait_hf_rope_write(root, m, type) && !set_own(root, m, type))
        return root;
    json_decref(root);
    return NULL;
}

/* -- what the model had before ------------------------------------------- */

/* The folder of the config.json that a checkpoint was made of; false: there is
 * none. That of a single checkpoint is in the directory above. */
static bool find_like(const char *like, char found[4096])
{
    if (!like)
        return false;
    snprintf(found, 4096, "%s", like);
    if (plait_files_has(like, "config.json"))
        return true;
    snprintf(found, 4096, "%s/..", like);
    return plait_files_has(like, "manifest.json") &&
           plait_files_has(found, "config.json");
}

/* Whether two models train with the same dropout. */
static bool has_rates(const struct plait_model_config *a,
                      const struct plait_model_config *b)
{
    return a->dropout == b->dropout &&
           a->attention_dropout == b->attention_dropout;
}

/* Whether a model that was described so has become this one by training. */
static bool is_of_model(const char *dir, const struct plait_model_config *m,
                        bool *same)
{
    struct plait_model_config there;
    struct plait_error why;

    if (plait_hf_config_read(dir, &there, &why) < 0)
        return false;
    there.mtp_layers = m->mtp_layers; /* which config.json alone does not say */
    *same = plait_model_same(dir, &there, m, &why) == 0 &&
            has_rates(&there, m) &&
            (m->family != PLAIT_GPT2 || there.seq_len == m->seq_len);
    return there.family == m->family && there.layers == m->layers &&
           there.hidden == m->hidden && there.vocab == m->vocab;
}

/* The end of the string that begins at `at`, which is behind its last quote. */
static const char *end_of_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at + 1 : at;
}

/* The value of the outermost object's key, if it is a string; NULL: it has no
 * such key. */
static const char *find_string(const char *text, const char *key)
{
    size_t n = strlen(key);
    const char *end;
    int depth = 0;

    for (const char *at = text; *at; at = end) {
        end = *at == '"' ? end_of_string(at) : at + 1;
        depth += strchr("{[", *at) ? 1 : strchr("}]", *at) ? -1 : 0;
        if (depth != 1 || *at != '"' || (size_t)(end - at) != n + 2 ||
            memcmp(at + 1, key, n) != 0)
            continue;
        end += strspn(end, " \t\r\n");
        if (*end != ':')
            continue;
        end += 1 + strspn(end + 1, " \t\r\n");
        return *end == '"' ? end : NULL;
    }
    return NULL;
}

static const char *torch_name(enum plait_dtype type)
{
    return type == PLAIT_BF16_T   ? "bfloat16"
           : type == PLAIT_FP16_T ? "float16"
                                  : "float32";
}

/* Each byte of the file as it was, but for the name of the weights' type. */
static int write_as_it_was(const char *path, const char *text,
                           enum plait_dtype type)
{
    const char *value = find_string(text, "torch_dtype");
    FILE *out = fopen(path, "we");
    int rc;

    if (!out)
        return -1;
    if (!value)
        value = find_string(text, "dtype");
    if (value) {
        fwrite(text, 1, (size_t)(value - text), out);
        fprintf(out, "\"%s\"", torch_name(type));
        text = end_of_string(value);
    }
    fputs(text, out);
    rc = ferror(out) ? -1 : 0;
    return fclose(out) == 0 ? rc : -1;
}

static char *read_text(const char *dir, const char *name)
{
    char path[4200], *text = NULL;
    size_t size = 0;
    FILE *in;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    in = fopen(path, "re");
    if (in && getdelim(&text, &size, '\0', in) < 0) {
        free(text);
        text = NULL;
    }
    if (in)
        fclose(in);
    return text;
}

/* The model_type that DIR/config.json names, to be freed; NULL: none. */
static char *read_type(const char *dir)
{
    char path[4200];
    const char *name;
    json_t *root;
    char *copy;

    snprintf(path, sizeof(path), "%s/config.json", dir);
    root = json_load_file(path, 0, NULL);
    name = json_string_value(json_object_get(root, "model_type"));
    copy = name ? strdup(name) : NULL;
    json_decref(root);
    return copy;
}

bool plait_hf_config_fused(const char *dir)
{
    const struct plait_hf_type *type = plait_hf_types;
    char *name = read_type(dir);

    while (type->name && !(name && !strcmp(type->name, name)))
        type++;
    free(name);
    return type->fused;
}

bool plait_hf_config_like_fused(const struct plait_model_config *m,
                                const char *like)
{
    char found[4096], *name = NULL;
    bool same, fused;

    if (m->family != PLAIT_LLAMA)
        return false;
    if (find_like(like, found) && is_of_model(found, m, &same))
        name = read_type(found);
    fused = plait_hf_choose(m, name)->fused;
    free(name);
    return fused;
}

/* -- the file ------------------------------------------------------------- */

/* The ids of special tokens: those of a generation_config.json that goes with
 * the model, else `end` alone. Without these keys a model would have the ids of
 * one tokenizer that the package transformers takes for granted. */
static int set_ids(json_t *to, const char *dir, int32_t end)
{
    static const char *const keys[] = {"bos_token_id", "pad_token_id",
                                       "eos_token_id"};
    char path[4200];
    json_t *from;
    int bad = 0;

    snprintf(path, sizeof(path), "%s/generation_config.json", dir);
    from = json_load_file(path, 0, NULL);
    for (int i = 0; i < 3; i++) {
        json_t *id = json_object_get(from, keys[i]);

        if (id)
            bad |= json_object_set(to, keys[i], id);
        else if (i == 2 && end >= 0)
            bad |= json_object_set_new(to, keys[i], json_integer(end));
        else
            bad |= json_object_set_new(to, keys[i], json_null());
    }
    json_decref(from);
    return bad;
}

/* What the trainer knows of the model, over what was there before (NULL:
 * nothing was). */
static json_t *describe(const char *dir, const struct plait_model_config *m,
                        enum plait_dtype type, json_t *old, int32_t end)
{
    const json_t *like = json_object_get(old, "model_type");
    json_t *now = m->family == PLAIT_GPT2
                      ? gpt2_json(m)
                      : llama_json(m, json_string_value(like));
    int bad = !now || json_object_set_new(now, "torch_dtype",
                                          json_string(torch_name(type)));

    if (!bad)
        bad = plait_hf_dropout_write(now, old, m);
    if (!bad && !old)
        bad = set_ids(now, dir, end < m->vocab ? end : -1);
    if (!bad && old) { /* `now` has them, in the places before these */
        json_object_del(old, "rope_scaling");
        json_object_del(old, "rope_parameters");
        json_object_del(old, "rope_local_base_freq");
        json_object_del(old, "partial_rotary_factor");
        if (json_object_get(now, "rope_parameters"))
            json_object_del(old, "rope_theta");
        if (json_object_get(now, "moe_intermediate_size") && !m->dense_layers)
            json_object_del(now, "intermediate_size"); /* of no layer */
    }
    if (!bad && old) { /* the longest text that it can read stays its own */
        if (!json_object_get(now, "original_max_position_embeddings"))
            json_object_del(now, "max_position_embeddings");
        if (json_object_get(old, "max_window_layers"))
            json_object_del(now, "max_window_layers");
        if (json_object_get(now, "num_nextn_predict_layers"))
            json_object_del(old, "num_mtp_layers"); /* the same */
        bad = json_object_update_missing(now, old);
    }
    if (!bad)
        return now;
    json_decref(now);
    return NULL;
}

int plait_hf_config_write(const char *dir, const struct plait_model_config *m,
                          enum plait_dtype type, const char *like, int32_t end,
                          struct plait_error *err)
{
    char path[4200], found[4096], *text = NULL;
    bool there = find_like(like, found), same = false;
    json_t *old = NULL, *root;
    int rc = -1;

    if (there && is_of_model(found, m, &same))
        text = read_text(found, "config.json");
    if (there && !text) { /* both are of another model */
        snprintf(path, sizeof(path), "%s/generation_config.json", dir);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/config.json", dir);
    if (text && same && !plait_hf_config_images(found) &&
        (m->mtp_layers || !plait_hf_config_predicts(found))) {
        rc = write_as_it_was(path, text, type);
    } else {
        if (text)
            old = plait_hf_text_part(json_loads(text, 0, NULL));
        root = describe(dir, m, type, old, end);
        errno = ENOMEM;
        if (root)
            rc = json_dump_file(root, path, JSON_INDENT(2));
        json_decref(root);
        json_decref(old);
    }
    free(text);
    return rc < 0 ? plait_errorf(err, "%s: cannot write: %s", path,
                                 strerror(errno))
                  : 0;
}

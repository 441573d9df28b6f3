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

/* Of types that say it of q, k and v and of the output. */
static int read_out_bias(const struct plait_hf_read *r)
{
    static const char name[] = "attention_out_bias";
    bool qkv, out;

    if (plait_hf_bool(r, "attention_bias", true, &qkv) < 0 ||
        plait_hf_bool(r, name, false, &out) < 0)
        return -1;
    if (out && !qkv)
        return plait_hf_refuse(r, name, json_object_get(r->root, name),
                               "with attention_bias false plait-train supports "
                               "only false");
    r->model->attention_bias = out   ? PLAIT_BIAS_ALL
                               : qkv ? PLAIT_BIAS_QKV
                                     : PLAIT_BIAS_NONE;
    return 0;
}

static int read_bias(const struct plait_hf_read *r,
                     const struct plait_hf_type *type)
{
    static const struct plait_hf_only no_bias[] = {
        {"attention_bias", {"false"}}, {NULL, {NULL}}};
    bool bias = false;

    if (type->out_bias)
        return read_out_bias(r);
    if (type->glm)
        return type->latent ? 0 : plait_hf_glm_attention(r);
    if (type->all ? plait_hf_bool(r, "attention_bias", type->sinks, &bias) < 0
                  : plait_hf_check_only(r, no_bias) < 0)
        return -1;
    r->model->attention_bias = bias        ? PLAIT_BIAS_ALL
                               : type->qkv ? PLAIT_BIAS_QKV
                                           : PLAIT_BIAS_NONE;
    return 0;
}

static int read_attention(const struct plait_hf_read *r,
                          const struct plait_hf_type *type)
{
    r->model->attention_sinks = type->sinks;
    r->model->qk_norm = type->qk_norm;
    r->model->qk_norm_whole = type->whole;
    r->model->norm_place = type->after  ? PLAIT_NORMS_AFTER
                           : type->both ? PLAIT_NORMS_BOTH
                                        : PLAIT_NORMS_BEFORE;
    if (read_bias(r, type) < 0)
        return -1;
    if (!json_object_get(r->root, "num_key_value_heads"))
        r->model->kv_heads = type->kv_heads;
    if (type->latent)
        return plait_hf_latent(r, type) < 0 || plait_hf_layers(r, type) < 0 ? -1
                                                                            : 0;
    if (plait_hf_check_only(r, not_latent) < 0)
        return -1;
    if (read_head_dim(r, type->head_dim) < 0)
        return -1;
    if (type->square && r->model->head_dim)
        return plait_hf_refuse(r, "head_dim",
                               json_object_get(r->root, "head_dim"),
                               "this type has only hidden_size / "
                               "num_attention_heads");
    return plait_hf_layers(r, type);
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
        plait_hf_check_only(r, llama_only) < 0 ||
        plait_hf_experts(r, type) < 0 || read_attention(r, type) < 0 ||
        (type->multipliers && read_multipliers(r) < 0) ||
        plait_hf_gate(r, type) < 0 ||
        plait_hf_bool(r, "tie_word_embeddings", type->tied,
                      &r->model->tie_embeddings) < 0 ||
        plait_hf_rope(r, type) < 0)
        return -1;
    return plait_hf_real(r, r->root, "rms_norm_eps", &r->model->norm_eps);
}

/* Say what is missing of a type of model. */
static int refuse_type(const struct plait_hf_read *r, const json_t *type)
{
    const json_t *part = json_object_get(r->root, "text_config");
    const json_t *inner = json_object_get(part, "model_type");
    bool known;
    const char *name;
    char want[700], names[500];

    if (json_is_string(inner))
        type = inner;
    name = json_string_value(type);
    known = name && plait_foreign_type_find(name);
    plait_foreign_type_names(names, sizeof(names));
    snprintf(want, sizeof(want), "%s; plait-train supports llama4, %s",
             known && json_is_object(part)
                 ? "a text model beside one of images: planned, not trained"
                 : "its layers are not known",
             names);
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/convert/megatron_args.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "topology/job/fits.h"
#include "topology/job/model_size.h"

/* -- reading -------------------------------------------------------------- */

struct read {
    const char *path;
    const struct plait_pickle_value *args;
    bool distributed; /* the tensors do not depend on the layout */
    struct plait_error *err;
};

/* NULL if it is missing or None. */
static const struct plait_pickle_value *find(const struct read *r,
                                             const char *name)
{
    const struct plait_pickle_value *v = plait_pickle_find(r->args, name);

    return v && v->kind != PLAIT_PICKLE_NONE ? v : NULL;
}

static int wrong(const struct read *r, const char *name, const char *right)
{
    errno = EINVAL;
    return plait_errorf(r->err, "%s: its argument %s %s", r->path, name, right);
}

/* `fallback` 0: the argument must be there. */
static int read_count(const struct read *r, const char *name, int fallback,
                      int *to)
{
    const struct plait_pickle_value *v = find(r, name);

    if (!v && fallback) {
        *to = fallback;
        return 0;
    }
    if (!v)
        return wrong(r, name, "is missing");
    if (v->kind != PLAIT_PICKLE_INT || v->i < 1 || v->i > 1 << 24)
        return wrong(r, name, "must be a whole number of 1 to 16777216");
    *to = (int)v->i;
    return 0;
}

static int read_real(const struct read *r, const char *name, double *to)
{
    const struct plait_pickle_value *v = find(r, name);

    if (!v)
        return 0;
    if (v->kind != PLAIT_PICKLE_REAL && v->kind != PLAIT_PICKLE_INT)
        return wrong(r, name, "must be a number");
    *to = v->kind == PLAIT_PICKLE_REAL ? v->r : (double)v->i;
    return 0;
}

/* Whether it is there, and not false, 0 or empty. */
static bool is_set(const struct read *r, const char *name)
{
    const struct plait_pickle_value *v = find(r, name);

    if (!v)
        return false;
    if (v->kind == PLAIT_PICKLE_BOOL || v->kind == PLAIT_PICKLE_INT)
        return v->i != 0;
    return v->kind == PLAIT_PICKLE_REAL ? v->r != 0 : v->n > 0;
}

static bool is_text(const struct read *r, const char *name, const char *text)
{
    return plait_pickle_is(find(r, name), text);
}

/* Refuse arguments that would make the model compute something else. */
static int check_absent(const struct read *r)
{
    static const char *const absent[] = {
        "quick_geglu",
        "moe_router_topk_scaling_factor",
        "moe_router_num_groups",
        "multi_latent_attention",
        "apply_layernorm_1p",
        "squared_relu",
        "rotary_interleaved",
        "window_size",
        "qk_l2_norm",
        "no_rope_freq",
        "moe_shared_expert_intermediate_size",
        "mtp_num_layers",
        "apply_residual_connection_post_layernorm",
        "attention_output_gate",
        "heterogeneous_layers_config_path",
        "experimental_attention_variant",
        "moe_router_pre_softmax",
        "moe_apply_probs_on_input",
        "moe_router_enable_expert_bias",
        "hybrid_override_pattern"};
    static const char *const layouts[] = {
        "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
        "pipeline_model_parallel_layout",
        "account_for_embedding_in_pipeline_split",
        "virtual_pipeline_model_parallel_size"};

    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
        if (is_set(r, absent[i]))
            return wrong(r, absent[i], "is not supported");
    for (size_t i = 0;
         i < sizeof(layouts) / sizeof(layouts[0]) && !r->distributed; i++)
        if (is_set(r, layouts[i]))
            return wrong(r, layouts[i], "is not supported");
    if (find(r, "softmax_type") && !is_text(r, "softmax_type", "vanilla"))
        return wrong(r, "softmax_type", "must be vanilla");
    if (is_text(r, "moe_router_load_balancing_type", "sinkhorn"))
        return wrong(r, "moe_router_load_balancing_type",
                     "sinkhorn is not supported");
    return 0;
}

static int read_gpt2(const struct read *r, struct plait_model_config *m)
{
    m->family = PLAIT_GPT2;
    if (!is_text(r, "normalization", "LayerNorm"))
        return wrong(r, "normalization",
                     "must be LayerNorm with learned positions");
    if (is_set(r, "swiglu"))
        return wrong(r, "swiglu", "is not for learned positions");
    if (!is_set(r, "openai_gelu") && !is_set(r, "bias_gelu_fusion"))
        return wrong(r, "openai_gelu",
                     "or bias_gelu_fusion must be true: plait-train's gelu is "
                     "that of tanh");
    if (!is_set(r, "add_bias_linear"))
        return wrong(r, "add_bias_linear", "must be true");
    if (is_set(r, "qk_layernorm"))
        return wrong(r, "qk_layernorm", "is not for learned positions");
    if (is_set(r, "num_experts"))
        return wrong(r, "num_experts", "is not for learned positions");
    return 0;
}

static int read_rope(const struct read *r, struct plait_model_config *m)
{
    double percent = 1;

    if (read_real(r, "rotary_base", &m->rope_theta) < 0 ||
        read_real(r, "rotary_percent", &percent) < 0)
        return -1;
    if (percent < 1 || percent > 1)
        return wrong(r, "rotary_percent", "must be 1");
    if (is_set(r, "rotary_seq_len_interpolation_factor"))
        return wrong(r, "rotary_seq_len_interpolation_factor",
                     "is not supported");
    if (!is_set(r, "use_rope_scaling"))
        return 0;
    m->rope_factor = 8;
    m->rope_low_freq_factor = PLAIT_MEGATRON_ROPE_LOW;
    m->rope_high_freq_factor = PLAIT_MEGATRON_ROPE_HIGH;
    m->rope_original_len = PLAIT_MEGATRON_ROPE_LEN;
    return read_real(r, "rope_scaling_factor", &m->rope_factor);
}

static int read_experts(const struct read *r, struct plait_model_config *m)
{
    int ep;

    if (!is_set(r, "num_experts"))
        return 0;
    if (read_count(r, "num_experts", 0, &m->experts) < 0 ||
        read_count(r, "moe_router_topk", 2, &m->experts_top_k) < 0 ||
        read_count(r, "moe_ffn_hidden_size", m->ffn, &m->ffn) < 0 ||
        read_count(r, "expert_model_parallel_size", 1, &ep) < 0)
        return -1;
    if (ep > 1 && !r->distributed)
        return wrong(r, "expert_model_parallel_size", "must be 1");
    if (is_set(r, "moe_grouped_gemm") && !r->distributed)
        return wrong(r, "moe_grouped_gemm", "must be false");
    if (find(r, "moe_router_score_function") &&
        !is_text(r, "moe_router_score_function", "softmax"))
        return wrong(r, "moe_router_score_function", "must be softmax");
    return 0;
}

static int read_llama(const struct read *r, struct plait_model_config *m)
{
    m->family = PLAIT_LLAMA;
    if (!is_text(r, "normalization", "RMSNorm"))
        return wrong(r, "normalization", "must be RMSNorm with rope");
    if (!is_set(r, "swiglu"))
        return wrong(r, "swiglu", "must be true with rope");
    if (is_set(r, "add_bias_linear"))
        return wrong(r, "add_bias_linear", "must be false with rope");
    if (is_set(r, "add_qkv_bias"))
        m->attention_bias = PLAIT_BIAS_QKV;
    m->qk_norm = is_set(r, "qk_layernorm");
    return read_rope(r, m) < 0 ? -1 : read_experts(r, m);
}

/* Sizes that both families have. */
static int read_sizes(const struct read *r, struct plait_megatron_args *a)
{
    struct plait_model_config *m = &a->model;
    int dim;

    if (read_count(r, "num_layers", 0, &m->layers) < 0 ||
        read_count(r, "hidden_size", 0, &m->hidden) < 0 ||
        read_count(r, "num_attention_heads", 0, &m->heads) < 0 ||
        read_count(r, "ffn_hidden_size", 0, &m->ffn) < 0 ||
        read_count(r, "max_position_embeddings", 0, &m->seq_len) < 0 ||
        read_count(r, "padded_vocab_size", 0, &a->padded_vocab) < 0 ||
        read_count(r, "vocab_size", a->padded_vocab, &m->vocab) < 0 ||
        read_count(r, "tensor_model_parallel_size", 1, &a->layout.tp) < 0 ||
        read_count(r, "pipeline_model_parallel_size", 1, &a->layout.pp) < 0)
        return -1;
    /* Megatron counts the end token of this one beside its vocabulary. */
    if (is_text(r, "tokenizer_type", "NullTokenizer") &&
        m->vocab < a->padded_vocab)
        m->vocab++;
    m->kv_heads = m->heads;
    if (is_set(r, "group_query_attention") &&
        read_count(r, "num_query_groups", 0, &m->kv_heads) < 0)
        return -1;
    if (m->vocab > a->padded_vocab)
        return wrong(r, "vocab_size", "is above padded_vocab_size");
    dim = m->hidden / m->heads;
    if (read_count(r, "kv_channels", dim ? dim : 1, &m->head_dim) < 0)
        return -1;
    if (m->head_dim * (int64_t)m->heads == m->hidden)
        m->head_dim = 0;
    m->tie_embeddings = !is_set(r, "untie_embeddings_and_output_weights");
    if (read_real(r, "attention_dropout", &m->attention_dropout) < 0 ||
        read_real(r, "hidden_dropout", &m->dropout) < 0)
        return -1;
    if (read_real(r, "layernorm_epsilon", &m->norm_eps) < 0)
        return -1;
    return read_real(r, "norm_epsilon", &m->norm_eps);
}

static int read_model(const struct read *r, struct plait_megatron_args *a)
{
    if (read_sizes(r, a) < 0 || check_absent(r) < 0)
        return -1;
    if (is_text(r, "position_embedding_type", "learned_absolute"))
        return read_gpt2(r, &a->model);
    if (is_text(r, "position_embedding_type", "rope"))
        return read_llama(r, &a->model);
    return wrong(r, "position_embedding_type",
                 "must be learned_absolute or rope");
}

int plait_megatron_args_read(const char *path,
                             const struct plait_pickle_value *namespace,
                             bool distributed, struct plait_megatron_args *args,
                             struct plait_error *err)
{
    struct read r = {.path = path,
                     .args = namespace,
                     .distributed = distributed,
                     .err = err};
    struct plait_megatron_args read = {.padded_vocab = 0};
    struct plait_job_config *job;
    struct plait_error why;
    int rc;

    errno = EINVAL;
    if (!plait_pickle_dict(namespace))
        return plait_errorf(
            err, "%s: it has no \"args\", which describe the model", path);
    job = plait_job_config_parse("default", "", 0, NULL, 0, err);
    if (!job)
        return -1;
    read.model = job->model;
    rc = read_model(&r, &read);
    if (distributed)
        read.layout = (struct plait_megatron_layout){.tp = 1, .pp = 1};
    job->model = read.model;
    if (rc == 0 && plait_fits_config(job, &why) < 0)
        rc = plait_errorf(err, "%s: %s", path, why.text);
    if (rc == 0 &&
        plait_megatron_args_possible(&read.model, &read.layout, &why) < 0)
        rc = plait_errorf(err, "%s: %s", path, why.text);
    if (rc == 0 && read.padded_vocab % read.layout.tp)
        rc = wrong(&r, "padded_vocab_size",
                   "is not divisible by tensor_model_parallel_size");
    if (rc == 0)
        *args = read;
    plait_job_config_destroy(job);
    return rc;
}

/* -- writing -------------------------------------------------------------- */

static void put_int(struct plait_pickle_out *out, const char *name, int64_t i)
{
    plait_pickle_text(out, name);
    plait_pickle_int(out, i);
}

static void put_bool(struct plait_pickle_out *out, const char *name, bool is)
{
    plait_pickle_text(out, name);
    plait_pickle_bool(out, is);
}

static void put_real(struct plait_pickle_out *out, const char *name, double r)
{
    plait_pickle_text(out, name);
    plait_pickle_real(out, r);
}

static void put_text(struct plait_pickle_out *out, const char *name,
                     const char *text)
{
    plait_pickle_text(out, name);
    plait_pickle_text(out, text);
}

static void put_sizes(const struct plait_megatron_args *a,
                      struct plait_pickle_out *out)
{
    const struct plait_model_config *m = &a->model;

    put_int(out, "num_layers", m->layers);
    put_int(out, "hidden_size", m->hidden);
    put_int(out, "ffn_hidden_size", m->ffn);
    put_int(out, "num_attention_heads", m->heads);
    put_bool(out, "group_query_attention", m->kv_heads != m->heads);
    put_int(out, "num_query_groups", m->kv_heads);
    put_int(out, "kv_channels", plait_model_head_dim(m));
    put_int(out, "seq_length", m->seq_len);
    put_int(out, "max_position_embeddings", m->seq_len);
    put_int(out, "vocab_size", m->vocab);
    put_int(out, "padded_vocab_size", a->padded_vocab);
    put_int(out, "make_vocab_size_divisible_by", 128);
    put_int(out, "tensor_model_parallel_size", a->layout.tp);
    put_int(out, "pipeline_model_parallel_size", a->layout.pp);
}

static void put_llama(const struct plait_model_config *m,
                      struct plait_pickle_out *out)
{
    put_real(out, "rotary_percent", 1);
    put_real(out, "rotary_base", m->rope_theta);
    put_bool(out, "rotary_interleaved", false);
    put_bool(out, "use_rope_scaling", m->rope_factor > 1);
    if (m->rope_factor > 1)
        put_real(out, "rope_scaling_factor", m->rope_factor);
    put_bool(out, "add_qkv_bias", m->attention_bias == PLAIT_BIAS_QKV);
    put_bool(out, "qk_layernorm", m->qk_norm);
    if (!m->experts)
        return;
    put_int(out, "num_experts", m->experts);
    put_int(out, "moe_ffn_hidden_size", m->ffn);
    put_int(out, "moe_router_topk", m->experts_top_k);
    put_text(out, "moe_router_score_function", "softmax");
    put_bool(out, "moe_router_pre_softmax", false);
    put_bool(out, "moe_grouped_gemm", false);
    put_int(out, "expert_model_parallel_size", 1);
}

void plait_megatron_args_write(const struct plait_megatron_args *a,
                               enum plait_dtype type,
                               struct plait_pickle_out *out)
{
    const struct plait_model_config *m = &a->model;
    bool gpt2 = m->family == PLAIT_GPT2;

    plait_pickle_name(out, "argparse", "Namespace");
    plait_pickle_ops(out, ")\x81}(");
    put_sizes(a, out);
    put_text(out, "position_embedding_type",
             gpt2 ? "learned_absolute" : "rope");
    put_bool(out, "add_position_embedding", true);
    put_bool(out, "use_rotary_position_embeddings", !gpt2);
    put_text(out, "normalization", gpt2 ? "LayerNorm" : "RMSNorm");
    put_real(out, "norm_epsilon", m->norm_eps);
    put_real(out, "attention_dropout", m->attention_dropout);
    put_real(out, "hidden_dropout", m->dropout);
    put_bool(out, "swiglu", !gpt2);
    put_bool(out, "openai_gelu", gpt2);
    put_bool(out, "bias_gelu_fusion", false);
    put_bool(out, "add_bias_linear", gpt2);
    put_bool(out, "untie_embeddings_and_output_weights", !m->tie_embeddings);
    if (!gpt2)
        put_llama(m, out);
    put_bool(out, "bf16", type == PLAIT_BF16_T);
    put_bool(out, "fp16", type == PLAIT_FP16_T);
    plait_pickle_text(out, "params_dtype");
    plait_pickle_name(out, "torch",
                      type == PLAIT_BF16_T   ? "bfloat16"
                      : type == PLAIT_FP16_T ? "float16"
                                             : "float32");
    put_text(out, "transformer_impl",
             a->layout.local ? "local" : "transformer_engine");
    put_text(out, "ckpt_format", "torch");
    put_int(out, "iteration", 0);
    put_int(out, "consumed_train_samples", 0);
    put_int(out, "consumed_valid_samples", 0);
    plait_pickle_ops(out, "ub");
}

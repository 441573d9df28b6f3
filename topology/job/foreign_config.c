/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/foreign_config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topology/job/fits.h"
#include "topology/job/foreign_llama4.h"
#include "topology/job/foreign_pairs.h"
#include "topology/job/foreign_run.h"
#include "topology/job/foreign_types.h"
#include "topology/job/model_size.h"

enum { LENGTH_MOST = 8192 };

/* Which key of ours (with its section) another software's name becomes. */
struct rename {
    const char *theirs, *ours;
};

/* The first one that is given wins where several mean the same. */
static const struct rename hugging_face[] = {
    {"num_hidden_layers", "model.layers"},
    {"n_layer", "model.layers"},
    {"hidden_size", "model.hidden"},
    {"n_embd", "model.hidden"},
    {"num_attention_heads", "model.heads"},
    {"n_head", "model.heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"head_dim", "model.head_dim"},
    {"moe_intermediate_size", "model.ffn"},
    {"intermediate_size", "model.ffn"},
    {"n_inner", "model.ffn"},
    {"vocab_size", "model.vocab"},
    {"max_position_embeddings", "model.seq_len"},
    {"n_positions", "model.seq_len"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"sliding_window", "model.sliding_window"},
    {"no_rope_layer_interval", "model.no_rope_every"},
    {"attn_logit_softcapping", "model.attention_softcap"},
    {"final_logit_softcapping", "model.logit_softcap"},
    {"first_k_dense_replace", "model.dense_layers"},
    {"n_shared_experts", "model.shared_experts"},
    {"n_routed_experts", "model.experts"},
    {"num_local_experts", "model.experts"},
    {"num_experts", "model.experts"},
    {"num_experts_per_tok", "model.experts_top_k"},
    {"mlp_bias", "model.mlp_bias"},
};

static const struct rename megatron[] = {
    {"num_layers", "model.layers"},
    {"hidden_size", "model.hidden"},
    {"num_attention_heads", "model.heads"},
    {"num_query_groups", "model.kv_heads"},
    {"kv_channels", "model.head_dim"},
    {"moe_ffn_hidden_size", "model.ffn"},
    {"ffn_hidden_size", "model.ffn"},
    {"padded_vocab_size", "model.vocab"},
    {"vocab_size", "model.vocab"},
    {"seq_length", "model.seq_len"},
    {"num_experts", "model.experts"},
    {"num_moe_experts", "model.experts"},
    {"moe_router_topk", "model.experts_top_k"},
    {"qk_layernorm", "model.qk_norm"},
    {"micro_batch_size", "train.micro_batch"},
    {"global_batch_size", "train.global_batch"},
    {"tensor_model_parallel_size", "parallel.tp"},
    {"context_parallel_size", "parallel.cp"},
    {"expert_model_parallel_size", "parallel.ep"},
    {"pipeline_model_parallel_size", "parallel.pp"},
    {"num_virtual_stages_per_pipeline_rank", "parallel.virtual"},
    {"virtual_pipeline_model_parallel_size", "parallel.virtual"},
    {"sequence_parallel", "parallel.sequence"},
    {"recompute_granularity", "parallel.recompute"},
};

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

struct settings {
    char text[64][96];
    const char *at[128];
    int n;
};

static void set(struct settings *s, const char *key, const char *value)
{
    if (s->n == COUNT(s->text))
        return;
    snprintf(s->text[s->n], sizeof(s->text[0]), "%.40s=%.40s", key, value);
    s->at[s->n] = s->text[s->n];
    s->n++;
}

static void set_number(struct settings *s, const char *key, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    set(s, key, text);
}

static bool is_set(const struct settings *s, const char *key)
{
    size_t n = strlen(key);

    for (int i = 0; i < s->n; i++)
        if (strncmp(s->at[i], key, n) == 0 && s->at[i][n] == '=')
            return true;
    return false;
}

static void rename_pairs(const struct plait_pairs *p,
                         const struct rename *names, int n, struct settings *s)
{
    for (int i = 0; i < n; i++) {
        const char *value = plait_pairs_value(p, names[i].theirs);

        if (value && !is_set(s, names[i].ours))
            set(s, names[i].ours, value);
    }
}

/* The names of the numbers in model.mla, in its order. */
static const char *const hugging_face_latent[] = {
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
    "v_head_dim"};
static const char *const megatron_latent[] = {
    "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim",
    "v_head_dim"};

static void set_latent(const struct plait_pairs *p, const char *const *names,
                       struct settings *s)
{
    int n[5];
    char text[40];

    if (!plait_pairs_value(p, names[1]))
        return;
    for (int i = 0; i < 5; i++)
        n[i] = plait_pairs_number(p, names[i], 0);
    snprintf(text, sizeof(text), "[%d, %d, %d, %d, %d]", n[0], n[1], n[2], n[3],
             n[4]);
    set(s, "model.mla", text);
}

/* Where experts have a width of their own, the other is the first layers'. */
static void set_dense(const struct plait_pairs *p, const char *experts,
                      const char *dense, struct settings *s)
{
    if (is_set(s, "model.dense_layers") && plait_pairs_value(p, experts) &&
        plait_pairs_value(p, dense))
        set(s, "model.dense_ffn", plait_pairs_value(p, dense));
}

/* By layer_types, of which a beginning was read: how many layers there are to
 * the first without a window; -1: that is the first, and so are all. */
static int every_of_list(const struct plait_pairs *p, int otherwise)
{
    static const char full[] = "full_attention";
    const char *list = plait_pairs_value(p, "layer_types");
    bool all = true;
    int n = 0;

    while (list && *list) {
        size_t length = strcspn(list, " ");
        bool is_full = length == strlen(full) && !strncmp(list, full, length);

        if (is_full && !all)
            return n + 1;
        all &= is_full;
        n++;
        list += length + (list[length] == ' ');
    }
    return n > 0 && all ? -1 : otherwise;
}

/* Some configurations give a window that none of their layers uses: the first
 * max_window_layers have none. */
static void set_window(const struct plait_pairs *p, int every,
                       struct settings *s)
{
    bool none =
        plait_pairs_number(p, "max_window_layers", PLAIT_WINDOW_LAYERS) >=
        plait_pairs_number(p, "num_hidden_layers", 0);

    if (plait_pairs_value(p, "use_sliding_window") &&
        is_set(s, "model.sliding_window") &&
        (none || !plait_pairs_flag(p, "use_sliding_window")))
        set(s, "model.sliding_window", "0");
    every = plait_pairs_number(p, "_sliding_window_pattern", every);
    every = plait_pairs_number(p, "sliding_window_pattern", every);
    every = every_of_list(p, every);
    if (every < 0)
        set(s, "model.sliding_window", "0");
    if (every > 0 && is_set(s, "model.sliding_window"))
        set_number(s, "model.full_attention_every", every);
    if (plait_pairs_flag(p, "use_sliding_window") &&
        !plait_pairs_value(p, "layer_types"))
        set_number(
            s, "model.full_attention_first",
            plait_pairs_number(p, "max_window_layers", PLAIT_WINDOW_LAYERS));
}

/* "0 1 2": how many first layers a list has; -1: others. */
static int count_first(const char *list)
{
    char *end;
    int n = 0;

    while (list && *list) {
        if (strtol(list, &end, 10) != n || end == list)
            return -1;
        n++;
        list = end + strspn(end, " ");
    }
    return n;
}

static void set_further(const struct plait_pairs *p, struct settings *s)
{
    if (plait_foreign_further(p) == 1)
        set(s, "model.mtp_layers", "1");
}

/* Llama 4's layers with experts, how wide mlps are in the others, and its
 * attention. */
static int set_llama4(const char *path, const struct plait_pairs *p,
                      struct settings *s, struct plait_error *err)
{
    struct plait_model_config m = {
        .layers = plait_pairs_number(p, "num_hidden_layers", 0)};

    if (plait_foreign_llama4(path, p, &m, err) < 0)
        return -1;
    set_number(s, "model.dense_layers", m.dense_layers);
    set_number(s, "model.experts_every", m.experts_every);
    set_number(s, "model.no_rope_every", m.no_rope_every);
    set_number(s, "model.attention_chunk", m.attention_chunk);
    set(s, "model.qk_l2_norm", m.qk_l2_norm ? "true" : "false");
    if (plait_model_dense_layers(&m) &&
        plait_pairs_value(p, "intermediate_size_mlp"))
        set(s, "model.dense_ffn",
            plait_pairs_value(p, "intermediate_size_mlp"));
    return 0;
}

/* Layers of experts that come between others in a way that model.dense_layers
 * does not say. */
static int check_experts(const char *path, const struct plait_pairs *p,
                         struct plait_error *err)
{
    static const char *const steps[] = {"decoder_sparse_step",
                                        "moe_layer_freq"};
    const char *dense = plait_pairs_value(p, "mlp_only_layers");

    errno = EINVAL;
    for (int i = 0; i < COUNT(steps); i++)
        if (plait_pairs_number(p, steps[i], 1) != 1)
            return plait_errorf(err,
                                "%s: %s is %s: experts in some layers between "
                                "others cannot be planned",
                                path, steps[i], plait_pairs_value(p, steps[i]));
    if (plait_pairs_first(p, "mlp_layer_types", "dense") < 0)
        return plait_errorf(err,
                            "%s: mlp_layer_types has dense layers between "
                            "others, which cannot be planned",
                            path);
    if (count_first(dense) < 0)
        return plait_errorf(err,
                            "%s: mlp_only_layers is [%s]: layers without "
                            "experts between others cannot be planned",
                            path, dense);
    return 0;
}

/* What other keys say of attention. */
static void set_attention(const struct plait_pairs *p, const char *type,
                          struct settings *s)
{
    bool qkv = strcmp(type, "glm4_moe") == 0 ||
               (strcmp(type, "seed_oss") == 0 &&
                !plait_pairs_flag(p, "attention_out_bias"));

    if (plait_pairs_flag(p, "attention_bias") &&
        !is_set(s, "model.attention_bias"))
        set(s, "model.attention_bias", qkv ? "qkv" : "all");
    if (strcmp(type, "glm4_moe") == 0 && plait_pairs_flag(p, "use_qk_norm"))
        set(s, "model.qk_norm", "true");
}

/* Sizes that have no default: a misspelt name must not make another model. */
static int check_sizes(const char *path, const struct settings *s,
                       const struct rename *needed, int n,
                       struct plait_error *err)
{
    for (int i = 0; i < n; i++)
        if (!is_set(s, needed[i].ours)) {
            errno = EINVAL;
            return plait_errorf(err, "%s: does not say %s", path,
                                needed[i].theirs);
        }
    return 0;
}

static int unknown_type(const char *path, const char *type,
                        struct plait_error *err)
{
    char names[500];

    plait_foreign_type_names(names, sizeof(names));
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: model_type %.40s is not known, so that its "
                        "layers cannot be planned; known are %s",
                        path, type, names);
}

static int translate_hugging_face(const char *path, struct plait_pairs *p,
                                  struct settings *s, struct plait_error *err)
{
    static const struct rename needed[] = {
        {"num_hidden_layers (n_layer)", "model.layers"},
        {"hidden_size (n_embd)", "model.hidden"},
        {"num_attention_heads (n_head)", "model.heads"},
        {"vocab_size", "model.vocab"}};
    const char *type = plait_pairs_value(p, "model_type");
    const struct plait_foreign_type *known = plait_foreign_type_find(type);

    if (strcmp(type, "llama4") == 0) {
        errno = EINVAL;
        return plait_errorf(err, "%s: text_config is missing", path);
    }
    if (!known)
        return unknown_type(path, type, err);
    if (check_experts(path, p, err) < 0)
        return -1;
    plait_pairs_add(p, known->sizes);
    set(s, "model.family", known->family);
    if (strcmp(type, "llama4_text") == 0 && set_llama4(path, p, s, err) < 0)
        return -1;
    if (plait_pairs_value(p, "mlp_layer_types"))
        set_number(s, "model.dense_layers",
                   plait_pairs_first(p, "mlp_layer_types", "dense"));
    rename_pairs(p, hugging_face, COUNT(hugging_face), s);
    set_latent(p, hugging_face_latent, s);
    set_further(p, s);
    if (count_first(plait_pairs_value(p, "mlp_only_layers")) > 0)
        set_number(s, "model.dense_layers",
                   count_first(plait_pairs_value(p, "mlp_only_layers")));
    set_dense(p, "moe_intermediate_size", "intermediate_size", s);
    set_window(p, known->every, s);
    for (int i = 0; i < COUNT(known->more) && known->more[i]; i++)
        s->at[s->n++] = known->more[i];
    set_attention(p, type, s);
    if (!is_set(s, "model.tie_embeddings"))
        set(s, "model.tie_embeddings",
            strncmp(type, "gemma", 5) == 0 || strcmp(type, "gpt2") == 0 ||
                    strcmp(type, "smollm3") == 0
                ? "true"
                : "false");
    /* The model's longest context, not the length it is trained with. */
    if (plait_pairs_number(p, "max_position_embeddings", 0) > LENGTH_MOST)
        set(s, "model.seq_len", "8192");
    set(s, "train.precision", "bf16");
    return check_sizes(path, s, needed, COUNT(needed), err);
}

/* Megatron gives the width of all shared experts together. */
static void set_shared(const struct plait_pairs *p, struct settings *s)
{
    int wide = plait_pairs_number(p, "moe_shared_expert_intermediate_size", 0);
    int one = plait_pairs_number(p, "moe_ffn_hidden_size",
                                 plait_pairs_number(p, "ffn_hidden_size", 0));

    if (one > 0 && wide >= one)
        set_number(s, "model.shared_experts", wide / one);
}

/* Megatron is told the chunks of a pipeline rank or the layers of a chunk,
 * where the embedding and the head can count as layers. */
static int set_chunks(const char *path, const struct plait_pairs *p,
                      struct settings *s, struct plait_error *err)
{
    static const char each[] = "num_layers_per_virtual_pipeline_stage";
    int pp = plait_pairs_number(p, "pipeline_model_parallel_size", 1);
    int one = plait_pairs_number(p, each, 0);
    int layers =
        plait_pairs_number(p, "num_layers", 0) +
        plait_pairs_flag(p, "account_for_embedding_in_pipeline_split") +
        plait_pairs_flag(p, "account_for_loss_in_pipeline_split");

    if (plait_pairs_flag(p, each) && !is_set(s, "parallel.virtual")) {
        errno = EINVAL;
        if (one < 1 || pp < 1 || layers % pp || layers / pp % one)
            return plait_errorf(
                err, "%s: %d layers in %d stages are not divisible by %s %d",
                path, layers, pp, each, one);
        set_number(s, "parallel.virtual", layers / pp / one);
    }
    if (is_set(s, "parallel.virtual"))
        set(s, "parallel.schedule", "interleaved");
    return 0;
}

static int translate_megatron(const char *path, const struct plait_pairs *p,
                              struct settings *s, struct plait_error *err)
{
    static const struct rename needed[] = {
        {"num-layers", "model.layers"},
        {"hidden-size", "model.hidden"},
        {"num-attention-heads", "model.heads"}};

    set(s, "model.family", plait_pairs_flag(p, "swiglu") ? "llama" : "gpt2");
    rename_pairs(p, megatron, COUNT(megatron), s);
    set_latent(p, megatron_latent, s);
    set_further(p, s);
    set_shared(p, s);
    set(s, "model.tie_embeddings",
        plait_pairs_flag(p, "untie_embeddings_and_output_weights") ? "false"
                                                                   : "true");
    if (plait_pairs_flag(p, "recompute_activations"))
        set(s, "parallel.recompute", "selective");
    if (plait_pairs_flag(p, "use_distributed_optimizer"))
        set(s, "parallel.zero", "1");
    if (plait_pairs_flag(p, "use_megatron_fsdp"))
        set(s, "parallel.zero", "3");
    set(s, "train.precision",
        plait_pairs_flag(p, "fp8") || plait_pairs_flag(p, "fp8_format") ? "fp8"
        : plait_pairs_flag(p, "fp16")                                   ? "fp16"
                                      : "bf16");
    if (check_sizes(path, s, needed, COUNT(needed), err) < 0)
        return -1;
    return set_chunks(path, p, s, err);
}

static struct plait_job_config *
translate(const char *path, struct plait_pairs *p, const char *const *more,
          int nmore, enum plait_framework *framework, struct plait_error *err)
{
    struct settings *s = calloc(1, sizeof(*s));
    struct plait_job_config *config = NULL;
    struct plait_error refusal;

    if (!s) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    if (plait_pairs_value(p, "model_type")
            ? translate_hugging_face(path, p, s, err) < 0
            : translate_megatron(path, p, s, err) < 0)
        goto out;
    if (!plait_pairs_value(p, "model_type"))
        *framework = PLAIT_FRAMEWORK_MEGATRON;
    for (int i = 0; i < nmore && s->n < COUNT(s->at); i++)
        s->at[s->n++] = more[i];
    config = plait_job_config_parse(path, "", 0, s->at, s->n, err);
    if (config)
        plait_foreign_run_set(p, config);
    if (config && !plait_model_dense_layers(
                      &config->model)) /* then there is no such width */
        config->model.dense_ffn = 0;
    if (config && plait_fits_trainer(config, &refusal) < 0)
        *framework = PLAIT_FRAMEWORK_MEGATRON;
out:
    free(s);
    return config;
}

struct plait_job_config *
plait_foreign_config_create(const char *path, const char *const *more,
                            int nmore, enum plait_framework *framework,
                            struct plait_error *err)
{
    struct plait_job_config *config = NULL;
    struct plait_pairs *p = calloc(1, sizeof(*p));
    char *text = NULL;
    size_t size;
    int rc;

    if (!p || plait_job_config_read(path, &text, &size, err) < 0)
        goto out;
    rc = plait_pairs_read(path, text, size, p, err);
    if (rc > 0)
        config = translate(path, p, more, nmore, framework, err);
    else if (rc == 0)
        config = plait_job_config_create(path, (const char **)more, nmore, err);
out:
    free(text);
    free(p);
    return config;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/checkpoint/hf_map.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/job/model_size.h"

/* The list while it is built. */
struct builder {
    struct plait_hf_tensor *tensors;
    int n, cap;
    bool failed;
    bool fused;
    char here[64], there[64]; /* prefixes of a layer's names */
};

static struct plait_hf_tensor *add_tensor(struct builder *b, const char *name,
                                          const char *hf, uint64_t rows,
                                          uint64_t cols)
{
    static struct plait_hf_tensor lost;
    struct plait_hf_tensor *more, *t;

    if (b->n == b->cap) {
        b->cap = b->cap ? 2 * b->cap : 256;
        more = realloc(b->tensors, b->cap * sizeof(*more));
        if (!more) {
            b->failed = true;
            b->cap = b->n;
            return &lost;
        }
        b->tensors = more;
    }
    t = &b->tensors[b->n++];
    *t = (struct plait_hf_tensor){
        .rows = rows, .cols = cols, .parts = 1, .all = rows, .stride = 1};
    snprintf(t->name, sizeof(t->name), "%s%s", b->here, name);
    snprintf(t->hf, sizeof(t->hf), "%s%s", b->there, hf);
    return t;
}

static void add_vector(struct builder *b, const char *name, const char *hf,
                       uint64_t n)
{
    add_tensor(b, name, hf, 1, n)->vector = true;
}

/* A Conv1D of GPT-2: a matrix, stored transposed, and its bias. */
static void add_conv1d(struct builder *b, const char *name, const char *hf,
                       uint64_t rows, uint64_t cols)
{
    char here[64], there[64];

    snprintf(here, sizeof(here), "%s.weight", name);
    snprintf(there, sizeof(there), "%s.weight", hf);
    add_tensor(b, here, there, rows, cols)->transposed = true;
    snprintf(here, sizeof(here), "%s.bias", name);
    snprintf(there, sizeof(there), "%s.bias", hf);
    add_vector(b, here, there, rows);
}

/* The last `n` are the parts of one stored tensor. */
static void join(struct builder *b, int n)
{
    struct plait_hf_tensor *t = b->tensors + b->n - n;
    uint64_t all = 0;

    if (b->failed)
        return;
    for (int i = 0; i < n; i++) {
        t[i].parts = n;
        t[i].before = all;
        all += t[i].rows;
    }
    for (int i = 0; i < n; i++)
        t[i].all = all;
}

static void add_joined_qkv(struct builder *b, uint64_t C)
{
    static const char *const weights[] = {
        "attention.q.weight", "attention.k.weight", "attention.v.weight"};
    static const char *const biases[] = {"attention.q.bias", "attention.k.bias",
                                         "attention.v.bias"};

    for (int i = 0; i < 3; i++)
        add_tensor(b, weights[i], "attn.c_attn.weight", C, C)->transposed =
            true;
    join(b, 3);
    for (int i = 0; i < 3; i++)
        add_vector(b, biases[i], "attn.c_attn.bias", C);
    join(b, 3);
}

static void add_gpt2_layer(struct builder *b,
                           const struct plait_model_config *m)
{
    uint64_t C = m->hidden;

    add_vector(b, "attention_norm.weight", "ln_1.weight", C);
    add_vector(b, "attention_norm.bias", "ln_1.bias", C);
    add_joined_qkv(b, C);
    add_conv1d(b, "attention.out", "attn.c_proj", C, C);
    add_vector(b, "mlp_norm.weight", "ln_2.weight", C);
    add_vector(b, "mlp_norm.bias", "ln_2.bias", C);
    add_conv1d(b, "mlp.up", "mlp.c_fc", m->ffn, C);
    add_conv1d(b, "mlp.down", "mlp.c_proj", C, m->ffn);
}

/* The rows of `t` are of heads that are `apart` rows from each other there, and
 * begin behind `before` of those of the first head. */
static void set_heads(struct plait_hf_tensor *t, int heads, uint64_t apart,
                      uint64_t before, uint64_t rotary)
{
    t->heads = heads;
    t->apart = apart;
    t->before = before;
    t->rotary = rotary;
}

/* DeepSeek-V3's q, k and v. Its one matrix from the stream makes the latent of
 * k and v and behind it the rotary part of k, and its one matrix from the
 * latent a head of k and one of v in turns. */
static void add_latent_qkv(struct builder *b,
                           const struct plait_model_config *m)
{
    static const char down[] = "self_attn.kv_a_proj_with_mqa.weight";
    static const char up[] = "self_attn.kv_b_proj.weight";
    uint64_t C = m->hidden, R = m->mla_rope, D = plait_model_head_dim(m);
    uint64_t k = m->mla_nope, v = m->mla_value, L = m->mla_kv, n = m->heads;
    struct plait_hf_tensor *t;

    if (m->mla_q) {
        add_tensor(b, "attention.q_down.weight", "self_attn.q_a_proj.weight",
                   m->mla_q, C);
        add_vector(b, "attention.q_latent_norm.weight",
                   "self_attn.q_a_layernorm.weight", m->mla_q);
    }
    t = add_tensor(b, "attention.q.weight",
                   m->mla_q ? "self_attn.q_b_proj.weight"
                            : "self_attn.q_proj.weight",
                   n * D, m->mla_q ? (uint64_t)m->mla_q : C);
    set_heads(t, m->heads, D, 0, R);
    add_tensor(b, "attention.kv_down.weight", down, L, C);
    t = add_tensor(b, "attention.k_rotary.weight", down, R, C);
    join(b, 2);
    set_heads(t, 1, R, L, R);
    add_vector(b, "attention.kv_latent_norm.weight",
               "self_attn.kv_a_layernorm.weight", L);
    t = add_tensor(b, "attention.k.weight", up, n * k, L);
    set_heads(t, m->heads, k + v, 0, 0);
    t = add_tensor(b, "attention.v.weight", up, n * v, L);
    join(b, 2);
    set_heads(t, m->heads, k + v, k, 0);
}

static void add_latent_attention(struct builder *b,
                                 const struct plait_model_config *m)
{
    if (m->norm_place != PLAIT_NORMS_AFTER)
        add_vector(b, "attention_norm.weight", "input_layernorm.weight",
                   m->hidden);
    add_latent_qkv(b, m);
    add_tensor(b, "attention.out.weight", "self_attn.o_proj.weight", m->hidden,
               (uint64_t)m->heads * (uint64_t)m->mla_value);
}

/* Its pairs of rotary columns are side by side. */
static bool is_llama4(const struct plait_model_config *m)
{
    return m->experts && m->experts_scores == PLAIT_SCORES_INPUT;
}

static void add_llama_attention(struct builder *b,
                                const struct plait_model_config *m)
{
    uint64_t C = m->hidden, D = plait_model_head_dim(m);
    uint64_t q = m->heads * D, kv = m->kv_heads * D;
    static const char *const here[] = {
        "attention.q.weight", "attention.k.weight", "attention.v.weight"};
    static const char *const there[] = {"self_attn.q_proj.weight",
                                        "self_attn.k_proj.weight",
                                        "self_attn.v_proj.weight"};

    if (m->norm_place != PLAIT_NORMS_AFTER)
        add_vector(b, "attention_norm.weight", "input_layernorm.weight", C);
    for (int i = 0; i < 3; i++) {
        struct plait_hf_tensor *t = add_tensor(
            b, here[i], b->fused ? "self_attn.qkv_proj.weight" : there[i],
            i == 0 ? q : kv, C);

        if (is_llama4(m) && i < 2)
            set_heads(t, i == 0 ? m->heads : m->kv_heads, D, 0, D);
    }
    if (b->fused)
        join(b, 3);
    if (m->attention_bias != PLAIT_BIAS_NONE) {
        add_vector(b, "attention.q.bias", "self_attn.q_proj.bias", q);
        add_vector(b, "attention.k.bias", "self_attn.k_proj.bias", kv);
        add_vector(b, "attention.v.bias", "self_attn.v_proj.bias", kv);
    }
    if (m->qk_norm) {
        add_vector(b, "attention.q_norm.weight", "self_attn.q_norm.weight",
                   m->qk_norm_whole ? q : D);
        add_vector(b, "attention.k_norm.weight", "self_attn.k_norm.weight",
                   m->qk_norm_whole ? kv : D);
    }
    add_tensor(b, "attention.out.weight", "self_attn.o_proj.weight", C, q);
    if (m->attention_bias == PLAIT_BIAS_ALL)
        add_vector(b, "attention.out.bias", "self_attn.o_proj.bias", C);
    if (m->attention_sinks)
        add_vector(b, "attention.sinks", "self_attn.sinks", m->heads);
}

/* The experts' gates and ups, or with `per` 1 their downs, as slabs of one
 * stored tensor. Each slab is transposed; of its columns gate has the even
 * ones, or in Llama 4 the first ones. */
static void add_slabs(struct builder *b, const struct plait_model_config *m,
                      int per, bool vector)
{
    static const char *const here[] = {"gate", "up", "down"};
    uint64_t rows = per == 2 ? m->ffn : m->hidden;
    uint64_t cols = per == 2 ? m->hidden : m->ffn;
    char name[48], hf[64];

    snprintf(hf, sizeof(hf), "%s.experts.%s_proj%s",
             is_llama4(m) ? "feed_forward" : "mlp",
             per == 2 ? "gate_up" : "down", vector ? "_bias" : "");
    for (int i = 0; i < m->experts * per; i++) {
        struct plait_hf_tensor *t;

        snprintf(name, sizeof(name), "experts.%d.%s.%s", i / per,
                 here[per == 2 ? i % 2 : 2], vector ? "bias" : "weight");
        t = add_tensor(b, name, hf, vector ? 1 : rows, vector ? rows : cols);
        t->vector = vector;
        t->transposed = !vector || per == 2;
        t->parts = m->experts * per;
        t->slabs = m->experts;
        t->slab = i / per;
        t->stride = is_llama4(m) ? 1 : per;
        t->before = (uint64_t)(i % per) * (is_llama4(m) ? rows : 1);
        t->all = t->rows * (uint64_t)per;
    }
}

/* The experts of GPT-OSS. */
static void add_biased_experts(struct builder *b,
                               const struct plait_model_config *m)
{
    add_tensor(b, "router.weight", "mlp.router.weight", m->experts, m->hidden);
    add_vector(b, "router.offset", "mlp.router.bias", m->experts);
    for (int per = 2; per > 0; per--) {
        add_slabs(b, m, per, false);
        add_slabs(b, m, per, true);
    }
}

/* The experts of Llama 4. */
static void add_input_experts(struct builder *b,
                              const struct plait_model_config *m)
{
    uint64_t C = m->hidden, F = (uint64_t)m->ffn * m->shared_experts;

    add_tensor(b, "router.weight", "feed_forward.router.weight", m->experts, C);
    add_tensor(b, "shared.gate.weight",
               "feed_forward.shared_expert.gate_proj.weight", F, C);
    add_tensor(b, "shared.up.weight",
               "feed_forward.shared_expert.up_proj.weight", F, C);
    add_tensor(b, "shared.down.weight",
               "feed_forward.shared_expert.down_proj.weight", C, F);
    for (int per = 2; per > 0; per--)
        add_slabs(b, m, per, false);
}

/* The experts of Mixtral and of MiniMax-M2, which has sigmoids and norms of all
 * heads' q and k; or of Qwen 3 and OLMoE, which have norms of q and k, as those
 * of GLM-4.5 and DeepSeek may. */
static bool named_as_mixtral(const struct plait_model_config *m)
{
    return m->experts_scores == PLAIT_SCORES_SIGMOID
               ? m->qk_norm && m->qk_norm_whole
               : !m->qk_norm && !m->mla_kv;
}

/* What a router of sigmoids has beside its matrix, and the experts that all
 * tokens take. */
static void add_shared(struct builder *b, const struct plait_model_config *m)
{
    uint64_t C = m->hidden, F = (uint64_t)m->ffn * m->shared_experts;
    struct plait_hf_tensor *t;

    if (m->experts_scores == PLAIT_SCORES_SIGMOID) {
        t = add_tensor(b, "router.bias",
                       named_as_mixtral(m)
                           ? "block_sparse_moe.e_score_correction_bias"
                           : "mlp.gate.e_score_correction_bias",
                       1, m->experts);
        t->vector = t->exact = true;
    }
    if (!m->shared_experts)
        return;
    add_tensor(b, "shared.gate.weight", "mlp.shared_experts.gate_proj.weight",
               F, C);
    add_tensor(b, "shared.up.weight", "mlp.shared_experts.up_proj.weight", F,
               C);
    add_tensor(b, "shared.down.weight", "mlp.shared_experts.down_proj.weight",
               C, F);
}

static void add_experts(struct builder *b, const struct plait_model_config *m)
{
    static const char *const here[] = {"gate", "up", "down"};
    static const char *const mixtral[] = {"w1", "w3", "w2"};
    static const char *const qwen[] = {"gate_proj", "up_proj", "down_proj"};
    bool as_mixtral = named_as_mixtral(m);
    const char *const *there = as_mixtral ? mixtral : qwen;
    const char *block = as_mixtral ? "block_sparse_moe" : "mlp";
    uint64_t C = m->hidden, F = m->ffn;
    char name[48], hf[64];

    snprintf(hf, sizeof(hf), "%s.gate.weight", block);
    add_tensor(b, "router.weight", hf, m->experts, C);
    add_shared(b, m);
    for (int e = 0; e < m->experts; e++)
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof(name), "experts.%d.%s.weight", e, here[i]);
            snprintf(hf, sizeof(hf), "%s.experts.%d.%s.weight", block, e,
                     there[i]);
            add_tensor(b, name, hf, i == 2 ? C : F, i == 2 ? F : C);
        }
}

/* The norms between attention and mlp, and that after it. What is named
 * post_attention is before the mlp where no norm comes after attention. */
static void add_norms(struct builder *b, const struct plait_model_config *m)
{
    static const char post[] = "post_attention_layernorm.weight";
    uint64_t C = m->hidden;
    bool after = m->norm_place != PLAIT_NORMS_BEFORE;

    if (after)
        add_vector(b, "attention_norm_after.weight", post, C);
    if (m->norm_place != PLAIT_NORMS_AFTER)
        add_vector(b, "mlp_norm.weight",
                   after ? "pre_feedforward_layernorm.weight" : post, C);
    if (after)
        add_vector(b, "mlp_norm_after.weight",
                   "post_feedforward_layernorm.weight", C);
}

static void add_mlp(struct builder *b, const struct plait_model_config *m,
                    uint64_t F)
{
    const char *block = is_llama4(m) ? "feed_forward" : "mlp";
    uint64_t C = m->hidden;
    char gate[48], up[48], down[48];

    snprintf(gate, sizeof(gate), "%s.%s_proj.weight", block,
             b->fused ? "gate_up" : "gate");
    snprintf(up, sizeof(up), "%s.%s_proj.weight", block,
             b->fused ? "gate_up" : "up");
    snprintf(down, sizeof(down), "%s.down_proj.weight", block);
    add_tensor(b, "mlp.gate.weight", gate, F, C);
    add_tensor(b, "mlp.up.weight", up, F, C);
    if (b->fused)
        join(b, 2);
    add_tensor(b, "mlp.down.weight", down, C, F);
    if (!m->mlp_bias)
        return;
    add_vector(b, "mlp.gate.bias", "mlp.gate_proj.bias", F);
    add_vector(b, "mlp.up.bias", "mlp.up_proj.bias", F);
    add_vector(b, "mlp.down.bias", "mlp.down_proj.bias", C);
}

static void add_llama_layer(struct builder *b,
                            const struct plait_model_config *m, int layer)
{
    bool dense = plait_model_dense(m, layer);

    if (m->mla_kv)
        add_latent_attention(b, m);
    else
        add_llama_attention(b, m);
    add_norms(b, m);
    if (m->experts && !dense) {
        if (is_llama4(m))
            add_input_experts(b, m);
        else if (m->mlp_bias)
            add_biased_experts(b, m);
        else
            add_experts(b, m);
        return;
    }
    add_mlp(b, m, dense ? plait_model_dense_ffn(m) : m->ffn);
}

static void add_gpt2(struct builder *b, const struct plait_model_config *m)
{
    uint64_t C = m->hidden;

    add_tensor(b, "embedding.weight", "transformer.wte.weight", m->vocab, C);
    add_tensor(b, "position.weight", "transformer.wpe.weight", m->seq_len, C);
    for (int i = 0; i < m->layers; i++) {
        snprintf(b->here, sizeof(b->here), "layers.%d.", i);
        snprintf(b->there, sizeof(b->there), "transformer.h.%d.", i);
        add_gpt2_layer(b, m);
    }
    b->here[0] = b->there[0] = '\0';
    add_vector(b, "norm.weight", "transformer.ln_f.weight", C);
    add_vector(b, "norm.bias", "transformer.ln_f.bias", C);
}

/* DeepSeek-V3's module that predicts a token further: a layer behind the last
 * and what joins its inputs, the token's first. Embedding and head are the
 * model's and not stored again. */
static void add_mtp(struct builder *b, const struct plait_model_config *m)
{
    uint64_t C = m->hidden;

    snprintf(b->here, sizeof(b->here), "mtp.0.");
    snprintf(b->there, sizeof(b->there), "model.layers.%d.", m->layers);
    add_llama_layer(b, m, m->layers);
    add_vector(b, "token_norm.weight", "enorm.weight", C);
    add_vector(b, "hidden_norm.weight", "hnorm.weight", C);
    add_tensor(b, "join.weight", "eh_proj.weight", C, 2 * C);
    add_vector(b, "norm.weight", "shared_head.norm.weight", C);
}

static void add_llama(struct builder *b, const struct plait_model_config *m)
{
    uint64_t C = m->hidden;

    add_tensor(b, "embedding.weight", "model.embed_tokens.weight", m->vocab, C);
    for (int i = 0; i < m->layers; i++) {
        snprintf(b->here, sizeof(b->here), "layers.%d.", i);
        snprintf(b->there, sizeof(b->there), "model.layers.%d.", i);
        add_llama_layer(b, m, i);
    }
    if (m->mtp_layers)
        add_mtp(b, m);
    b->here[0] = b->there[0] = '\0';
    add_vector(b, "norm.weight", "model.norm.weight", C);
}

int plait_hf_map_create(const struct plait_model_config *m, bool fused,
                        struct plait_hf_tensor **tensors)
{
    struct builder b = {.fused = fused};

    if (m->family == PLAIT_GPT2)
        add_gpt2(&b, m);
    else
        add_llama(&b, m);
    if (!m->tie_embeddings)
        add_tensor(&b, "head.weight", "lm_head.weight", m->vocab, m->hidden);
    if (b.failed) {
        free(b.tensors);
        errno = ENOMEM;
        return -1;
    }
    *tensors = b.tensors;
    return b.n;
}

uint64_t plait_hf_map_row(const struct plait_hf_tensor *t, uint64_t row)
{
    uint64_t per = t->rows / (uint64_t)t->heads, half = t->rotary / 2;
    uint64_t i = row % per, to;

    if (i >= t->rotary)
        to = i - t->rotary;
    else
        to = per - t->rotary + i % half * 2 + i / half;
    return t->before + row / per * t->apart + to;
}

int plait_hf_map_shape(const struct plait_hf_tensor *t, uint64_t shape[3])
{
    int n = 0;

    if (t->slabs)
        shape[n++] = (uint64_t)t->slabs;
    if (t->vector) {
        shape[n++] = t->all * t->cols;
        return n;
    }
    shape[n++] = t->transposed ? t->cols : t->all;
    shape[n++] = t->transposed ? t->all : t->cols;
    return n;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that contradict each other, and what can be planned for other software
 * but plait-train cannot train. */
#include <errno.h>

#include "topology/job/fits.h"
#include "topology/job/model_size.h"
#include "topology/job/mup.h"
#include "topology/job/sync.h"

enum { GROUPS_MOST = 64 }; /* kernels/route.h */

static int check_yarn(const struct plait_model_config *m,
                      struct plait_error *err)
{
    const char *key = m->rope_truncate               ? "rope_truncate"
                      : m->rope_attention_factor > 0 ? "rope_attention_factor"
                                                     : NULL;

    if (!key || (m->rope_scaling == PLAIT_ROPE_YARN && m->rope_factor > 1) ||
        (m->rope_scaling == PLAIT_ROPE_LONGROPE && !m->rope_truncate))
        return 0;
    if (m->rope_scaling == PLAIT_ROPE_YARN)
        return plait_errorf(err,
                            "model.%s: model.rope_factor must be above 1, "
                            "not %g, with which nothing is stretched",
                            key, m->rope_factor);
    return plait_errorf(err, "model.%s: model.rope_scaling must be yarn%s", key,
                        m->rope_truncate ? "" : " or longrope");
}

/* A number for each pair of columns. */
static int check_pairs(const struct plait_model_config *m, const char *key,
                       int n, struct plait_error *err)
{
    int pairs = plait_model_rope_columns(m) / 2;

    if (m->rope_scaling != PLAIT_ROPE_LONGROPE && n > 0)
        return plait_errorf(
            err, "model.%s: model.rope_scaling must be longrope", key);
    if (m->rope_scaling != PLAIT_ROPE_LONGROPE || n == pairs)
        return 0;
    return plait_errorf(err,
                        "model.%s has %d numbers; with model.rope_scaling "
                        "longrope it must have %d, one for each pair of a "
                        "head's %d columns with rotary positions",
                        key, n, pairs, 2 * pairs);
}

static int check_longrope(const struct plait_model_config *m,
                          struct plait_error *err)
{
    if (check_pairs(m, "rope_short", m->rope_short.n, err) < 0 ||
        check_pairs(m, "rope_long", m->rope_long.n, err) < 0)
        return -1;
    if (m->rope_scaling != PLAIT_ROPE_LONGROPE ||
        (m->rope_factor > 1 && m->rope_original_len > 1))
        return 0;
    return plait_errorf(err,
                        "model.rope_scaling longrope: model.rope_factor %g and "
                        "model.rope_original_len %d must both be above 1",
                        m->rope_factor, m->rope_original_len);
}

int plait_fits_idle(const struct plait_model_config *m, struct plait_error *err)
{
    errno = EINVAL;
    if (check_yarn(m, err) < 0 || check_longrope(m, err) < 0)
        return -1;
    if (m->qk_norm_whole && !m->qk_norm)
        return plait_errorf(err, "model.qk_norm_whole: model.qk_norm is false, "
                                 "the model has no such norm");
    if (m->rope_theta_window > 0 && m->rope_theta_window < 1)
        return plait_errorf(err,
                            "model.rope_theta_window must be 0 or a number "
                            "from 1 to 1e+12, not %g",
                            m->rope_theta_window);
    if (m->rope_theta_window > 0 && !m->sliding_window)
        return plait_errorf(err,
                            "model.rope_theta_window %g: model.sliding_window "
                            "is 0, so no layer has a window",
                            m->rope_theta_window);
    return 0;
}

/* A key of experts in a model that has none. */
static const char *find_idle_key(const struct plait_model_config *m)
{
    return m->experts                                  ? NULL
           : m->experts_groups                         ? "groups"
           : m->experts_top_groups                     ? "top_groups"
           : m->experts_balance_rate > 0               ? "balance_rate"
           : plait_model_factor(m->experts_scale) != 1 ? "scale"
           : m->experts_scores                         ? "scores"
           : m->experts_weights                        ? "weights"
           : m->experts_balance_over                   ? "balance_over"
                                                       : NULL;
}

static int check_groups(const struct plait_model_config *m,
                        struct plait_error *err)
{
    int n = m->experts_groups, top = m->experts_top_groups;

    if (n < 2 && top > 1)
        return plait_errorf(err,
                            "model.experts_top_groups %d: "
                            "model.experts_groups is %d, tokens choose from "
                            "all experts",
                            top, n);
    if (n < 2)
        return 0;
    if (n > GROUPS_MOST || m->experts % n || m->experts / n < 2)
        return plait_errorf(err,
                            "model.experts_groups %d must be at most %d and "
                            "divide model.experts %d into groups of 2 or more",
                            n, GROUPS_MOST, m->experts);
    if (top < 1 || top > n)
        return plait_errorf(err,
                            "model.experts_top_groups %d must be from 1 to "
                            "model.experts_groups %d",
                            top, n);
    if (m->experts_top_k > m->experts / n * top)
        return plait_errorf(err,
                            "model.experts_top_k %d is more than the %d "
                            "experts of model.experts_top_groups %d",
                            m->experts_top_k, m->experts / n * top, top);
    return 0;
}

/* Where weights multiply the experts' inputs (model.experts_scores input). */
static int check_input(const struct plait_model_config *m,
                       struct plait_error *err)
{
    const char *key = plait_model_factor(m->experts_scale) != 1 ? "scale"
                      : m->experts_weights                      ? "weights"
                      : m->experts_capacity > 0                 ? "capacity"
                      : m->experts_groups > 1                   ? "groups"
                                                                : NULL;

    if (m->experts_scores != PLAIT_SCORES_INPUT || !key)
        return 0;
    return plait_errorf(err,
                        "model.experts_scores input with model.experts_%s: "
                        "plait-train cannot combine the two",
                        key);
}

int plait_fits_scores(const struct plait_model_config *m,
                      struct plait_error *err)
{
    const char *key = find_idle_key(m);

    errno = EINVAL;
    if (key)
        return plait_errorf(err,
                            "model.experts_%s: model.experts is 0, the model "
                            "has none",
                            key);
    if (m->experts_balance_rate > 0 &&
        m->experts_scores != PLAIT_SCORES_SIGMOID)
        return plait_errorf(err,
                            "model.experts_balance_rate: "
                            "model.experts_scores must be sigmoid, not %s",
                            m->experts_scores ? "input" : "softmax");
    if (check_input(m, err) < 0)
        return -1;
    return check_groups(m, err);
}

/* Latent attention of one kind: that of DeepSeek-V3. */
static int check_latent(const struct plait_model_config *m,
                        struct plait_error *err)
{
    const char *key =
        m->qk_norm          ? "qk_norm"
        : m->attention_bias ? "attention_bias"
        : m->mup            ? "mup"
        : m->norm_plus_one  ? "norm_plus_one"
        : m->head_dim && m->head_dim != plait_model_head_dim(m) ? "head_dim"
        : m->rope_columns && m->rope_columns != m->mla_rope     ? "rope_columns"
                                                                : NULL;

    if (!m->mla_kv)
        return 0;
    if (m->kv_heads != m->heads)
        return plait_errorf(err,
                            "model.mla with model.kv_heads %d: set "
                            "model.kv_heads to model.heads %d, as each head "
                            "has a key and a value of its own",
                            m->kv_heads, m->heads);
    if (key)
        return plait_errorf(err,
                            "model.mla with model.%s: plait-train "
                            "cannot combine the two",
                            key);
    if (m->mla_rope < 2 || m->mla_rope % 2)
        return plait_errorf(err,
                            "model.mla: a head has %d columns with rotary "
                            "positions; plait-train needs an even number of "
                            "at least 2",
                            m->mla_rope);
    if (m->mla_value > plait_model_head_dim(m))
        return plait_errorf(err,
                            "model.mla: heads of %d values are wider than the "
                            "%d columns of those of q and k, which plait-train "
                            "does not train",
                            m->mla_value, plait_model_head_dim(m));
    return 0;
}

/* Settings of Llama 4 of which no layer makes use. */
static int check_unused(const struct plait_model_config *m,
                        struct plait_error *err)
{
    const char *key = m->qk_l2_norm        ? "qk_l2_norm"
                      : m->attention_chunk ? "attention_chunk"
                                           : NULL;

    if (m->experts_every > m->layers)
        return plait_errorf(err,
                            "model.experts_every %d is more than model.layers "
                            "%d, so no layer has experts",
                            m->experts_every, m->layers);
    if (key && m->no_rope_every == 1)
        return plait_errorf(err,
                            "model.%s: model.no_rope_every is 1, so no layer "
                            "has rotary positions",
                            key);
    if (m->attention_temperature > 0 &&
        (!m->no_rope_every || m->no_rope_every > m->layers))
        return plait_errorf(err,
                            "model.attention_temperature %g: "
                            "model.no_rope_every is %d, so all layers have "
                            "rotary positions",
                            m->attention_temperature, m->no_rope_every);
    if (!(m->attention_temperature > 0) && m->attention_temperature_floor &&
        m->attention_temperature_floor != PLAIT_TEMPERATURE_FLOOR)
        return plait_errorf(err,
                            "model.attention_temperature_floor %d: "
                            "model.attention_temperature is 0",
                            m->attention_temperature_floor);
    return 0;
}

/* What Llama 4 has beside other models, and these have beside it. */
static int check_llama4(const struct plait_model_config *m,
                        struct plait_error *err)
{
    const char *key = m->qk_l2_norm                  ? "qk_l2_norm"
                      : m->attention_temperature > 0 ? "attention_temperature"
                                                     : NULL;

    if (key && (m->mla_kv || (m->qk_l2_norm && m->qk_norm)))
        return plait_errorf(err,
                            "model.%s with model.%s: plait-train "
                            "cannot combine the two",
                            key, m->mla_kv ? "mla" : "qk_norm");
    if (m->attention_chunk && m->sliding_window)
        return plait_errorf(err,
                            "model.attention_chunk %d with "
                            "model.sliding_window %d: plait-train "
                            "cannot combine the two",
                            m->attention_chunk, m->sliding_window);
    return check_unused(m, err);
}

/* Model shapes that can only be planned. */
static int check_trained_model(const struct plait_model_config *m,
                               struct plait_error *err)
{
    if (m->norm_plus_one && m->qk_norm && m->qk_norm_whole)
        return plait_errorf(err, "model.norm_plus_one with "
                                 "model.qk_norm_whole: plait-train "
                                 "cannot combine the two");
    if (m->norm_place && m->experts)
        return plait_errorf(err, "model.norm_place after or both with "
                                 "model.experts: plait-train does not train "
                                 "norms after experts");
    if (m->norm_place && plait_model_factor(m->residual_multiplier) != 1)
        return plait_errorf(err,
                            "model.norm_place after or both with "
                            "model.residual_multiplier %g: plait-train "
                            "cannot combine the two",
                            m->residual_multiplier);
    if (m->norm_place && plait_mup_depth(m) != 1)
        return plait_errorf(err,
                            "model.norm_place after or both cannot be "
                            "combined with a model.mup_layers (%d) other than "
                            "model.layers (%d)",
                            m->mup_layers, m->layers);
    if (m->shared_experts && m->family == PLAIT_GPT2)
        return plait_errorf(err, "model.shared_experts: plait-train trains "
                                 "them in llama models, not in gpt2");
    if (m->shared_experts && m->mlp_bias)
        return plait_errorf(err, "model.mlp_bias with model.shared_experts: "
                                 "plait-train cannot combine the two");
    if (m->dense_ffn && !plait_model_dense_layers(m))
        return plait_errorf(err,
                            "model.dense_ffn %d: model.dense_layers is 0 and "
                            "model.experts_every is 0 or 1, so no layer has "
                            "an mlp of this width",
                            m->dense_ffn);
    if (check_llama4(m, err) < 0)
        return -1;
    return check_latent(m, err);
}

/* The biases of routers and the loads of experts. The counts of tokens that
 * make them are summed as gradients are, in each step over all replicas. */
static int check_balance(const struct plait_job_config *c,
                         struct plait_error *err)
{
    double rate = c->model.experts_balance_rate;
    bool batch = plait_model_counts_loads(&c->model);

    if (rate > 0 && c->parallel.grad_reduce == PLAIT_GRAD_BF16)
        return plait_errorf(err,
                            "model.experts_balance_rate %g: "
                            "parallel.grad_reduce must be fp32, not bf16, "
                            "which rounds the counts of tokens",
                            rate);
    if (batch && c->parallel.grad_reduce == PLAIT_GRAD_BF16)
        return plait_errorf(err, "model.experts_balance_over batch: "
                                 "parallel.grad_reduce must be fp32, not bf16, "
                                 "which rounds the counts of tokens");
    if (batch && plait_sync_parts(&c->sync))
        return plait_errorf(err,
                            "model.experts_balance_over batch: sync.mode must "
                            "be each, not %s: tokens are counted over all "
                            "replicas in each step",
                            plait_sync_mode_names[c->sync.mode]);
    if (c->model.experts_scores == PLAIT_SCORES_SIGMOID &&
        plait_sync_parts(&c->sync))
        return plait_errorf(err,
                            "model.experts_scores sigmoid: sync.mode must be "
                            "each, not %s: the routers' biases are counted "
                            "over all replicas in each step",
                            plait_sync_mode_names[c->sync.mode]);
    return 0;
}

/* A module that predicts a token further counts as no layer, where these count
 * by layers; and its input is the stream as it is. */
static int check_mtp(const struct plait_job_config *c, struct plait_error *err)
{
    const struct plait_model_config *m = &c->model;
    const char *with = c->optim.qk_clip > 0    ? "optim.qk_clip"
                       : c->log.histograms     ? "log.histograms"
                       : m->mup                ? "model.mup"
                       : c->sync.fragments > 1 ? "sync.fragments"
                       : m->experts_every > 1  ? "model.experts_every"
                       : m->qk_l2_norm         ? "model.qk_l2_norm"
                       : m->attention_chunk    ? "model.attention_chunk"
                       : m->attention_temperature > 0
                           ? "model.attention_temperature"
                       : plait_model_factor(m->residual_multiplier) != 1
                           ? "model.residual_multiplier"
                           : NULL;

    if (!m->mtp_layers || !with)
        return 0;
    return plait_errorf(err,
                        "model.mtp_layers %d with %s: plait-train "
                        "cannot combine the two",
                        m->mtp_layers, with);
}

int plait_fits_trainer(const struct plait_job_config *config,
                       struct plait_error *err)
{
    const struct plait_parallel_config *p = &config->parallel;
    int layers = config->model.layers;

    errno = EINVAL;
    if (p->recompute_layers && p->recompute_layers < layers)
        return plait_errorf(err,
                            "parallel.recompute_layers %d of %d: plait-train "
                            "recomputes all layers or none",
                            p->recompute_layers, layers);
    if (p->offload_layers && p->offload_layers < layers)
        return plait_errorf(err,
                            "parallel.offload_layers %d of %d: plait-train "
                            "offloads all layers or none",
                            p->offload_layers, layers);
    if (p->grad_sync != PLAIT_GRAD_BUCKETED && p->zero)
        return plait_errorf(err,
                            "parallel.grad_sync %s: parallel.zero must be "
                            "0, not %d",
                            p->grad_sync == PLAIT_GRAD_NAIVE ? "naive" : "flat",
                            p->zero);
    if (config->model.mla_kv && config->train.precision == PLAIT_FP8)
        return plait_errorf(err, "model.mla with train.precision fp8: "
                                 "plait-train trains it in bf16, fp16 and "
                                 "fp32");
    if (p->schedule == PLAIT_SCHEDULE_ZB_H1 && config->model.mla_kv &&
        config->model.experts && !plait_model_dense_layers(&config->model))
        return plait_errorf(err, "parallel.schedule zb-h1 with model.mla and "
                                 "experts in all layers: no weight gradient "
                                 "would be put off; set it to 1f1b");
    if (check_balance(config, err) < 0 || check_mtp(config, err) < 0)
        return -1;
    return check_trained_model(&config->model, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "tap.h"
#include "topology/job/job_config.h"
#include "topology/job/settings.h"

static struct plait_job_config *parse(const char *text, struct plait_error *err)
{
    err->text[0] = '\0';
    return plait_job_config_parse("f.yaml", text, strlen(text), NULL, 0, err);
}

static void defaults(void)
{
    struct plait_error err;
    struct plait_job_config *c = plait_job_config_create(NULL, NULL, 0, &err);

    ok(c != NULL, "no file: the defaults");
    ok(c->model.layers == 12 && c->model.hidden == 768 &&
           c->model.kv_heads == 12 && c->model.ffn == 3072 &&
           c->model.tie_embeddings && c->model.seq_len == 1024 &&
           !c->model.mup && !c->model.mup_layers && !c->model.mup_head_dim &&
           !c->model.mtp_layers && c->model.mtp_loss == 0.1,
       "gpt2's model");
    ok(c->parallel.layout.size[PLAIT_TP] == 1 &&
           c->parallel.layout.size[PLAIT_DP] == PLAIT_AUTO &&
           c->parallel.schedule == PLAIT_SCHEDULE_1F1B && c->sizes_given == 0 &&
           c->parallel.bucket_mib == 0,
       "parallel");
    ok(c->data.train.n == 0 && c->data.val.n == 0 && !c->data.mask_documents &&
           c->data.end_token == -1 && c->data.format == PLAIT_DATA_AUTO &&
           c->optim.kind == PLAIT_OPTIM_ADAMW &&
           c->lr.schedule == PLAIT_LR_COSINE && c->lr.decay_at.n == 0 &&
           c->lr.decay_by == 0.1 && c->lr.stable == 0.8 &&
           c->lr.warmup_from == 0 && c->checkpoint.async &&
           c->batch.growth.n == 0 && !c->batch.growth.is_auto &&
           c->train.noise == 0 && !c->train.skip_outliers &&
           c->train.search_products && !c->train.init &&
           c->checkpoint.keep == 2 && !c->checkpoint.fallback &&
           c->checkpoint.memory == 0 && c->train.check_replicas == 100 &&
           c->train.timeout == -1 && c->train.phase_timeout == 600 &&
           c->log.histograms == 0,
       "data, optim, checkpoint");
    plait_job_config_destroy(c);
    plait_job_config_destroy(NULL);
}

/* The printed section is parsed to the same model. */
static int prints_back(const struct plait_model_config *model)
{
    struct plait_job_config *c;
    struct plait_error err;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    int same;

    plait_job_config_print_model(model, out);
    fclose(out);
    c = plait_job_config_parse("printed", text, size, NULL, 0, &err);
    same = c && !memcmp(&c->model, model, sizeof(*model));
    plait_job_config_destroy(c);
    free(text);
    return same;
}

static void images(void)
{
    struct plait_error err;
    struct plait_job_config *c =
        parse("model: {family: resnet, depth: 8, input: [3, 32, 16],\n"
              "  norm: ghost, ghost_batch: 2, label_smoothing: 0.1}\n"
              "data: {mean: 0.5, std: 0.25, shift: 4, flip: true}\n",
              &err);

    ok(c && c->model.layers == 3 && c->model.width == 16 &&
           c->model.classes == 10 && c->model.seq_len == 1 &&
           c->model.image[0] == 3 && c->model.image[1] == 32 &&
           c->model.image[2] == 16 && c->model.norm == PLAIT_NORM_GHOST &&
           c->model.ghost_batch == 2 && c->model.label_smoothing == 0.1 &&
           c->data.mean == 0.5 && c->data.std == 0.25 && c->data.shift == 4 &&
           c->data.flip,
       "a resnet %s", err.text);
    plait_job_config_destroy(c);
    c = parse("model: {family: mlp, layers: 0, classes: 1, loss: squared}",
              &err);
    ok(c && c->model.layers == 0 && c->model.loss == PLAIT_LOSS_SQUARED &&
           c->model.image[0] == 1 && c->model.image[1] == 28 &&
           c->data.std == 1,
       "a linear regression %s", err.text);
    plait_job_config_destroy(c);
    c = parse("model: {family: mlp}", &err);
    ok(c && c->model.layers == 2 && c->model.width == 128, "an mlp");
    plait_job_config_destroy(c);
    c = parse("model: {family: resnet, depth: 50}", &err);
    ok(c && c->model.layers == 16 && c->model.width == 64, "50 layers");
    plait_job_config_destroy(c);
}

/* Keys that only the planner uses. */
static void planned(void)
{
    struct plait_error err;
    struct plait_job_config *c =
        parse("model: {family: llama, mla: [0, 64, 32, 16, 24], experts: 8,\n"
              "  shared_experts: 1, dense_layers: 1, dense_ffn: 300,\n"
              "  experts_scores: sigmoid, experts_scale: 2.5,\n"
              "  experts_weights: scores,\n"
              "  experts_groups: 4, experts_top_groups: 2,\n"
              "  experts_balance_rate: 0.001, experts_balance_over: batch,\n"
              "  sliding_window: 64, full_attention_every: 2}\n",
              &err);

    ok(c && c->model.mla_q == 0 && c->model.mla_kv == 64 &&
           c->model.mla_nope == 32 && c->model.mla_rope == 16 &&
           c->model.mla_value == 24 && c->model.shared_experts == 1 &&
           c->model.dense_layers == 1 && c->model.dense_ffn == 300 &&
           c->model.experts_scores == PLAIT_SCORES_SIGMOID &&
           c->model.experts_weights == PLAIT_WEIGHTS_SCORES &&
           c->model.experts_scale == 2.5 && c->model.experts_groups == 4 &&
           c->model.experts_top_groups == 2 &&
           c->model.experts_balance_rate == 0.001 &&
           c->model.experts_balance_over == PLAIT_BALANCE_BATCH &&
           c->model.full_attention_every == 2,
       "latent attention, shared experts, dense layers, windows");
    plait_job_config_destroy(c);
    c = parse("model: {family: llama, qk_l2_norm: true, attention_chunk: 64,\n"
              "  attention_temperature: 0.25, experts_every: 2,\n"
              "  experts: 8, experts_scores: input, no_rope_every: 4}\n",
              &err);
    ok(c && c->model.qk_l2_norm && c->model.attention_chunk == 64 &&
           c->model.attention_temperature == 0.25 &&
           c->model.attention_temperature_floor == 8192 &&
           c->model.experts_every == 2 &&
           c->model.experts_scores == PLAIT_SCORES_INPUT &&
           prints_back(&c->model),
       "what Llama 4 has");
    plait_job_config_destroy(c);
    c = parse("model: {family: llama, mla: [0, 64, -1, 16, 24]}", &err);
    ok(!c, "no columns below 0: %s", err.text);
}

/* The defaults of YaRN, which are not those of Llama 3's scaling. */
static void yarn(void)
{
    struct plait_error err;
    struct plait_job_config *c = parse(
        "model: {family: llama, rope_scaling: yarn, rope_factor: 4}\n", &err);

    ok(c && c->model.rope_high_freq_factor == 32 &&
           c->model.rope_low_freq_factor == 1 && c->model.rope_truncate,
       "YaRN: from 32 turns to 1, whole pairs");
    ok(c && prints_back(&c->model), "it is printed and read back");
    plait_job_config_destroy(c);
    c = parse("model: {family: llama, rope_scaling: yarn, rope_factor: 4,\n"
              "  rope_high_freq_factor: 4, rope_truncate: false}\n",
              &err);
    ok(c && c->model.rope_high_freq_factor == 4 && !c->model.rope_truncate,
       "or as given");
    plait_job_config_destroy(c);
    c = parse("model: {family: llama, rope_scaling: yarn}\n", &err);
    ok(c && !c->model.rope_truncate, "nothing is rounded by a factor of 1");
    plait_job_config_destroy(c);
    c = parse("model: {family: llama, rope_factor: 4}\n", &err);
    ok(c && c->model.rope_high_freq_factor == 4 && !c->model.rope_truncate,
       "Llama 3: from 4 turns");
    plait_job_config_destroy(c);
}

/* The number of layers of each stage. */
static void stages(void)
{
    static const int64_t want[] = {7, 8, 8, 8, 7, 0};
    struct plait_error err;
    struct plait_job_config *c = parse("model: {layers: 38}\n"
                                       "parallel: {stages: [7, 3x8, 7, 0]}\n",
                                       &err);

    ok(c && c->parallel.stages.n == 6 &&
           memcmp(c->parallel.stages.at, want, sizeof(want)) == 0,
       "stages, a run of them among them %s", err.text);
    plait_job_config_destroy(c);
    c = parse("model: {layers: 12}\n", &err);
    ok(c && c->parallel.stages.n == 0, "none by default");
    plait_job_config_destroy(c);
}

static void full(void)
{
    static const char text[] =
        "model: {family: llama, layers: 4, hidden: 256, heads: 8,\n"
        "  kv_heads: 2, vocab: 257, seq_len: 128, rope_theta: 5e5,\n"
        "  head_dim: 40, attention_bias: qkv, qk_norm: true,\n"
        "  rope_factor: 8, rope_low_freq_factor: 2,\n"
        "  rope_high_freq_factor: 3, rope_original_len: 64,\n"
        "  sliding_window: 128, full_attention_first: 1, no_rope_every: 4,\n"
        "  embedding_multiplier: 12, attention_multiplier: 0.25,\n"
        "  residual_multiplier: 0.22, logits_scaling: 8,\n"
        "  mup: 64, mup_layers: 2, mup_head_dim: 20,\n"
        "  norm_place: both, norm_plus_one: true, gate: gelu,\n"
        "  attention_softcap: 50, logit_softcap: 30,\n"
        "  dropout: 0.25, attention_dropout: 0.5,\n"
        "  qk_norm_whole: true, rope_theta_window: 300,\n"
        "  attention_sinks: true, mlp_bias: true, rope_scaling: yarn,\n"
        "  rope_truncate: true, rope_attention_factor: 1.5,\n"
        "  rope_columns: 12, mtp_layers: 1, mtp_loss: 0.3}\n"
        "data:\n"
        "  train: 'a b/*.bin'\n"
        "  val: ~\n"
        "parallel: {tp: 2, pp: 2, dp: auto, schedule: zb-h1, zero: 3,\n"
        "  recompute: full, bucket_mib: 0.5, sequence: true,\n"
        "  grad_reduce: bf16, shard_group: node}\n"
        "train: {steps: 20, global_batch: 16, micro_batch: 2,\n"
        "  precision: bf16, phase_timeout: 30,\n"
        "  seed: 18446744073709551615}\n"
        "optim: {lr: 1e-3, betas: [0.8, 0.9], clip: 0}\n"
        "lr: {schedule: linear, warmup: 5, min: 0.1, base_batch: 256,\n"
        "     scaling: sqrt}\n"
        "checkpoint:\n"
        "log: {metrics: m.jsonl, profile: traces}\n";
    struct plait_error err;
    struct plait_job_config *c = parse(text, &err);

    ok(c != NULL, "a full file reads %s", err.text);
    ok(c->model.family == PLAIT_LLAMA && c->model.kv_heads == 2 &&
           c->model.ffn == 704 && !c->model.tie_embeddings &&
           c->model.rope_theta == 5e5,
       "llama: ffn 8/3 hidden up to a multiple of 64, untied");
    ok(c->model.head_dim == 40 && c->model.attention_bias == PLAIT_BIAS_QKV &&
           c->model.qk_norm && c->model.rope_factor == 8 &&
           c->model.rope_low_freq_factor == 2 &&
           c->model.rope_high_freq_factor == 3 &&
           c->model.rope_original_len == 64 && c->model.sliding_window == 128 &&
           c->model.full_attention_first == 1 && c->model.no_rope_every == 4 &&
           c->model.embedding_multiplier == 12 &&
           c->model.attention_multiplier == 0.25 &&
           c->model.residual_multiplier == 0.22 &&
           c->model.logits_scaling == 8 && c->model.mup == 64 &&
           c->model.mup_layers == 2 && c->model.mup_head_dim == 20 &&
           c->model.attention_softcap == 50 && c->model.logit_softcap == 30 &&
           c->model.dropout == 0.25 && c->model.attention_dropout == 0.5 &&
           c->model.norm_place == PLAIT_NORMS_BOTH && c->model.norm_plus_one &&
           c->model.gate == PLAIT_GATE_GELU && c->model.qk_norm_whole &&
           c->model.rope_theta_window == 300 && c->model.rope_columns == 12 &&
           c->model.attention_sinks && c->model.mlp_bias &&
           c->model.rope_scaling == PLAIT_ROPE_YARN && c->model.rope_truncate &&
           c->model.rope_attention_factor == 1.5 && c->model.mtp_layers == 1 &&
           c->model.mtp_loss == 0.3,
       "llama: what its later versions and Qwen have");
    ok(prints_back(&c->model), "the section is printed and read back");
    ok(c->data.train.n == 1 && !c->data.train.at[0].name &&
           !strcmp(c->data.train.at[0].path, "a b/*.bin") &&
           c->data.train.at[0].weight == 1 && c->data.val.n == 0,
       "texts and null");
    ok(c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1 &&
           c->parallel.recompute == PLAIT_RECOMPUTE_FULL &&
           c->parallel.sequence && c->parallel.zero == 3 &&
           c->parallel.grad_reduce == PLAIT_GRAD_BF16 &&
           c->parallel.shard_group == PLAIT_SHARD_NODE &&
           c->parallel.grad_sync == PLAIT_GRAD_BUCKETED &&
           c->train.phase_timeout == 30 &&
           c->parallel.all_reduce == PLAIT_ALL_REDUCE_AUTO,
       "parallel");
    ok(c->sizes_given == (1u << PLAIT_TP | 1u << PLAIT_DP | 1u << PLAIT_PP),
       "which sizes were given: %#x", c->sizes_given);
    ok(c->train.seed == UINT64_MAX && c->train.precision == PLAIT_BF16,
       "the largest seed");
    ok(c->lr.base_batch == 256 && c->lr.scaling == PLAIT_LR_SCALING_SQRT,
       "what the peak of the learning rate is meant for");
    ok(c->optim.betas[0] == 0.8 && c->optim.betas[1] == 0.9 && !c->optim.clip,
       "a list of numbers");
    ok(!strcmp(c->log.profile, "traces") && !c->log.tensorboard &&
           !c->log.prometheus,
       "log");
    plait_job_config_destroy(c);
}

static void meetings(void)
{
    static const char *const set[] = {"sync.mode=sma", "sync.learners=3",
                                      "train.global_batch=24",
                                      "sync.alpha=0.25"};
    struct plait_error err;
    struct plait_job_config *c =
        parse("sync: {mode: post-local, from: 9}", &err);

    ok(c && c->sync.mode == PLAIT_SYNC_POST_LOCAL && c->sync.from == 9 &&
           plait_sync_steps(&c->sync) == 16 && c->sync.lr == 0.7 &&
           c->sync.momentum == 0.9 && c->sync.alpha < 0 &&
           c->sync.gradients == PLAIT_SYNC_FP32 && c->sync.delay == 0 &&
           c->sync.mixing < 0 && plait_sync_mixing(&c->sync) == 0.5 &&
           plait_sync_learners(&c->sync) == 1,
       "sync and its defaults %s", err.text);
    plait_job_config_destroy(c);
    c = plait_job_config_create(NULL, set, 4, &err);
    ok(c && plait_sync_learners(&c->sync) == 3 && c->sync.alpha == 0.25 &&
           plait_sync_steps(&c->sync) == 1,
       "learners %s", err.text);
    plait_job_config_destroy(c);
    c = parse("sync: {mode: sma, learners: auto}", &err);
    ok(c && c->sync.learners == PLAIT_SYNC_LEARNERS_AUTO &&
           plait_sync_learners(&c->sync) == 1,
       "learners: auto %s", err.text);
    plait_job_config_destroy(c);
    c = parse("sync: {mode: diloco, gradients: fp8, delay: 3, mixing: 0.25}",
              &err);
    ok(c && c->sync.gradients == PLAIT_SYNC_FP8 && c->sync.delay == 3 &&
           plait_sync_mixing(&c->sync) == 0.25,
       "sync.gradients, delay and mixing %s", err.text);
    plait_job_config_destroy(c);
    c = parse("{}", &err);
    ok(c && c->sync.mode == PLAIT_SYNC_EACH && !plait_sync_parts(&c->sync),
       "one model unless asked");
    plait_job_config_destroy(c);
}

static const char *value(const struct plait_settings *s, const char *key)
{
    const char *text = plait_settings_value(s, key);

    return text ? text : "";
}

/* The settings that must match a checkpoint's. */
static void settings(void)
{
    static const char text[] =
        "model: {family: resnet, norm: batch, classes: 7, input: [1, 8, 9]}\n"
        "train: {seed: 9, micro_batch: 2, steps: 7}\n"
        "batch: {growth: [[5, 64], [9, 128]]}\n"
        "parallel: {tp: 1, zero: 1}\n";
    static struct plait_settings s, t;
    struct plait_error err;
    struct plait_job_config *c = parse(text, &err);

    ok(c && plait_settings_list(c, &s) == 0 &&
           !strcmp(value(&s, "model.input"), "[1, 8, 9]") &&
           !strcmp(value(&s, "model.norm"), "batch") &&
           !strcmp(value(&s, "batch.growth"), "[5, 64, 9, 128]") &&
           !strcmp(value(&s, "train.seed"), "9") &&
           !strcmp(value(&s, "train.micro_batch"), "2") &&
           !strcmp(value(&s, "train.steps"), "7") &&
           !plait_settings_value(&s, "parallel.zero"),
       "settings of a run %s", err.text);
    plait_job_config_destroy(c);
    c = parse("train: {micro_batch: 2}", &err);
    ok(c && plait_settings_list(c, &t) == 0 && t.n == s.n - 1 &&
           t.n < PLAIT_SETTINGS_MOST / 2 + 32 &&
           !strcmp(value(&t, "model.head_dim"), "64") &&
           !plait_settings_value(&t, "train.micro_batch"),
       "%d of them", t.n);
    plait_job_config_destroy(c);
    c = parse("lr: {schedule: step, decay_at: [3]}", &err);
    ok(c && plait_settings_list(c, &t) == 0 &&
           !plait_settings_value(&t, "train.steps"),
       "no rate follows from the end of the run");
    plait_job_config_destroy(c);
    c = parse("data: {mask_documents: true, end_token: 3}", &err);
    ok(c && plait_settings_list(c, &t) == 0 &&
           !strcmp(value(&t, "data.mask_documents"), "true") &&
           !strcmp(value(&t, "data.end_token"), "3") &&
           !plait_settings_value(&s, "data.end_token"),
       "where documents end counts where they are masked %s", err.text);
    ok(plait_settings_shapes("model.layers") &&
           !plait_settings_shapes("model.norm_eps"),
       "the number of layers is a matter of shapes");
    ok(plait_settings_has_key("lr.min") &&
           plait_settings_has_key("train.micro_batch") &&
           plait_settings_has_key("train.steps") &&
           !plait_settings_has_key("train.timeout") &&
           !plait_settings_has_key("lr") && !plait_settings_has_key(""),
       "names of settings");
    plait_job_config_destroy(c);
    c = parse("checkpoint: {every: auto, dir: d}", &err);
    ok(c && c->checkpoint.every == PLAIT_CHECKPOINT_AUTO,
       "checkpoint.every auto");
    plait_job_config_destroy(c);
    c = parse("checkpoint: {memory: 10, dir: d}", &err);
    ok(c && c->checkpoint.memory == 10, "checkpoint.memory");
    plait_job_config_destroy(c);
    c = parse("checkpoint: {memory: -1}", &err);
    ok(!c && strstr(err.text, "memory must be a whole number"), "%s", err.text);
    c = parse("checkpoint: {memory: 10}", &err);
    ok(!c && strstr(err.text, "checkpoint.memory needs"), "%s", err.text);
    c = parse("checkpoint: {fallback: d}", &err);
    ok(!c && strstr(err.text, "checkpoint.fallback needs"), "%s", err.text);
}

static void lists(void)
{
    static const char text[] =
        "lr: {schedule: step, decay_at: [30, 60, 1000000000000],\n"
        "     decay_by: 0.2, warmup_shape: constant, warmup_from: 0.1}\n"
        "batch: {growth: [[100, 64], [200, 128]]}\n";
    static const char *const set[] = {"batch.growth=[[5, 8]]",
                                      "lr.schedule=wsd", "lr.decay_at=[]",
                                      "lr.stable=0.5"};
    struct plait_error err;
    struct plait_job_config *c = parse(text, &err);

    ok(c && c->lr.schedule == PLAIT_LR_STEP && c->lr.decay_at.n == 3 &&
           c->lr.decay_at.at[1] == 60 &&
           c->lr.decay_at.at[2] == INT64_C(1000000000000) &&
           c->lr.decay_by == 0.2 &&
           c->lr.warmup_shape == PLAIT_LR_WARMUP_CONSTANT &&
           c->lr.warmup_from == 0.1,
       "a list of steps %s", err.text);
    ok(c && c->batch.growth.n == 2 && c->batch.growth.at[0] == 100 &&
           c->batch.growth.at[3] == 128,
       "a list of pairs");
    plait_job_config_destroy(c);
    c = plait_job_config_parse("f", text, strlen(text), set, 4, &err);
    ok(c && c->batch.growth.n == 1 && !c->batch.growth.is_auto &&
           c->batch.growth.at[1] == 8 && c->lr.schedule == PLAIT_LR_WSD &&
           c->lr.decay_at.n == 0 && c->lr.stable == 0.5,
       "--set replaces lists %s", err.text);
    plait_job_config_destroy(c);
}

static void blends(void)
{
    static const char text[] =
        "data: {train: {a: 0.7, 'b c/*.bin': 3e-1}, val: {x.1: d, y: e},\n"
        "  mask_documents: true, end_token: 0}\n";
    static const char *const set[] = {"data.train=alone",
                                      "data.val={new-s: n}"};
    struct plait_error err;
    struct plait_job_config *c = parse(text, &err);

    ok(c && c->data.train.n == 2 && !strcmp(c->data.train.at[0].path, "a") &&
           c->data.train.at[0].weight == 0.7 &&
           !strcmp(c->data.train.at[1].path, "b c/*.bin") &&
           c->data.train.at[1].weight == 0.3,
       "a blend %s", err.text);
    ok(c && c->data.mask_documents && c->data.end_token == 0,
       "documents that end with token 0");
    ok(c && c->data.val.n == 2 && !strcmp(c->data.val.at[0].name, "x.1") &&
           !strcmp(c->data.val.at[1].path, "e"),
       "validation sets by name");
    plait_job_config_destroy(c);
    c = plait_job_config_parse("f", text, strlen(text), set, 2, &err);
    ok(c && c->data.train.n == 1 &&
           !strcmp(c->data.train.at[0].path, "alone") && c->data.val.n == 1 &&
           !strcmp(c->data.val.at[0].name, "new-s"),
       "--set replaces them %s", err.text);
    plait_job_config_destroy(c);
}

/* The data's vocabulary may take the place of the default. */
static void vocab_left_out(void)
{
    struct plait_error err = {""};
    struct plait_job_config *c;

    c = parse("data: {mask_documents: true, end_token: 151643}", &err);
    ok(c && !c->vocab_given, "no vocabulary refuses no end_token: %s",
       err.text);
    plait_job_config_destroy(c);
    c = parse("data: {mask_documents: true, end_token: 50304}\n"
              "model: {vocab: 50304}",
              &err);
    ok(!c &&
           strstr(err.text, "end_token 50304 must be below model.vocab 50304"),
       "one that is given does: %s", err.text);
}

static void following(void)
{
    static const char text[] = "batch: {growth: auto, min: 16, max: 512}\n"
                               "train: {noise: 0.5, skip_outliers: true, "
                               "search_products: false, init: start}\n";
    struct plait_error err;
    struct plait_job_config *c = parse(text, &err);

    ok(c && c->batch.growth.is_auto && c->batch.growth.n == 0 &&
           c->batch.min == 16 && c->batch.max == 512 && c->train.noise == 0.5 &&
           c->train.skip_outliers && !c->train.search_products &&
           !strcmp(c->train.init, "start") && !c->vocab_given,
       "a batch that follows the noise, and noise %s", err.text);
    plait_job_config_destroy(c);
    c = parse("batch: {growth: 'auto', max: 64}\n"
              "parallel: {tp: \"auto\", dp: 1}\n",
              &err);
    ok(c && c->batch.growth.is_auto &&
           c->parallel.layout.size[PLAIT_TP] == PLAIT_AUTO,
       "auto may stand in quotes %s", err.text);
    plait_job_config_destroy(c);
}

static void overrides(void)
{
    static const char *const set[] = {
        "train.steps=5",     "optim.betas=[0.9,0.99]", "model.family=llama",
        "log.metrics=",      "parallel.dp=4",          "optim.qk_clip=50",
        "optim.moments=bf16"};
    static const char text[] = "log: {metrics: x}\ntrain: {steps: 9}\n";
    static const struct {
        const char *set, *says;
    } bad[] = {
        {"train.steps", "--set train.steps: write SECTION.KEY=VALUE"},
        {"=3", "--set =3: write SECTION.KEY=VALUE"},
        {"train.Steps=1", "--set train.Steps=1: write SECTION.KEY=VALUE"},
        {"train.steps=x",
         "--set train.steps=x: steps must be a whole number from 1 to "
         "1000000000000, not 'x'"},
        {"train.stepz=3", "did you mean 'steps'?"},
        {"steps=3", "--set steps=3: unknown key 'steps'; it is a key of train"},
        {"parallel.steps=3",
         "unknown key 'steps' in parallel; it is a key of train"},
        {"zzz=3", "--set zzz=3: unknown key 'zzz'; the keys are model,"},
        {"model=3", "--set model=3: model must be a mapping"},
        {"train.steps=1\n  seed: 3", "write SECTION.KEY=VALUE"},
        {"train.steps=[1", "--set train.steps=[1: "},
        {"train.steps=1: 2", "--set train.steps=1: 2: steps must be a whole"},
        {"optim.betas=[1,0.5]", "must be below 1"},
    };
    struct plait_error err;
    struct plait_job_config *c;
    size_t i;

    c = plait_job_config_parse("f", text, strlen(text), set, 7, &err);
    ok(c && c->train.steps == 5 && c->optim.betas[1] == 0.99 &&
           c->optim.qk_clip == 50 && c->optim.moments == PLAIT_MOMENTS_BF16 &&
           !c->log.metrics && c->model.family == PLAIT_LLAMA &&
           !c->model.tie_embeddings && c->sizes_given == 1u << PLAIT_DP,
       "--set overrides the file, in order");
    plait_job_config_destroy(c);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        c = plait_job_config_create(NULL, &bad[i].set, 1, &err);
        ok(!c && strstr(err.text, bad[i].says) && !strchr(err.text, '\n'), "%s",
           err.text);
        plait_job_config_destroy(c);
    }
}

static const struct {
    const char *text, *says;
} refusals[] = {
    {"model: {mtp_layers: 2}",
     "mtp_layers must be a whole number from 0 to 1, not '2'"},
    {"model: {mtp_loss: 0}",
     "mtp_loss must be a number from 1e-06 to 1000, not '0'"},
    {"model:\n  layerz: 3\n",
     "f.yaml:2: unknown key 'layerz' in model; did you mean 'layers'?"},
    {"model:\n\tlayers: 3\n", "f.yaml:2: a tab; YAML is indented by spaces"},
    {"{\"step\": 1}\n{\"step\": 2}\n",
     "f.yaml:2: what begins here does not belong to the lines before"},
    {"\x7f"
     "ELF",
     "f.yaml: this is no text: a YAML file is expected"},
    {"modle: {}\n", "f.yaml:1: unknown key 'modle'; did you mean 'model'"},
    {"lr: {zzzzzzzz: 1}",
     "unknown key 'zzzzzzzz' in lr; the keys are schedule, warmup, "
     "warmup_shape, warmup_from, min, decay_at, decay_by, stable, base_batch "
     "and scaling"},
    {"\n\ntrain: {steps: many}",
     "f.yaml:3: steps must be a whole number from 1"},
    {"train: {steps: \"5\\n6\"}", "not the quoted text '5?6'"},
    {"train: {steps: '5'}", "not the quoted text '5'"},
    {"train: {steps: 5.5}", "not '5.5'"},
    {"train: {steps: 0}", "not '0'"},
    {"model: {mup: -1}", "mup must be a whole number from 0"},
    {"model: {family: mlp, mup: 8}", "model.mup is for gpt2 and llama models"},
    {"train: {phase_timeout: -1}",
     "phase_timeout must be a whole number from 0"},
    {"train: {steps: 99999999999999999999}", "not '9999"},
    {"train: {steps: }", "not nothing"},
    {"train: {steps: [1]}", "not a list"},
    {"train: {seed: -1}", "seed must be a whole number, not '-1'"},
    {"train: {precision: fp64}",
     "precision must be fp32, bf16, fp16, tf32 or fp8, not 'fp64'"},
    {"parallel: {tp: 0}",
     "tp must be \"auto\" or a whole number from 1 to 1048576, not '0'"},
    {"parallel: {sequence: 1}", "sequence must be true or false, not '1'"},
    {"optim: {betas: [0.9]}", "betas must be a list of 2 numbers from 0 to 1"},
    {"optim: {betas: [0.9, 1.5]}", "not '1.5'"},
    {"optim: {qk_clip: -1}",
     "qk_clip must be a number from 0 to 1000000, not '-1'"},
    {"optim: {lr: nan}", "lr must be a number from 0 to 1000000, not 'nan'"},
    {"optim: {lr: 1e999}", "not '1e999'"},
    {"optim: {name: sgdd}", "name must be adamw, sgd, lars, larc, lamb, "
                            "novograd, adafactor, adamw8bit, "
                            "lion, muon, soap or schedulefree, not 'sgdd'"},
    {"optim: {name: soap, momentum: 0.9}",
     "optim.momentum is not a key of optim.name soap, which takes betas, eps, "
     "frequency, max_dim, lr, weight_decay, clip and qk_clip"},
    {"model: {family: mlp}\noptim: {name: schedulefree}\n"
     "lr: {schedule: constant}",
     "optim.name schedulefree is for gpt2 and llama models"},
    {"optim: {name: soap, frequency: 0}",
     "frequency must be a whole number from 1 to 1000000000, not '0'"},
    {"optim: {frequency: 5}", "optim.frequency is not a key of optim.name"},
    {"{optim: {name: soap}, sync: {mode: local}}",
     "optim.name must be adamw, sgd or lion"},
    {"optim: {momentum: 0.5}",
     "f.yaml: optim.momentum is not a key of optim.name adamw, which takes "
     "betas, eps, lr, weight_decay, clip and qk_clip"},
    {"optim: {name: sgd, betas: [0.8, 0.9]}",
     "optim.betas is not a key of optim.name sgd, which takes momentum, "
     "nesterov, lr, weight_decay, clip and qk_clip"},
    {"optim: {name: sgd, trust: 0.1}", "optim.trust is not a key of"},
    {"optim: {name: soap, muon_heads: true}", "optim.muon_heads is not a key"},
    {"optim: {name: muon, muon_coefficients: cubic}",
     "muon_coefficients must be quintic or polar-express, not 'cubic'"},
    {"optim: {moments: bf15}",
     "moments must be fp32, bf16 or bf16-nearest, not 'bf15'"},
    {"optim: {masters: fp16}", "masters must be fp32 or bf16, not 'fp16'"},
    {"optim: {name: schedulefree, moments: bf16}",
     "optim.moments bf16: optim.name must be adamw"},
    {"optim: {muon_coefficients: quintic}",
     "optim.muon_coefficients is not a key of optim.name adamw"},
    {"optim: {name: lion, eps: 1e-6}", "optim.eps is not a key of"},
    {"optim: {name: lamb, nesterov: true}", "optim.nesterov is not a key of"},
    {"optim: {name: sgd, momentum: 1}", "optim.momentum 1 must be below 1"},
    {"optim: {name: sgd, momentum: 0, nesterov: true}",
     "optim.nesterov needs an optim.momentum above 0"},
    {"{optim: {name: lars}, parallel: {offload: optimizer}}",
     "optim.name must be adamw, sgd or lion, not lars"},
    {"data: {train: {a: 1, b: 0}}", "f.yaml:1: the weight of 'b' must be a "
                                    "number from 1e-09 to 1e+15, not '0'"},
    {"data: {train: {a: -0.5, b: 1}}",
     "the weight of 'a' must be a number from"},
    {"data: {train: {a: 1, b: half}}",
     "the weight of 'b' must be a number from"},
    {"data: {train: {a: 1, b: }}", "not nothing"},
    {"data:\n  train: {a: 1,\n    a: 2}", "f.yaml:3: train: a is given twice"},
    {"data: {train: {}}",
     "train must be a path, or a mapping of paths to weights, not a mapping"},
    {"data: {train: [a, b]}", "not a list of 2"},
    {"data: {train: {'': 1}}", "a key of train must be a path"},
    {"data: {train: {[a]: 1}}", "a key of train must be a path"},
    {"data: {val: [a]}",
     "val must be a path, or a mapping of names to paths, not a list of 1"},
    {"data: {val: {a b: x}}",
     "val: the name 'a b' must be one to 40 letters, digits, '_', '-' and '.'"},
    {"data: {val: {news: }}", "the path of 'news' must be a text, not nothing"},
    {"data: {val: {news: [x]}}",
     "the path of 'news' must be a text, not a list"},
    {"data: {val: {news: x, news: y}}", "val: news is given twice"},
    {"{model: {family: mlp}, data: {train: {a: 1, b: 1}}}",
     "data.train: an image model reads one dataset, not 2"},
    {"data: {mask_documents: 1}",
     "mask_documents must be true or false, not '1'"},
    {"{data: {mask_documents: true, end_token: 300}, model: {vocab: 257}}",
     "f.yaml: data.end_token 300 must be below model.vocab 257"},
    {"data: {end_token: -1}", "end_token must be a whole number from 0 to"},
    {"{model: {family: mlp}, data: {mask_documents: true}}",
     "data.mask_documents: images are not documents"},
    {"data: {format: parquet}",
     "format must be auto, plait, llmc, megatron, idx, "
     "cifar10 or cifar100, not 'parquet'"},
    {"lr: {schedule: square}",
     "schedule must be cosine, linear, constant, step or wsd, not 'square'"},
    {"lr: {decay_at: 5}", "decay_at must be a list of whole numbers from 1 to"},
    {"lr: {decay_at: [5, 0]}", "not '0'"},
    {"lr: {decay_at: [5, [6]]}", "not a list of 1"},
    {"lr: {schedule: step, decay_at: [5, 9, 9]}",
     "lr.decay_at: step 9 follows step 9; steps must increase"},
    {"lr: {schedule: step}", "lr.schedule step: lr.decay_at must list"},
    {"lr: {decay_at: [5]}", "lr.decay_at: lr.schedule must be step"},
    {"lr: {schedule: wsd, stable: 1.5}",
     "stable must be a number from 0 to 1, not '1.5'"},
    {"lr: {schedule: wsd, stable: -0.1}", "not '-0.1'"},
    {"lr: {warmup_from: 2}",
     "warmup_from must be a number from 0 to 1, not '2'"},
    {"lr: {warmup_shape: constant}",
     "lr.warmup_shape constant: lr.warmup_from must be above 0"},
    {"batch: {growth: 64}",
     "growth must be \"auto\" or a list of pairs of whole numbers from 1 to"},
    {"batch: {growth: [64]}",
     "growth must be a list of pairs of whole numbers"},
    {"batch: {growth: [[1, 2, 3]]}", "not a list of 3"},
    {"batch: {growth: [[1, x]]}", "growth must be a whole number from 1 to"},
    {"batch: {growth: [[0, 8]]}", "not '0'"},
    {"batch: {growth: [[5, 64], [5, 128]]}",
     "batch.growth: step 5 follows step 5; steps must increase"},
    {"batch: {growth: [[5, 64], [9, 2]]}",
     "batch.growth: the batch of 2 after step 9 is below dp 1 * "
     "train.micro_batch 4: no micro-batch for every rank"},
    {"batch: {growth: [[5, 64], [9, 72]]}\nparallel: {dp: 4}",
     "batch.growth: the batch of 72 after step 9 is not divisible by dp 4 * "
     "train.micro_batch 4"},
    {"batch: {growth: auto}", "batch.growth auto: batch.max must be given"},
    {"batch: {growth: auto, max: 16}",
     "batch.growth auto: batch.max 16 must be at least train.global_batch 32"},
    {"batch: {growth: auto, max: 64, min: 48}",
     "batch.min 48 must be at most train.global_batch 32"},
    {"batch: {max: 64}", "batch.growth must be auto"},
    {"train: {noise: -1}", "noise must be a number from 0 to 1000, not '-1'"},
    {"train: {skip_outliers: 3}",
     "skip_outliers must be true or false, not '3'"},
    {"train: {deterministic: 1}",
     "deterministic must be true or false, not '1'"},
    {"train: {search_products: auto}",
     "search_products must be true or false, not 'auto'"},
    {"batch: {growth: [[5, 99999999]]}", "is more than 16777216"},
    {"data: {train: {a: b}}", "the weight of 'a' must be a number from"},
    {"checkpoint: {dir: {a: b}}", "dir must be a text, not a mapping"},
    {"checkpoint: {every: -1}",
     "every must be \"auto\" or a whole number from 0"},
    {"data: {train: \"a\\0b\"}", "train must be a text"},
    {"train: {steps: 1, steps: 2}", "f.yaml:1: steps is given twice"},
    {"- a\n- b\n", "the document must be a mapping of keys to values, not a"},
    {"[[a]: b]", "f.yaml:1: "},
    {"? [a]\n: b\n", "f.yaml:1: a key must be a plain word"},
    {"model: [", "f.yaml:2: did not find expected node content"},
    {"a: b: c\n", "f.yaml:1: mapping values are not allowed"},
    {"model: {}\n---\nmodel: {}\n", "f.yaml:3: a second document"},
    {"model: {}\n", "f.yaml:1: model: is empty; say its family"},
    {"model:\ntrain: {}\n", "f.yaml:1: model: is empty; say its family"},
    {"model: *nowhere\n", "f.yaml:1: "},
    {"model: &m {family: *m}\n", "f.yaml:1: "},
    {"model: {heads: 7}",
     "f.yaml: model.hidden 768 is not divisible by model.heads 7"},
    {"model: {family: llama, kv_heads: 5}", "model.kv_heads 5"},
    {"model: {kv_heads: 6}", "model.kv_heads 6 must be model.heads 12"},
    {"model: {family: llama, hidden: 36}", "must be even"},
    {"train: {global_batch: 30}",
     "train.global_batch 30 is not divisible by train.micro_batch 4"},
    {"parallel: {dp: 3}", "dp 3 * train.micro_batch 4"},
    {"parallel: {virtual: 2}", "parallel.schedule must be interleaved"},
    {"parallel: {stages: 12}",
     "stages must be a list of whole numbers, or of runs"},
    {"parallel: {stages: [13, -1]}", "from 0 to 1048576, not '-1'"},
    {"parallel: {stages: [0x3]}", "not '0x3'"},
    {"parallel: {stages: [2x]}", "not '2x'"},
    {"parallel: {stages: [65537x0]}", "not '65537x0'"},
    {"parallel: {stages: [65536x0, 1]}", "f.yaml:1: stages must be a list"},
    {"parallel: {stages: [5, 6]}", "have 11 layers, and model.layers is 12"},
    {"parallel: {stages: [6, 0, 6]}", "stage 2 of 3 has no layer"},
    {"parallel: {ep: 2}", "there are no experts"},
    {"model: {experts: 1}", "model.experts_top_k 2 must be from 1 to"},
    {"model: {experts_balance_over: token}",
     "experts_balance_over must be sequence or batch, not 'token'"},
    {"model: {experts_weights: false}",
     "experts_weights must be shares or scores, not 'false'"},
    {"parallel: {grad_sync: naive, grad_reduce: bf16}",
     "parallel.grad_sync must be bucketed, not naive"},
    {"parallel: {all_reduce: hierarchical, zero: 2, shard_group: node}",
     "hierarchical: parallel.shard_group must be all"},
    {"parallel: {shard_group: node}", "parallel.zero must be 1, 2 or 3"},
    {"train: {loss_scale: 1024, precision: bf16}",
     "train.loss_scale 1024: train.precision must be fp16"},
    {"sync: {mode: diloco, fragments: 0}",
     "fragments must be a whole number from 1"},
    {"sync: {mode: diloco, delay: -1}", "delay must be a whole number from 0"},
    {"sync: {mode: diloco, delay: 2, mixing: 2}",
     "mixing must be a number from 0 to 1"},
    {"sync: {mode: diloco, gradients: fp4}",
     "gradients must be fp32, bf16 or fp8"},
    {"sync: {mode: local, steps: 0}",
     "f.yaml:1: steps must be a whole number from 1"},
    {"sync: {mode: sma, learners: 0}",
     "f.yaml:1: learners must be \"auto\" or a whole number from 1"},
    {"sync: {mode: sma, alpha: 1.5}",
     "f.yaml:1: alpha must be a number from 0 to 1"},
    {"sync: {mode: often}",
     "mode must be each, local, post-local, sma or diloco"},
    {"sync: {mode: post-local, from: 100}", "to below train.steps 100"},
    {"sync: {mode: post-local}", "sync.from 0 must be from 1"},
    {"{sync: {mode: local}, parallel: {zero: 1}}", "parallel.zero must be 0"},
    {"\xff\xfe\xfa", "f.yaml: this is no text"},
    {"\x01", "f.yaml: this is no text"},
};

static void refused(void)
{
    struct plait_error err;
    struct plait_job_config *c;
    size_t i;

    for (i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        c = parse(refusals[i].text, &err);
        ok(!c && strstr(err.text, refusals[i].says) && !strchr(err.text, '\n'),
           "%s", err.text);
        plait_job_config_destroy(c);
    }
    c = plait_job_config_create("/nonexistent.yaml", NULL, 0, &err);
    ok(!c && !strcmp(err.text, "/nonexistent.yaml: No such file or directory"),
       "%s", err.text);
    c = plait_job_config_create("/", NULL, 0, &err);
    ok(!c && !strcmp(err.text, "/: Is a directory"), "%s", err.text);
}

int main(void)
{
    defaults();
    images();
    planned();
    yarn();
    stages();
    full();
    meetings();
    settings();
    lists();
    blends();
    vocab_left_out();
    following();
    overrides();
    refused();
    return done_testing();
}

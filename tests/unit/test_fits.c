/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "tap.h"
#include "topology/job/fits.h"

/* A configuration that satisfies every rule with every layout below; each case
 * then changes what its rule checks. */
static void set_good(struct plait_job_config *c, struct plait_layout *l)
{
    memset(c, 0, sizeof(*c));
    c->model = (struct plait_model_config){.family = PLAIT_LLAMA,
                                           .layers = 8,
                                           .hidden = 64,
                                           .heads = 8,
                                           .kv_heads = 4,
                                           .ffn = 192,
                                           .vocab = 257,
                                           .seq_len = 32,
                                           .experts = 8,
                                           .experts_top_k = 2};
    c->parallel.schedule = PLAIT_SCHEDULE_1F1B;
    c->parallel.virtual_stages = 1;
    plait_layout_init(&c->parallel.layout);
    c->train.global_batch = 16;
    c->train.micro_batch = 2;
    c->sync.mixing = -1; /* not given */
    plait_layout_init(l);
}

/* Which function must refuse the case. */
enum rule { CONFIG, MODEL, MICRO_BATCH, TRAINER, ALL };

static int apply_rule(enum rule rule, const struct plait_job_config *c,
                      const struct plait_layout *l, struct plait_error *err)
{
    switch (rule) {
    case CONFIG:
        return plait_fits_config(c, err);
    case MODEL:
        return plait_fits_model(c, l, err);
    case MICRO_BATCH:
        return plait_fits_micro_batch(c, l, c->train.micro_batch, err);
    case TRAINER:
        return plait_fits_trainer(c, err);
    default:
        return plait_fits(c, l, err);
    }
}

static void check_rule(enum rule rule, const struct plait_job_config *c,
                       const struct plait_layout *l, const char *says)
{
    struct plait_error err = {""};
    int rc;

    errno = 0;
    rc = apply_rule(rule, c, l, &err);
    if (says)
        ok(rc == -1 && errno == EINVAL && strcmp(err.text, says) == 0, "%s",
           err.text[0] ? err.text : says);
    else
        ok(rc == 0, "fits %s", err.text);
}

/* Checks a rule at its border: the last value that fits, the first that does
 * not. */
#define CASE(rule, says, ...)           \
    do {                                \
        struct plait_job_config c;      \
        struct plait_layout l;          \
        set_good(&c, &l);               \
        __VA_ARGS__;                    \
        check_rule(rule, &c, &l, says); \
    } while (0)

#define TO_GPT2 c.model.family = PLAIT_GPT2, c.model.kv_heads = 8
#define TO_LATENT                                          \
    c.model.kv_heads = c.model.heads, c.model.mla_kv = 16, \
    c.model.mla_nope = 6, c.model.mla_rope = 2, c.model.mla_value = 8
#define AVERAGED \
    c.optim.kind = PLAIT_OPTIM_SCHEDULEFREE, c.lr.schedule = PLAIT_LR_CONSTANT

#define TO_BARE \
    c.optim.masters = PLAIT_MASTERS_BF16, c.train.precision = PLAIT_BF16

/* What is kept of a weight in bf16. */
static void check_kept(void)
{
    CASE(CONFIG,
         "optim.moments bf16: optim.name must be adamw, sgd, lars, larc, lamb, "
         "novograd or lion, not muon",
         c.optim.kind = PLAIT_OPTIM_MUON, c.optim.moments = PLAIT_MOMENTS_BF16);
    CASE(CONFIG,
         "optim.moments bf16-nearest: optim.name must be adamw, sgd, lars, "
         "larc, lamb, novograd or lion, not adamw8bit",
         c.optim.kind = PLAIT_OPTIM_ADAMW8BIT,
         c.optim.moments = PLAIT_MOMENTS_BF16_NEAREST);
    CASE(CONFIG, "optim.moments bf16 needs an optim.momentum above 0",
         c.optim.kind = PLAIT_OPTIM_SGD, c.optim.momentum = 0,
         c.optim.moments = PLAIT_MOMENTS_BF16);
    CASE(CONFIG, NULL, c.optim.kind = PLAIT_OPTIM_LAMB,
         c.optim.moments = PLAIT_MOMENTS_BF16);
    CASE(CONFIG, "optim.masters bf16: train.precision must be bf16",
         c.optim.masters = PLAIT_MASTERS_BF16, c.train.precision = PLAIT_FP8);
    CASE(CONFIG,
         "optim.masters bf16: optim.name must be adamw, sgd, lars, larc, lamb, "
         "novograd or lion",
         TO_BARE, c.optim.kind = PLAIT_OPTIM_SOAP);
    CASE(CONFIG,
         "optim.masters bf16: parallel.offload must leave the optimizer where "
         "it is",
         TO_BARE, c.parallel.offload = PLAIT_OFFLOAD_OPTIMIZER);
    CASE(CONFIG, "optim.masters bf16: sync.mode must be each", TO_BARE,
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.steps = 2);
    CASE(CONFIG, "optim.masters bf16: optim.qk_clip must be 0", TO_BARE,
         c.optim.qk_clip = 100);
    CASE(CONFIG, "optim.masters bf16: model.experts_scores must not be sigmoid",
         TO_BARE, c.model.experts = 4, c.model.experts_top_k = 1,
         c.model.experts_scores = PLAIT_SCORES_SIGMOID);
    CASE(CONFIG,
         "optim.masters bf16: model.experts_balance_over must be sequence",
         TO_BARE, c.model.experts = 4, c.model.experts_top_k = 1,
         c.model.experts_balance = 0.01,
         c.model.experts_balance_over = PLAIT_BALANCE_BATCH);
    CASE(CONFIG, NULL, TO_BARE);
}

static void check_average(void)
{
    static int64_t at[] = {3, 32};
    const struct plait_numbers grows = {.n = 1, .at = at};
    const char *follows =
        "optim.name schedulefree: lr.base_batch and batch.growth must not "
        "both be set; its average needs a rate that does not follow the batch";

    CASE(CONFIG,
         "optim.name schedulefree: lr.schedule must be constant; its average "
         "replaces the decay",
         c.optim.kind = PLAIT_OPTIM_SCHEDULEFREE);
    CASE(CONFIG, NULL, AVERAGED);
    CASE(CONFIG, follows, AVERAGED, c.lr.base_batch = 4,
         c.batch.growth = grows);
    CASE(CONFIG, follows, AVERAGED, c.lr.base_batch = 4,
         c.batch.growth.is_auto = true, c.batch.max = 1 << 10);
    CASE(CONFIG, NULL, AVERAGED, c.lr.base_batch = 4);
    CASE(CONFIG, NULL, AVERAGED, c.batch.growth = grows);
    CASE(CONFIG,
         "sync.mode local: optim.name must be adamw, sgd or lion, not "
         "schedulefree: the replicas would be averaged at weights other than "
         "those they train",
         AVERAGED, c.sync.mode = PLAIT_SYNC_LOCAL);
}

static void check_model(void)
{
    CASE(CONFIG, NULL, (void)0);
    CASE(CONFIG, "model.hidden 64 is not divisible by model.heads 7",
         c.model.heads = 7);
    CASE(CONFIG, "model.heads 8 is not divisible by model.kv_heads 3",
         c.model.kv_heads = 3);
    CASE(CONFIG, "model.kv_heads 4 must be model.heads 8 in a gpt2 model",
         c.model.family = PLAIT_GPT2);
    CASE(CONFIG, NULL, TO_GPT2);
    CASE(CONFIG,
         "model.hidden 24 / model.heads 8 = 3 must be even for rotary "
         "embeddings",
         c.model.hidden = 24);
    CASE(CONFIG, "model.head_dim 7 must be even for rotary embeddings",
         c.model.head_dim = 7);
    CASE(CONFIG, NULL, c.model.head_dim = 6, c.model.hidden = 63);
    CASE(CONFIG,
         "model.head_dim 6 must be model.hidden 64 / model.heads 8 in a gpt2 "
         "model",
         TO_GPT2, c.model.head_dim = 6);
    CASE(CONFIG, "model.qk_norm is for llama models", TO_GPT2,
         c.model.qk_norm = true);
    CASE(CONFIG,
         "model.rope_high_freq_factor 1 must be at least "
         "model.rope_low_freq_factor 2",
         c.model.rope_factor = 8, c.model.rope_low_freq_factor = 2,
         c.model.rope_high_freq_factor = 1);
    CASE(CONFIG, NULL, c.model.rope_factor = 8,
         c.model.rope_low_freq_factor = 2, c.model.rope_high_freq_factor = 2);
    CASE(CONFIG,
         "model.rope_high_freq_factor 1 must be at least "
         "model.rope_low_freq_factor 2",
         c.model.rope_factor = 8, c.model.rope_scaling = PLAIT_ROPE_YARN,
         c.model.rope_low_freq_factor = 2, c.model.rope_high_freq_factor = 1);
    CASE(CONFIG, NULL, c.model.sliding_window = c.model.seq_len);
    CASE(CONFIG, NULL, c.model.seq_len = 33, c.model.sliding_window = 32);
    CASE(TRAINER, NULL, c.model.sliding_window = c.model.seq_len);
    CASE(TRAINER, NULL, c.model.seq_len = 33, c.model.sliding_window = 32);
    CASE(CONFIG, "model.logits_scaling is for llama models", TO_GPT2,
         c.model.logits_scaling = 2);
    CASE(CONFIG,
         "model.mup_layers 2: it needs model.mup, the base's hidden "
         "(model.hidden if the width stays)",
         c.model.mup_layers = 2);
    CASE(CONFIG,
         "model.mup_head_dim 4: it needs model.mup, the base's hidden "
         "(model.hidden if the width stays)",
         c.model.mup_head_dim = 4);
    CASE(CONFIG, NULL, c.model.mup = 16, c.model.mup_layers = 2,
         c.model.mup_head_dim = 4);
    CASE(CONFIG,
         "model.mup: optim.name must be adamw, adamw8bit, lion or "
         "schedulefree, not sgd",
         c.model.mup = 16, c.optim.kind = PLAIT_OPTIM_SGD);
    CASE(CONFIG, NULL, c.model.mup = 16, c.optim.kind = PLAIT_OPTIM_LION);
    CASE(CONFIG,
         "optim.qk_clip must be 0: behind model.qk_norm the size of these "
         "weights has no effect",
         c.optim.qk_clip = 100, c.model.qk_norm = true);
    CASE(CONFIG,
         "optim.qk_clip must be 0: behind model.qk_l2_norm the size of these "
         "weights has no effect, in the layers with rotary positions",
         c.optim.qk_clip = 100, c.model.qk_l2_norm = true);
    CASE(CONFIG,
         "optim.qk_clip must be 0: model.attention_softcap bounds the logits "
         "already",
         c.optim.qk_clip = 100, c.model.attention_softcap = 50);
    CASE(CONFIG,
         "optim.qk_clip must be 0: sync.mode must be each: replicas that train "
         "apart have logits of their own",
         c.optim.qk_clip = 100, c.sync.mode = PLAIT_SYNC_LOCAL,
         c.sync.steps = 2);
    CASE(CONFIG,
         "optim.qk_clip must be 0: it is not for latent attention (model.mla)",
         c.optim.qk_clip = 100, TO_LATENT);
    CASE(CONFIG,
         "optim.muon_heads is not for latent attention (model.mla), whose "
         "heads have other widths",
         c.optim.kind = PLAIT_OPTIM_MUON, c.optim.muon_heads = true, TO_LATENT);
    CASE(CONFIG, NULL, c.optim.kind = PLAIT_OPTIM_MUON, TO_LATENT);
    CASE(CONFIG, NULL, c.optim.kind = PLAIT_OPTIM_MUON,
         c.optim.muon_heads = true);
    CASE(CONFIG, NULL, c.optim.qk_clip = 100, c.model.qk_norm = false);
    CASE(TRAINER,
         "model.norm_place after or both cannot be combined with a "
         "model.mup_layers (3) other than model.layers (8)",
         c.model.norm_place = PLAIT_NORMS_BOTH, c.model.experts = 0,
         c.model.mup = 64, c.model.mup_layers = 3);
    CASE(CONFIG, "model.attention_softcap is for llama models", TO_GPT2,
         c.model.attention_softcap = 50);
    CASE(CONFIG, "model.logit_softcap is for llama models", TO_GPT2,
         c.model.logit_softcap = 30);
    CASE(TRAINER, NULL, c.model.attention_softcap = 50,
         c.model.logit_softcap = 30);
    CASE(TRAINER, NULL, TO_GPT2, c.model.dropout = 0.1,
         c.model.attention_dropout = 0.1);
    CASE(CONFIG, "model.attention_sinks is for llama models", TO_GPT2,
         c.model.attention_sinks = true);
    CASE(TRAINER, NULL, c.model.attention_sinks = true);
    CASE(TRAINER, NULL, c.model.mtp_layers = 1);
    CASE(TRAINER,
         "model.mtp_layers 1 with optim.qk_clip: plait-train trains one "
         "without the other",
         c.model.mtp_layers = 1, c.optim.qk_clip = 100);
    CASE(TRAINER,
         "model.mtp_layers 1 with model.residual_multiplier: plait-train "
         "trains one without the other",
         c.model.mtp_layers = 1, c.model.residual_multiplier = 0.5);
    CASE(TRAINER, NULL, TO_LATENT);
    CASE(TRAINER,
         "model.mla with model.qk_norm: plait-train trains one without the "
         "other",
         TO_LATENT, c.model.qk_norm = true);
    CASE(TRAINER,
         "model.mla with model.mup: plait-train trains one without the other",
         TO_LATENT, c.model.mup = 16);
    CASE(TRAINER,
         "model.mla with model.kv_heads 4: set model.kv_heads to model.heads "
         "8, as each head has a key and a value of its own",
         TO_LATENT, c.model.kv_heads = c.model.heads / 2);
    CASE(TRAINER,
         "model.mla with train.precision fp8: plait-train trains it in bf16, "
         "fp16 and fp32",
         TO_LATENT, c.train.precision = PLAIT_FP8);
    CASE(TRAINER,
         "parallel.schedule zb-h1 with model.mla and experts in all layers: no "
         "weight gradient would be put off; set it to 1f1b",
         TO_LATENT, c.model.experts = 4, c.model.experts_top_k = 2,
         c.parallel.schedule = PLAIT_SCHEDULE_ZB_H1);
    CASE(TRAINER, NULL, TO_LATENT, c.model.experts = 4,
         c.model.experts_top_k = 2, c.model.dense_layers = 1,
         c.parallel.schedule = PLAIT_SCHEDULE_ZB_H1);
    CASE(TRAINER, NULL, TO_LATENT, c.model.hidden += 1);
    CASE(TRAINER,
         "model.mla: a head has 3 columns with rotary positions; plait-train "
         "needs an even number of at least 2",
         TO_LATENT, c.model.mla_rope = 3);
    CASE(TRAINER,
         "model.mla: heads of 9 values are wider than the 8 columns of those "
         "of q and k, which plait-train does not train",
         TO_LATENT, c.model.mla_value = 9);
    CASE(CONFIG, "model.mlp_bias is for llama models", TO_GPT2,
         c.model.mlp_bias = true);
    CASE(TRAINER,
         "model.mlp_bias with model.shared_experts: plait-train trains one "
         "without the other",
         c.model.experts = 8, c.model.shared_experts = 1,
         c.model.mlp_bias = true);
    CASE(TRAINER, NULL, c.model.experts = 8, c.model.mlp_bias = true);
    CASE(CONFIG, "model.norm_place is for llama models", TO_GPT2,
         c.model.norm_place = PLAIT_NORMS_BOTH);
    CASE(TRAINER, NULL, c.model.norm_place = PLAIT_NORMS_AFTER,
         c.model.experts = 0);
    CASE(TRAINER,
         "model.norm_place after or both with model.experts: plait-train does "
         "not train norms after experts",
         c.model.norm_place = PLAIT_NORMS_AFTER);
    CASE(TRAINER,
         "model.norm_place after or both with model.residual_multiplier 0.5: "
         "plait-train trains one without the other",
         c.model.norm_place = PLAIT_NORMS_BOTH, c.model.experts = 0,
         c.model.residual_multiplier = 0.5);
    CASE(CONFIG,
         "model.qk_norm_whole: model.qk_norm is false, the model has no such "
         "norm",
         c.model.qk_norm_whole = true);
    CASE(CONFIG,
         "model.qk_norm_whole: model.qk_norm is false, the model has no such "
         "norm",
         TO_GPT2, c.model.qk_norm_whole = true);
    CASE(TRAINER,
         "model.norm_plus_one with model.qk_norm_whole: plait-train trains one "
         "without the other",
         c.model.qk_norm = c.model.qk_norm_whole = c.model.norm_plus_one =
             true);
    CASE(CONFIG,
         "model.rope_theta_window 100: model.sliding_window is 0, no layer has "
         "a window",
         c.model.rope_theta_window = 100);
    CASE(CONFIG,
         "model.rope_theta_window 100: model.sliding_window is 0, no layer has "
         "a window",
         TO_GPT2, c.model.rope_theta_window = 100);
    CASE(CONFIG,
         "model.rope_theta_window must be 0 or a number from 1 to 1e+12, not "
         "0.5",
         c.model.sliding_window = 16, c.model.rope_theta_window = 0.5);
    CASE(CONFIG, NULL, c.model.sliding_window = 16,
         c.model.rope_theta_window = 1);
    CASE(CONFIG, "model.rope_columns is for llama models", TO_GPT2,
         c.model.rope_columns = 2);
    CASE(CONFIG,
         "model.rope_columns 3 must be even and at most the 8 columns of a "
         "head",
         c.model.rope_columns = 3);
    CASE(CONFIG, NULL, c.model.rope_columns = 8);
    CASE(CONFIG, "model.rope_long: model.rope_scaling must be longrope",
         c.model.rope_long.n = 4);
    CASE(CONFIG,
         "model.rope_long has 0 numbers; with model.rope_scaling longrope it "
         "must have 2, one for each pair of a head's 4 columns with rotary "
         "positions",
         c.model.rope_columns = 4, c.model.rope_factor = 4,
         c.model.rope_scaling = PLAIT_ROPE_LONGROPE, c.model.rope_short.n = 2);
    CASE(CONFIG,
         "model.rope_scaling longrope: model.rope_factor 1 and "
         "model.rope_original_len 40 must both be above 1",
         c.model.rope_factor = 1, c.model.rope_original_len = 40,
         c.model.rope_scaling = PLAIT_ROPE_LONGROPE, c.model.rope_short.n = 4,
         c.model.rope_long.n = 4);
    CASE(CONFIG, NULL, c.model.rope_factor = 4, c.model.rope_original_len = 40,
         c.model.rope_attention_factor = 1.5,
         c.model.rope_scaling = PLAIT_ROPE_LONGROPE, c.model.rope_short.n = 4,
         c.model.rope_long.n = 4);
    CASE(CONFIG, "model.rope_truncate: model.rope_scaling must be yarn",
         c.model.rope_factor = 8, c.model.rope_high_freq_factor = 32,
         c.model.rope_truncate = true);
    CASE(CONFIG,
         "model.rope_attention_factor: model.rope_factor must be above 1, not "
         "1, with which nothing is stretched",
         c.model.rope_factor = 1, c.model.rope_scaling = PLAIT_ROPE_YARN,
         c.model.rope_attention_factor = 1.5);
    CASE(CONFIG, NULL, c.model.rope_factor = 8,
         c.model.rope_high_freq_factor = 32,
         c.model.rope_scaling = PLAIT_ROPE_YARN, c.model.rope_truncate = true,
         c.model.rope_attention_factor = 1.5);
    CASE(CONFIG, "model.qk_l2_norm is for llama models", TO_GPT2,
         c.model.qk_l2_norm = true);
    CASE(TRAINER, NULL, c.model.qk_l2_norm = true);
    CASE(TRAINER,
         "model.qk_l2_norm with model.qk_norm: plait-train trains one without "
         "the other",
         c.model.qk_l2_norm = c.model.qk_norm = true);
    CASE(CONFIG, "model.attention_chunk is for llama models", TO_GPT2,
         c.model.attention_chunk = 4);
    CASE(TRAINER, NULL, c.model.attention_chunk = 4);
    CASE(TRAINER,
         "model.attention_chunk 4 with model.sliding_window 3: plait-train "
         "trains one without the other",
         c.model.attention_chunk = 4, c.model.sliding_window = 3);
    CASE(CONFIG, "model.attention_temperature is for llama models", TO_GPT2,
         c.model.attention_temperature = 0.1);
    CASE(TRAINER,
         "model.attention_temperature 0.1: model.no_rope_every is 0, no layer "
         "is without rotary positions",
         c.model.attention_temperature = 0.1);
    CASE(TRAINER, NULL, c.model.attention_temperature = 0.1,
         c.model.no_rope_every = 8);
    CASE(TRAINER,
         "model.attention_temperature 0.1: model.no_rope_every is 9, no layer "
         "is without rotary positions",
         c.model.attention_temperature = 0.1, c.model.no_rope_every = 9);
    CASE(TRAINER,
         "model.attention_temperature_floor 4: model.attention_temperature is "
         "0",
         c.model.attention_temperature_floor = 4);
    CASE(TRAINER, NULL, c.model.attention_temperature_floor = 8192);
    CASE(TRAINER,
         "model.qk_l2_norm: model.no_rope_every is 1, no layer has rotary "
         "positions",
         c.model.qk_l2_norm = true, c.model.no_rope_every = 1);
    CASE(TRAINER,
         "model.attention_chunk: model.no_rope_every is 1, no layer has rotary "
         "positions",
         c.model.attention_chunk = 4, c.model.no_rope_every = 1);
    CASE(TRAINER, NULL, c.model.attention_chunk = 4, c.model.no_rope_every = 2);
    CASE(CONFIG, "model.no_rope_every is for llama models", TO_GPT2,
         c.model.no_rope_every = 4);
    CASE(TRAINER,
         "model.shared_experts: plait-train trains them in llama models, not "
         "in gpt2",
         TO_GPT2, c.model.shared_experts = 1);
    CASE(TRAINER, NULL, c.model.shared_experts = 1);
    CASE(CONFIG, "model.dense_layers 9 must be at most model.layers 8",
         c.model.dense_layers = 9);
    CASE(CONFIG, NULL, c.model.dense_layers = 8);
    CASE(TRAINER, NULL, c.model.dense_layers = 2, c.model.dense_ffn = 48);
    CASE(TRAINER,
         "model.dense_ffn 48: model.dense_layers is 0 and model.experts_every "
         "is 0 or 1, no layer is that wide",
         c.model.dense_ffn = 48);
    CASE(MODEL, NULL, c.model.dense_ffn = 50, l.size[PLAIT_TP] = 4);
    CASE(MODEL, "model.dense_ffn 50 is not divisible by tp 4",
         c.model.dense_layers = 1, c.model.dense_ffn = 50,
         l.size[PLAIT_TP] = 4);
    CASE(CONFIG, "model.shared_experts: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.shared_experts = 1);
    CASE(CONFIG, "model.experts_every: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.experts_every = 2);
    CASE(CONFIG,
         "model.dense_layers 1 with model.experts_every 2: set one of them",
         c.model.dense_layers = 1, c.model.experts_every = 2);
    CASE(TRAINER, NULL, c.model.experts_every = 2, c.model.dense_ffn = 48);
    CASE(TRAINER, NULL, c.model.experts_every = 8);
    CASE(TRAINER,
         "model.experts_every 9 is more than model.layers 8, no layer has "
         "experts",
         c.model.experts_every = 9);
    CASE(CONFIG,
         "model.experts_scores input with model.experts_capacity: "
         "plait-train trains one without the other",
         c.model.experts_scores = PLAIT_SCORES_INPUT,
         c.model.experts_capacity = 1.5);
    CASE(CONFIG,
         "model.experts_scores input with model.experts_scale: plait-train "
         "trains one without the other",
         c.model.experts_scores = PLAIT_SCORES_INPUT,
         c.model.experts_scale = 2);
    CASE(CONFIG,
         "model.experts_scores input with model.experts_weights: plait-train "
         "trains one without the other",
         c.model.experts_scores = PLAIT_SCORES_INPUT,
         c.model.experts_weights = PLAIT_WEIGHTS_SCORES);
    CASE(TRAINER,
         "model.mtp_layers 1 with model.experts_every: plait-train trains one "
         "without the other",
         c.model.mtp_layers = 1, c.model.experts_every = 2);
#define SIGMOID c.model.experts_scores = PLAIT_SCORES_SIGMOID
    CASE(CONFIG, "model.experts_scores: model.experts is 0, the model has none",
         c.model.experts = 0, SIGMOID);
    CASE(CONFIG, "model.experts_scale: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.experts_scale = 2);
    CASE(CONFIG,
         "model.experts_weights: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.experts_weights = PLAIT_WEIGHTS_SCORES);
    CASE(CONFIG, NULL, c.model.experts_weights = PLAIT_WEIGHTS_SCORES,
         c.model.experts_scale = 2, c.model.experts_groups = 4,
         c.model.experts_top_groups = 2);
    CASE(CONFIG,
         "model.experts_balance_rate: model.experts_scores must be sigmoid, "
         "not softmax",
         c.model.experts_balance_rate = 0.001);
    CASE(CONFIG, "model.experts_groups: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.experts_groups = 2);
    CASE(CONFIG,
         "model.experts_groups 3 must be at most 64 and divide model.experts 8 "
         "into groups of 2 or more",
         SIGMOID, c.model.experts_groups = 3);
    CASE(CONFIG,
         "model.experts_groups 8 must be at most 64 and divide model.experts 8 "
         "into groups of 2 or more",
         SIGMOID, c.model.experts_groups = 8);
    CASE(CONFIG,
         "model.experts_top_groups 3 must be from 1 to model.experts_groups 2",
         SIGMOID, c.model.experts_groups = 2, c.model.experts_top_groups = 3);
    CASE(CONFIG,
         "model.experts_top_groups 2: model.experts_groups is 0, tokens choose "
         "from all experts",
         SIGMOID, c.model.experts_top_groups = 2);
    CASE(CONFIG,
         "model.experts_top_k 3 is more than the 2 experts of "
         "model.experts_top_groups 1",
         SIGMOID, c.model.experts_top_k = 3, c.model.experts_groups = 4,
         c.model.experts_top_groups = 1);
    CASE(CONFIG, NULL, SIGMOID, c.model.experts_groups = 4,
         c.model.experts_top_groups = 2, c.model.experts_scale = 2.5);
    CASE(TRAINER, NULL, SIGMOID, c.model.experts_balance_rate = 0.001);
    CASE(TRAINER,
         "model.experts_balance_rate 0.001: parallel.grad_reduce must be fp32, "
         "not bf16, which rounds the counts of tokens",
         SIGMOID, c.model.experts_balance_rate = 0.001,
         c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(TRAINER, NULL, SIGMOID, c.parallel.grad_reduce = PLAIT_GRAD_BF16);
#define BATCH                                           \
    c.model.experts_balance_over = PLAIT_BALANCE_BATCH, \
    c.model.experts_balance = 0.01
    CASE(CONFIG,
         "model.experts_balance_over: model.experts is 0, the model has none",
         c.model.experts = 0, BATCH);
    CASE(TRAINER, NULL, BATCH);
    CASE(TRAINER,
         "model.experts_balance_over batch: parallel.grad_reduce must be fp32, "
         "not bf16, which rounds the counts of tokens",
         BATCH, c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(TRAINER, NULL, BATCH, c.model.experts_balance = 0,
         c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(TRAINER,
         "model.experts_balance_over batch: sync.mode must be each, not local: "
         "tokens are counted over all replicas in each step",
         BATCH, c.sync.mode = PLAIT_SYNC_LOCAL);
    CASE(TRAINER,
         "model.experts_scores sigmoid: sync.mode must be each, not local: "
         "the routers' biases are counted over all replicas in each step",
         SIGMOID, c.sync.mode = PLAIT_SYNC_LOCAL);
    CASE(CONFIG,
         "model.mla has 4 numbers; it is [columns of q, of k and v, of a head "
         "without rotary positions, with them, of its values]",
         c.model.mla.n = 4);
    CASE(CONFIG, "model.mla: columns of k and v and of a head must be above 0",
         c.model.mla.n = 5);
    CASE(CONFIG, "model.experts_top_k 9 must be from 1 to model.experts 8",
         c.model.experts_top_k = 9);
    CASE(CONFIG, NULL, c.model.experts_top_k = 8);
    CASE(CONFIG, NULL, c.model.experts = 0, c.model.experts_top_k = 9);
    CASE(CONFIG, "model.layers 0: only an mlp can do without layers",
         c.model.layers = 0);
    CASE(MODEL, "model.hidden 64 is not divisible by model.heads 7",
         c.model.heads = 7);
}

static void check_stages(void)
{
    static int64_t good[] = {0, 3, 5, 0}, hole[] = {4, 0, 4};
    static int64_t few[] = {3, 4};

#define STAGES(list)                            \
    c.parallel.stages = (struct plait_numbers){ \
        .n = sizeof(list) / sizeof((list)[0]), .at = (list)}
    CASE(CONFIG, NULL, STAGES(good));
    CASE(MODEL, NULL, STAGES(good), l.size[PLAIT_PP] = 4);
    CASE(MODEL, NULL, STAGES(good), l.size[PLAIT_PP] = 2,
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2);
    CASE(MODEL,
         "parallel.stages has 4 stages, but pp 2 * parallel.virtual 1 are 2",
         STAGES(good), l.size[PLAIT_PP] = 2);
    CASE(CONFIG,
         "parallel.stages: stage 2 of 3 has no layer; only the first, which "
         "has the embedding, and the last, which has the head, can do without",
         STAGES(hole));
    CASE(CONFIG,
         "parallel.stages: its 2 stages have 7 layers, and model.layers is 8",
         STAGES(few));
}

static void check_settings(void)
{
    CASE(CONFIG,
         "parallel.virtual 2: parallel.schedule must be interleaved, not 1f1b",
         c.parallel.virtual_stages = 2);
    CASE(CONFIG,
         "parallel.offload of activations: parallel.schedule must be "
         "naive, gpipe, 1f1b or interleaved, not zb-h1, which needs them "
         "twice",
         c.parallel.schedule = PLAIT_SCHEDULE_ZB_H1,
         c.parallel.offload = PLAIT_OFFLOAD_BOTH);
    CASE(CONFIG, NULL, c.parallel.schedule = PLAIT_SCHEDULE_ZB_H1,
         c.parallel.offload = PLAIT_OFFLOAD_OPTIMIZER);
    CASE(TRAINER, "parallel.grad_sync naive: parallel.zero must be 0, not 1",
         c.parallel.grad_sync = PLAIT_GRAD_NAIVE, c.parallel.zero = 1);
    CASE(TRAINER, "parallel.grad_sync flat: parallel.zero must be 0, not 3",
         c.parallel.grad_sync = PLAIT_GRAD_FLAT, c.parallel.zero = 3);
    CASE(CONFIG, NULL, c.parallel.grad_sync = PLAIT_GRAD_FLAT,
         c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(CONFIG,
         "parallel.grad_reduce bf16: parallel.grad_sync must be bucketed, not "
         "naive",
         c.parallel.grad_sync = PLAIT_GRAD_NAIVE,
         c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(CONFIG,
         "parallel.all_reduce hierarchical: parallel.shard_group must be all "
         "and parallel.grad_sync bucketed",
         c.parallel.all_reduce = PLAIT_ALL_REDUCE_HIERARCHICAL,
         c.parallel.shard_group = PLAIT_SHARD_NODE, c.parallel.zero = 1);
    CASE(CONFIG,
         "parallel.shard_group node: parallel.zero must be 1, 2 or 3; with 0 "
         "nothing is sharded",
         c.parallel.shard_group = PLAIT_SHARD_NODE);
    CASE(CONFIG, NULL, c.parallel.shard_group = PLAIT_SHARD_NODE,
         c.parallel.zero = 1);
    CASE(CONFIG,
         "train.loss_scale 1024: train.precision must be fp16; no other "
         "precision needs one",
         c.train.loss_scale = 1024);
    CASE(CONFIG, NULL, c.train.loss_scale = 1024,
         c.train.precision = PLAIT_FP16);
}

static void check_sync(void)
{
    const char *from = "sync.mode post-local: sync.from 100 must be from 1 to "
                       "below train.steps 100";

    CASE(CONFIG, "sync.from 5: sync.mode must be post-local, not local",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.from = 5);
    CASE(CONFIG, from, c.sync.mode = PLAIT_SYNC_POST_LOCAL, c.train.steps = 100,
         c.sync.from = 100);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_POST_LOCAL, c.train.steps = 100,
         c.sync.from = 99);
    CASE(CONFIG, "sync.mode post-local: train.steps 1 must be at least 2",
         c.sync.mode = PLAIT_SYNC_POST_LOCAL, c.train.steps = 1,
         c.sync.from = 1);
    CASE(CONFIG,
         "log.histograms: log.tensorboard must name the directory that they "
         "go to",
         c.log.histograms = 10);
    CASE(CONFIG, NULL, c.log.histograms = 10, c.log.tensorboard = "tb");
    CASE(CONFIG,
         "log.histograms: sync.mode must be each, not diloco, whose replicas "
         "have gradients of their own",
         c.log.histograms = 10, c.log.tensorboard = "tb",
         c.sync.mode = PLAIT_SYNC_DILOCO);
    CASE(CONFIG, "sync.fragments 2: sync.mode must be diloco, not local",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.fragments = 2);
    CASE(CONFIG,
         "sync.fragments 9 must be at most model.layers 8 and sync.steps 500",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.fragments = 9);
    CASE(CONFIG,
         "sync.fragments 4 must be at most model.layers 8 and sync.steps 3",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.fragments = 4,
         c.sync.steps = 3);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.fragments = 4,
         c.sync.steps = 4);
    CASE(CONFIG, "sync.gradients fp8: sync.mode must be diloco, not sma",
         c.sync.mode = PLAIT_SYNC_SMA, c.sync.gradients = PLAIT_SYNC_FP8);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_DILOCO,
         c.sync.gradients = PLAIT_SYNC_BF16);
    CASE(CONFIG, "sync.delay 2: sync.mode must be diloco, not local",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.delay = 2);
    CASE(CONFIG, "sync.delay 3 must be below sync.steps 3",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.steps = 3, c.sync.delay = 3);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.steps = 3,
         c.sync.delay = 2, c.sync.mixing = 1);
    CASE(CONFIG,
         "sync.mixing 0.5: sync.delay must be at least 1, as without it there "
         "is nothing to keep",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.mixing = 0.5);
    CASE(CONFIG,
         "sync.mixing 0: sync.delay must be at least 1, as without it there "
         "is nothing to keep",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.mixing = 0);
    CASE(ALL,
         "sync.gradients fp8: dp must be below 8, not 8: so many replicas send "
         "no fewer bytes than in fp32; use that",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.gradients = PLAIT_SYNC_FP8,
         l.size[PLAIT_DP] = 8);
    CASE(ALL, NULL, c.sync.mode = PLAIT_SYNC_DILOCO,
         c.sync.gradients = PLAIT_SYNC_FP8, l.size[PLAIT_DP] = 4);
    CASE(ALL,
         "sync.gradients bf16: dp must be below 4, not 4: so many replicas "
         "send no fewer bytes than in fp32; use that",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.gradients = PLAIT_SYNC_BF16,
         l.size[PLAIT_DP] = 4);
    CASE(CONFIG,
         "sync.steps 2: sync.mode must be local, post-local, sma or diloco, "
         "not each",
         c.sync.steps = 2);
    CASE(CONFIG, NULL, c.sync.steps = 1);
    CASE(CONFIG,
         "sync.learners above 1, or auto: sync.mode must be sma, not diloco",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.learners = 2);
    CASE(CONFIG,
         "sync.mode local: parallel.zero must be 0: it would share out one "
         "optimizer state among replicas that differ",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.parallel.zero = 1);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.steps = 1,
         c.parallel.zero = 1);
    CASE(CONFIG,
         "sync.mode sma: ep must be 1: it would share out one set of experts "
         "among replicas that differ",
         c.sync.mode = PLAIT_SYNC_SMA, c.parallel.layout.size[PLAIT_EP] = 2);
    CASE(CONFIG,
         "sync.mode diloco: parallel.offload must be none or activations: it "
         "would move one optimizer state for replicas that differ",
         c.sync.mode = PLAIT_SYNC_DILOCO,
         c.parallel.offload = PLAIT_OFFLOAD_OPTIMIZER);
    CASE(CONFIG,
         "sync.mode local: optim.name must be adamw, sgd or lion: the others "
         "need norms, scales or products of many weights, which a single "
         "replica does not compute",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.optim.kind = PLAIT_OPTIM_LAMB);
    CASE(CONFIG,
         "sync.mode local: parallel.grad_sync must be bucketed or flat, not "
         "naive",
         c.sync.mode = PLAIT_SYNC_LOCAL,
         c.parallel.grad_sync = PLAIT_GRAD_NAIVE);
    CASE(CONFIG,
         "sync.mode local: parallel.all_reduce must be auto or flat, not "
         "hierarchical",
         c.sync.mode = PLAIT_SYNC_LOCAL,
         c.parallel.all_reduce = PLAIT_ALL_REDUCE_HIERARCHICAL);
    CASE(CONFIG,
         "sync.mode local: train.graph must be auto or off: the replicas' "
         "meetings are not recorded",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.train.graph = PLAIT_GRAPH_ON);
    CASE(CONFIG,
         "sync.mode sma: with sync.learners above 1, or auto, train.precision "
         "must be fp32 or bf16, not fp16: learners overflow one by one, but "
         "share a loss "
         "scale",
         c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         c.train.precision = PLAIT_FP16);
    CASE(CONFIG,
         "train.skip_outliers and batch.growth: sync.learners must be 1",
         c.sync.mode = PLAIT_SYNC_SMA,
         c.sync.learners = PLAIT_SYNC_LEARNERS_AUTO,
         c.train.skip_outliers = true);
    CASE(ALL,
         "train.global_batch 16 is not divisible by dp 4 * sync.learners 4 * "
         "train.micro_batch 2; 32 would fit",
         c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 4,
         l.size[PLAIT_DP] = 4);
    CASE(ALL, NULL, c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         l.size[PLAIT_DP] = 4);
    /* pp may come from the plan alone, which is not known yet */
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2);
    CASE(ALL, NULL, c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2, l.size[PLAIT_PP] = 4);
    CASE(ALL, "schedule interleaved: 4 micro-batches are not divisible by pp 3",
         c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2, l.size[PLAIT_PP] = 3);
}

static void check_axes(void)
{
    CASE(MODEL, NULL, l.size[PLAIT_TP] = 8);
    CASE(MODEL, "model.heads 8 is not divisible by tp 3", l.size[PLAIT_TP] = 3);
    CASE(MODEL, "model.kv_heads 6 and tp 4: one must be divisible by the other",
         c.model.hidden = 48, c.model.heads = 24, c.model.kv_heads = 6,
         l.size[PLAIT_TP] = 4);
    CASE(MODEL, "model.ffn 190 is not divisible by tp 4", c.model.ffn = 190,
         l.size[PLAIT_TP] = 4);
    CASE(MODEL, NULL, l.size[PLAIT_PP] = 8);
    CASE(MODEL, NULL, l.size[PLAIT_PP] = 10);
    CASE(MODEL,
         "model.layers 8 must be at least 9, pp 11 * parallel.virtual 1 - 2; "
         "only the embedding and the head can be stages of their own",
         l.size[PLAIT_PP] = 11);
    CASE(MODEL,
         "model.layers 8 must be at least 10, pp 4 * parallel.virtual 3 - 2; "
         "only the embedding and the head can be stages of their own",
         l.size[PLAIT_PP] = 4, c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 3);
    check_stages();
    CASE(MODEL, NULL, l.size[PLAIT_CP] = 16);
    CASE(MODEL, "model.seq_len 32 is not divisible by 2 * cp = 64",
         l.size[PLAIT_CP] = 32);
    CASE(MODEL, NULL, c.model.seq_len = 33);
    CASE(MODEL, NULL, l.size[PLAIT_EP] = 8);
    CASE(MODEL, "model.experts 8 is not divisible by ep 3",
         l.size[PLAIT_EP] = 3);
    CASE(MODEL, "ep 2, but model.experts is 0: there are no experts to spread",
         c.model.experts = 0, l.size[PLAIT_EP] = 2);
    CASE(CONFIG, "model.experts 8 is not divisible by ep 3",
         c.parallel.layout.size[PLAIT_EP] = 3);
}

/* An image model that satisfies every rule. */
#define IMAGE(name)                                                     \
    c.model.family = (name), c.model.depth = 20, c.model.layers = 9,    \
    c.model.classes = 10, c.model.ghost_batch = 2, c.model.experts = 0, \
    c.model.heads = 7

static void check_images(void)
{
    CASE(CONFIG, NULL, IMAGE(PLAIT_RESNET));
    CASE(CONFIG, NULL, IMAGE(PLAIT_MLP), c.model.layers = 0);
    CASE(CONFIG, "model.depth 21 must be 50 or 6 n + 2: 8, 14, 20, 26, 32, ...",
         IMAGE(PLAIT_RESNET), c.model.depth = 21);
    CASE(CONFIG, NULL, IMAGE(PLAIT_RESNET), c.model.depth = 50);
    CASE(CONFIG, "model.input has 2 numbers; it is [channels, height, width]",
         IMAGE(PLAIT_MLP), c.model.input.n = 2);
    CASE(CONFIG,
         "model.classes 1: model.loss must be squared; a single class "
         "leaves nothing to choose",
         IMAGE(PLAIT_MLP), c.model.classes = 1);
    CASE(CONFIG, NULL, IMAGE(PLAIT_MLP), c.model.classes = 1,
         c.model.loss = PLAIT_LOSS_SQUARED);
    CASE(CONFIG, "train.micro_batch 2 is not divisible by model.ghost_batch 3",
         IMAGE(PLAIT_RESNET), c.model.norm = PLAIT_NORM_GHOST,
         c.model.ghost_batch = 3);
    CASE(CONFIG, "model.mtp_layers: an image model predicts no tokens",
         IMAGE(PLAIT_RESNET), c.model.mtp_layers = 1);
    CASE(CONFIG, "model.dropout: an image model has no dropout",
         IMAGE(PLAIT_RESNET), c.model.dropout = 0.1);
    CASE(CONFIG, "model.attention_dropout: an image model has no dropout",
         IMAGE(PLAIT_MLP), c.model.attention_dropout = 0.1);
    CASE(CONFIG, "train.precision: an image model computes in fp32 or tf32",
         IMAGE(PLAIT_RESNET), c.train.precision = PLAIT_BF16);
    CASE(CONFIG,
         "model.norm sync: sync.mode must be each, not local, whose replicas "
         "train apart",
         IMAGE(PLAIT_RESNET), c.model.norm = PLAIT_NORM_SYNC,
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.steps = 4);
    CASE(MODEL, NULL, IMAGE(PLAIT_RESNET), l.size[PLAIT_DP] = 4,
         l.size[PLAIT_PP] = 9);
    CASE(MODEL, "tp 3: an image model is split over dp and pp alone",
         IMAGE(PLAIT_MLP), l.size[PLAIT_TP] = 3);
    CASE(MODEL, "cp 2: an image model is split over dp and pp alone",
         IMAGE(PLAIT_MLP), l.size[PLAIT_CP] = 2);
    CASE(CONFIG,
         "parallel.stages: the blocks of an image model differ; it has no "
         "such key",
         IMAGE(PLAIT_MLP), c.parallel.stages.n = 2);
    CASE(MODEL,
         "residual blocks of the resnet: 9: fewer than pp 10 * "
         "parallel.virtual 1",
         IMAGE(PLAIT_RESNET), l.size[PLAIT_PP] = 10);
}

static void check_batch(void)
{
    CASE(ALL, NULL, l.size[PLAIT_DP] = 8);
    CASE(ALL,
         "train.global_batch 15 is not divisible by train.micro_batch 2; 14 "
         "or 16 would fit, or train.micro_batch 1",
         c.train.global_batch = 15);
    CASE(ALL,
         "train.global_batch 16 is not divisible by dp 3 * train.micro_batch "
         "2; 12 or 18 would fit",
         l.size[PLAIT_DP] = 3);
    CASE(ALL,
         "train.global_batch 16 is not divisible by dp 2 * train.micro_batch "
         "16; 32 would fit, or train.micro_batch 8",
         l.size[PLAIT_DP] = 2, c.train.micro_batch = 16);
    CASE(CONFIG,
         "train.global_batch 16 is not divisible by dp 3 * train.micro_batch "
         "2; 12 or 18 would fit",
         c.parallel.layout.size[PLAIT_DP] = 3);
    CASE(CONFIG, NULL, c.parallel.layout.size[PLAIT_DP] = PLAIT_AUTO);
    CASE(ALL,
         "train.global_batch 16 is not divisible by dp 1048576 * "
         "train.micro_batch 65536",
         l.size[PLAIT_DP] = 1 << 20, c.train.micro_batch = 1 << 16);
    CASE(ALL, "model.heads 8 is not divisible by tp 3", l.size[PLAIT_TP] = 3);
}

static void check_micro_batch(void)
{
    CASE(MICRO_BATCH, NULL, c.parallel.sequence = true, l.size[PLAIT_TP] = 64);
    CASE(MICRO_BATCH,
         "parallel.sequence: micro-batch 2 * model.seq_len 32 / cp 2 is not "
         "divisible by tp 64",
         c.parallel.sequence = true, l.size[PLAIT_TP] = 64,
         l.size[PLAIT_CP] = 2);
    CASE(MICRO_BATCH, NULL, l.size[PLAIT_TP] = 64, l.size[PLAIT_CP] = 2);
    CASE(ALL,
         "parallel.sequence: micro-batch 1 * model.seq_len 2 / cp 1 is not "
         "divisible by tp 4",
         c.parallel.sequence = true, c.train.micro_batch = 1,
         c.model.seq_len = 2, l.size[PLAIT_TP] = 4);
}

static void check_schedule(void)
{
    CASE(ALL, "schedule interleaved with 2 chunks: pp must be above 1",
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2);
    CASE(ALL, NULL, c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2, l.size[PLAIT_PP] = 4);
    CASE(ALL, "schedule interleaved: 2 micro-batches are not divisible by pp 4",
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2, l.size[PLAIT_PP] = 4,
         l.size[PLAIT_DP] = 4);
}

/* The default of a vocabulary that is not given refuses nothing. */
static void check_documents(void)
{
    struct plait_error err = {""};
    struct plait_job_config found;
    struct plait_layout layout;

    CASE(CONFIG, NULL, c.data.mask_documents = true, c.data.end_token = 151643);
    CASE(CONFIG, NULL, c.data.mask_documents = true, c.data.end_token = 256,
         c.vocab_given = true);
    CASE(CONFIG, "data.end_token 151643 must be below model.vocab 257",
         c.data.mask_documents = true, c.data.end_token = 151643,
         c.vocab_given = true);
    set_good(&found, &layout);
    found.data.mask_documents = true;
    found.data.end_token = 257;
    ok(plait_fits_end_token(&found, &err) == -1 && errno == EINVAL &&
           !strcmp(err.text, "data.end_token 257 must be below model.vocab "
                             "257"),
       "a vocabulary that was found refuses a token above it: %s", err.text);
}

int main(void)
{
    check_model();
    check_kept();
    check_average();
    check_settings();
    check_sync();
    check_axes();
    check_images();
    check_batch();
    check_documents();
    check_micro_batch();
    check_schedule();
    return done_testing();
}

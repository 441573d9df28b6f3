/* SPDX-License-Identifier: Apache-2.0 */
#include "fits_case.h"

static void check_rotary(void)
{
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
    CASE(CONFIG,
         "model.rope_theta_window 100: model.sliding_window is 0, so no layer "
         "has a window",
         c.model.rope_theta_window = 100);
    CASE(CONFIG,
         "model.rope_theta_window 100: model.sliding_window is 0, so no layer "
         "has a window",
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
    CASE(CONFIG, "model.no_rope_every is for llama models", TO_GPT2,
         c.model.no_rope_every = 4);
}

/* Which tokens a token attends to. */
static void check_reach(void)
{
    CASE(CONFIG, NULL, c.model.sliding_window = c.model.seq_len);
    CASE(CONFIG, NULL, c.model.seq_len = 33, c.model.sliding_window = 32);
    CASE(TRAINER, NULL, c.model.sliding_window = c.model.seq_len);
    CASE(TRAINER, NULL, c.model.seq_len = 33, c.model.sliding_window = 32);
    CASE(CONFIG, "model.attention_chunk is for llama models", TO_GPT2,
         c.model.attention_chunk = 4);
    CASE(TRAINER, NULL, c.model.attention_chunk = 4);
    CASE(TRAINER,
         "model.attention_chunk 4 with model.sliding_window 3: plait-train "
         "cannot combine the two",
         c.model.attention_chunk = 4, c.model.sliding_window = 3);
    CASE(TRAINER,
         "model.attention_chunk: model.no_rope_every is 1, so no layer has "
         "rotary positions",
         c.model.attention_chunk = 4, c.model.no_rope_every = 1);
    CASE(TRAINER, NULL, c.model.attention_chunk = 4, c.model.no_rope_every = 2);
}

/* What is done to the scores. */
static void check_scores(void)
{
    CASE(CONFIG, "model.attention_softcap is for llama models", TO_GPT2,
         c.model.attention_softcap = 50);
    CASE(CONFIG, "model.attention_sinks is for llama models", TO_GPT2,
         c.model.attention_sinks = true);
    CASE(TRAINER, NULL, c.model.attention_sinks = true);
    CASE(CONFIG, "model.qk_l2_norm is for llama models", TO_GPT2,
         c.model.qk_l2_norm = true);
    CASE(TRAINER, NULL, c.model.qk_l2_norm = true);
    CASE(TRAINER,
         "model.qk_l2_norm with model.qk_norm: plait-train "
         "cannot combine the two",
         c.model.qk_l2_norm = c.model.qk_norm = true);
    CASE(TRAINER,
         "model.qk_l2_norm: model.no_rope_every is 1, so no layer has "
         "rotary positions",
         c.model.qk_l2_norm = true, c.model.no_rope_every = 1);
    CASE(CONFIG, "model.attention_temperature is for llama models", TO_GPT2,
         c.model.attention_temperature = 0.1);
    CASE(TRAINER,
         "model.attention_temperature 0.1: model.no_rope_every is 0, so all "
         "layers have rotary positions",
         c.model.attention_temperature = 0.1);
    CASE(TRAINER, NULL, c.model.attention_temperature = 0.1,
         c.model.no_rope_every = 8);
    CASE(TRAINER,
         "model.attention_temperature 0.1: model.no_rope_every is 9, so all "
         "layers have rotary positions",
         c.model.attention_temperature = 0.1, c.model.no_rope_every = 9);
    CASE(TRAINER,
         "model.attention_temperature_floor 4: model.attention_temperature is "
         "0",
         c.model.attention_temperature_floor = 4);
    CASE(TRAINER, NULL, c.model.attention_temperature_floor = 8192);
}

static void check_latent(void)
{
    CASE(TRAINER, NULL, TO_LATENT);
    CASE(TRAINER,
         "model.mla with model.qk_norm: plait-train "
         "cannot combine the two",
         TO_LATENT, c.model.qk_norm = true);
    CASE(TRAINER,
         "model.mla with model.mup: plait-train cannot combine the two",
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
    CASE(CONFIG,
         "model.mla has 4 numbers; it is [columns of q, of k and v, of a head "
         "without rotary positions, with them, of its values]",
         c.model.mla.n = 4);
    CASE(CONFIG, "model.mla: columns of k and v and of a head must be above 0",
         c.model.mla.n = 5);
}

int main(void)
{
    check_rotary();
    check_reach();
    check_scores();
    check_latent();
    return done_testing();
}

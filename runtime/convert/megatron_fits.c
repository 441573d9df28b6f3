/* SPDX-License-Identifier: Apache-2.0 */
/* Which models plait-convert can write for Megatron-LM. */
#include <errno.h>

#include "runtime/convert/megatron_args.h"
#include "topology/job/model_size.h"

static bool is_scaled_otherwise(const struct plait_model_config *m)
{
    return m->rope_factor > 1 &&
           (m->rope_scaling != PLAIT_ROPE_LLAMA3 ||
            m->rope_low_freq_factor != PLAIT_MEGATRON_ROPE_LOW ||
            m->rope_high_freq_factor != PLAIT_MEGATRON_ROPE_HIGH ||
            m->rope_original_len != PLAIT_MEGATRON_ROPE_LEN);
}

static int check_layout(const struct plait_model_config *m,
                        const struct plait_megatron_layout *l,
                        struct plait_error *err)
{
    errno = EINVAL;
    if (l->tp > 512 || l->pp > 512)
        return plait_errorf(err, "tp %d, pp %d: each must be at most 512",
                            l->tp, l->pp);
    if (m->kv_heads % l->tp || m->ffn % l->tp)
        return plait_errorf(err,
                            "tp %d does not divide model.kv_heads %d and "
                            "model.ffn %d",
                            l->tp, m->kv_heads, m->ffn);
    if (m->layers % l->pp)
        return plait_errorf(err, "pp %d does not divide model.layers %d", l->pp,
                            m->layers);
    return 0;
}

/* What of the model Megatron-LM's GPT lacks; NULL: nothing. */
static const char *find_lack(const struct plait_model_config *m)
{
    const char *what = NULL;

    if (m->family != PLAIT_GPT2 && m->family != PLAIT_LLAMA)
        what = "model.family other than gpt2 and llama";
    else if (m->family == PLAIT_GPT2 && m->experts)
        what = "model.experts of a gpt2";
    else if (m->experts && m->experts_capacity > 0)
        what = "model.experts_capacity that works as in plait-train";
    else if (m->family == PLAIT_LLAMA && m->attention_bias == PLAIT_BIAS_ALL)
        what = "model.attention_bias all";
    else if (m->mla_kv)
        what = "model.mla that works as in plait-train";
    else if (m->sliding_window && m->sliding_window < m->seq_len)
        what = "model.sliding_window below model.seq_len that works as in "
               "plait-train";
    else if (plait_model_multiplier(m))
        what = "multipliers, neither Granite's "
               "(model.embedding_multiplier, ...) nor those of model.mup";
    else if (m->attention_softcap > 0 || m->logit_softcap > 0)
        what = "model.attention_softcap or model.logit_softcap";
    else if (m->attention_sinks || m->mtp_layers)
        what = "model.attention_sinks or model.mtp_layers that work as in "
               "plait-train";
    else if (m->mlp_bias)
        what = "model.mlp_bias that works as in plait-train";
    else if (m->gate || m->norm_plus_one)
        what = "model.gate gelu or clamped, or model.norm_plus_one, that work "
               "as in plait-train";
    else if (m->norm_place || m->qk_norm_whole || m->rope_theta_window > 0)
        what = "model.norm_place, qk_norm_whole or rope_theta_window";
    else if (m->family == PLAIT_LLAMA && plait_model_partly_rotated(m))
        what = "model.rope_columns that work as in plait-train";
    else if (m->no_rope_every || m->qk_l2_norm || m->attention_chunk)
        what = "model.no_rope_every, qk_l2_norm or attention_chunk that work "
               "as in plait-train";
    else if (m->family == PLAIT_LLAMA && is_scaled_otherwise(m))
        what = "rope scaling but model.rope_scaling llama3 with "
               "rope_low_freq_factor 1, rope_high_freq_factor 4 and "
               "rope_original_len 8192";
    return what;
}

/* What of the experts Megatron-LM has, but plait-convert does not write. */
static const char *find_unwritten(const struct plait_model_config *m)
{
    return m->experts_scores == PLAIT_SCORES_INPUT ? "experts_scores input"
           : m->experts_scores                     ? "experts_scores sigmoid"
           : m->experts_weights                    ? "experts_weights scores"
           : m->experts_groups > 1                 ? "experts_groups"
           : plait_model_factor(m->experts_scale) != 1 ? "experts_scale"
           : m->dense_layers                           ? "dense_layers"
           : m->experts_every > 1                      ? "experts_every"
           : m->shared_experts                         ? "shared_experts"
                                                       : NULL;
}

int plait_megatron_args_possible(const struct plait_model_config *m,
                                 const struct plait_megatron_layout *layout,
                                 struct plait_error *err)
{
    const char *lack = find_lack(m);
    const char *unwritten = m->experts ? find_unwritten(m) : NULL;

    errno = EINVAL;
    if (unwritten)
        return plait_errorf(err,
                            "plait-convert does not write model.%s for "
                            "Megatron-LM",
                            unwritten);
    if (lack)
        return plait_errorf(err, "Megatron-LM's GPT has no %s", lack);
    return check_layout(m, layout, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/model_size.h"

#include <math.h>

#include "topology/job/image_shape.h"

/* Latent attention (DeepSeek-V2, arXiv 2405.04434): queries through q_rank
 * columns (0: not compressed), keys and values through kv_rank, rotary columns
 * of a key once for all heads. */
static double latent_attention(const struct plait_model_config *m)
{
    double h = m->hidden, n = m->heads;
    double q = n * (m->mla_nope + m->mla_rope);
    double queries = m->mla_q ? m->mla_q * (h + q) : h * q;

    return queries + h * (m->mla_kv + m->mla_rope) +
           m->mla_kv * n * (m->mla_nope + m->mla_value) + n * m->mla_value * h;
}

double plait_model_attention(const struct plait_model_config *m)
{
    if (m->mla_kv)
        return latent_attention(m);
    return 2.0 * m->hidden * plait_model_head_dim(m) * (m->heads + m->kv_heads);
}

static double attention_rest(const struct plait_model_config *m)
{
    double head = plait_model_head_dim(m), rest = 0;
    double q = head * m->heads, kv = head * m->kv_heads;

    if (m->mla_kv)
        return m->mla_q + m->mla_kv;
    if (m->family == PLAIT_GPT2 || m->attention_bias != PLAIT_BIAS_NONE)
        rest += q + 2 * kv;
    if (m->family == PLAIT_GPT2 || m->attention_bias == PLAIT_BIAS_ALL)
        rest += m->hidden;
    return rest + (m->qk_norm ? 2 * head : 0);
}

double plait_model_mlp(const struct plait_model_config *m, double columns)
{
    return (m->family == PLAIT_GPT2 ? 2.0 : 3.0) * m->hidden * columns;
}

int plait_model_capacity(const struct plait_model_config *m)
{
    double rows = m->experts_capacity * m->experts_top_k * m->seq_len;

    if (m->experts == 0)
        return 0;
    return (int)ceil(
        fmin(rows / m->experts, (double)m->experts_top_k * m->seq_len));
}

int plait_model_moe_layers(const struct plait_model_config *m)
{
    return m->experts ? m->layers - m->dense_layers : 0;
}

/* Matrices and biases of all layers' mlps, `experts` of each. */
static double mlps(const struct plait_model_config *m, double experts)
{
    double moe = plait_model_moe_layers(m), first = m->dense_layers, bias = 0;
    double ffn = m->dense_ffn ? m->dense_ffn : m->ffn;

    if (m->family == PLAIT_GPT2)
        bias = m->ffn + m->hidden;
    if (!m->experts)
        return m->layers * (plait_model_mlp(m, m->ffn) + bias);
    return moe * ((experts + m->shared_experts) * plait_model_mlp(m, m->ffn) +
                  experts * bias + (double)m->hidden * m->experts) +
           first * (plait_model_mlp(m, ffn) + bias);
}

double plait_model_met(const struct plait_model_config *m)
{
    double top = m->experts ? m->experts_top_k : 1;
    double moe = plait_model_moe_layers(m);
    double ffn = m->experts && m->dense_ffn ? m->dense_ffn : m->ffn;

    top += m->experts ? m->shared_experts : 0;
    return plait_model_attention(m) +
           (moe * top * plait_model_mlp(m, m->ffn) +
            (m->layers - moe) * plait_model_mlp(m, ffn)) /
               (m->layers > 0 ? m->layers : 1);
}

static double embedding_parameters(const struct plait_model_config *m)
{
    double vocab = (double)m->vocab * m->hidden;
    double places =
        m->family == PLAIT_GPT2 ? (double)m->seq_len * m->hidden : 0;

    return (m->tie_embeddings ? 1 : 2) * vocab + places;
}

static double parameters(const struct plait_model_config *m, double experts)
{
    double norm = m->family == PLAIT_GPT2 ? 2.0 * m->hidden : m->hidden;

    if (plait_is_image_model(m))
        return plait_image_parameters(m);
    return embedding_parameters(m) + mlps(m, experts) +
           m->layers *
               (plait_model_attention(m) + attention_rest(m) + 2 * norm) +
           norm;
}

double plait_model_parameters(const struct plait_model_config *m)
{
    return parameters(m, m->experts);
}

double plait_model_routed(const struct plait_model_config *m)
{
    return m->experts ? parameters(m, m->experts) - parameters(m, 0) : 0;
}

double plait_model_active(const struct plait_model_config *m)
{
    return parameters(m, m->experts ? m->experts_top_k : 0);
}

double plait_model_query_width(const struct plait_model_config *m)
{
    return m->mla_kv ? m->mla_nope + m->mla_rope : plait_model_head_dim(m);
}

double plait_model_value_width(const struct plait_model_config *m)
{
    return m->mla_kv ? m->mla_value : plait_model_head_dim(m);
}

double plait_model_score_width(const struct plait_model_config *m)
{
    return (plait_model_query_width(m) + plait_model_value_width(m)) / 2;
}

/* A row in a window of w of s tokens has w scores, after the first w rows,
 * which have fewer: 2 w / s less (w / s)^2 of what a causal mask leaves. */
double plait_model_reach(const struct plait_model_config *m)
{
    double w = m->sliding_window, full = 0, share;

    if (!m->sliding_window || m->sliding_window >= m->seq_len)
        return 1;
    if (m->full_attention_every)
        full = 1.0 / m->full_attention_every;
    share = w / m->seq_len;
    return full + (1 - full) * (2 * share - share * share);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/model_size.h"

#include <math.h>

#include "topology/job/image_shape.h"
#include "topology/job/tensors.h"

/* Weights of the linears among the rows of a layer's region, or an mlp's. */
static double linears(const struct plait_sides *z, enum plait_region_kind kind)
{
    const struct plait_tensor_row *row = NULL;
    double sum = 0;

    while ((row = plait_tensor_next(z, kind, row)))
        if (row->kind == kind && plait_tensor_is_linear(row))
            sum += plait_tensor_weights(z, row);
    return sum;
}

double plait_model_attention(const struct plait_model_config *m)
{
    struct plait_sides z;

    plait_sides_set(&z, m, 1, 0, true);
    z.has &= ~(unsigned)(PLAIT_HAS_SHARED | PLAIT_HAS_SHARED_GATE);
    return linears(&z, PLAIT_KIND_LAYER);
}

double plait_model_mlp(const struct plait_model_config *m, double columns)
{
    struct plait_sides z;

    plait_sides_set(&z, m, 1, 0, true);
    z.at[PLAIT_SIDE_FFN].whole = (size_t)columns;
    return linears(&z, PLAIT_KIND_EXPERT);
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
    return m->experts ? m->layers - plait_model_dense_layers(m) : 0;
}

int plait_model_dense_layers(const struct plait_model_config *m)
{
    int n = 0;

    for (int i = 0; i < m->layers; i++)
        n += plait_model_dense(m, i);
    return n;
}

double plait_model_met(const struct plait_model_config *m)
{
    double top = m->experts ? m->experts_top_k : 1;
    double moe = plait_model_moe_layers(m);
    double ffn = plait_model_dense_ffn(m);

    top += m->experts ? m->shared_experts : 0;
    return plait_model_attention(m) +
           (moe * top * plait_model_mlp(m, m->ffn) +
            (m->layers - moe) * plait_model_mlp(m, ffn)) /
               (m->layers > 0 ? m->layers : 1);
}

double plait_model_mtp_met(const struct plait_model_config *m)
{
    double C = m->hidden;
    double top = m->experts ? m->experts_top_k + m->shared_experts : 1;

    if (!m->mtp_layers)
        return 0;
    return C * m->vocab + 2 * C * C + C * m->experts +
           plait_model_attention(m) + top * plait_model_mlp(m, m->ffn);
}

/* What a model with experts has beside its layers' own regions, `experts` of
 * each layer; layers without have an mlp instead of a router. */
static double mlps(const struct plait_model_config *m,
                   const struct plait_sides *z, double experts)
{
    double one = plait_tensors_weights(z, PLAIT_KIND_EXPERT);
    struct plait_sides dense = *z;

    plait_sides_dense(&dense, m, 1, 0);
    return plait_model_moe_layers(m) * experts * one +
           plait_model_dense_layers(m) *
               (plait_tensors_weights(&dense, PLAIT_KIND_LAYER) -
                plait_tensors_weights(z, PLAIT_KIND_LAYER));
}

static double parameters(const struct plait_model_config *m, double experts)
{
    struct plait_sides z;
    double sum, layer;

    if (plait_is_image_model(m))
        return plait_image_parameters(m);
    plait_sides_set(&z, m, 1, 0, true);
    sum = plait_tensors_weights(&z, PLAIT_KIND_EMBEDDING) +
          plait_tensors_weights(&z, PLAIT_KIND_HEAD);
    layer = plait_tensors_weights(&z, PLAIT_KIND_LAYER);
    if (m->experts)
        sum += mlps(m, &z, experts);
    if (m->mtp_layers)
        sum +=
            layer + plait_tensors_weights(&z, PLAIT_KIND_MTP) +
            (m->experts ? experts * plait_tensors_weights(&z, PLAIT_KIND_EXPERT)
                        : 0);
    return sum + m->layers * layer;
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
    return plait_model_head_dim(m);
}

double plait_model_value_width(const struct plait_model_config *m)
{
    return m->mla_kv ? m->mla_value : plait_model_head_dim(m);
}

double plait_model_score_width(const struct plait_model_config *m)
{
    return (plait_model_query_width(m) + plait_model_value_width(m)) / 2;
}

bool plait_model_local(const struct plait_model_config *m, int layer)
{
    int every = m->full_attention_every;

    return m->sliding_window && layer >= m->full_attention_first &&
           !(every && (layer + 1) % every == 0);
}

bool plait_model_windowed(const struct plait_model_config *m, int layer)
{
    return m->sliding_window < m->seq_len && plait_model_local(m, layer);
}

double plait_model_rope_size(const struct plait_model_config *m)
{
    if (m->rope_attention_factor > 0)
        return m->rope_attention_factor;
    if (!(m->rope_factor > 1))
        return 1;
    return m->rope_scaling == PLAIT_ROPE_LONGROPE
               ? sqrt(1 + log(m->rope_factor) / log(m->rope_original_len))
               : 0.1 * log(m->rope_factor) + 1;
}

bool plait_model_rotated(const struct plait_model_config *m, int layer)
{
    int every = m->no_rope_every;

    return m->family == PLAIT_LLAMA && !(every && (layer + 1) % every == 0);
}

bool plait_model_chunked(const struct plait_model_config *m, int layer)
{
    return m->attention_chunk && m->attention_chunk < m->seq_len &&
           plait_model_rotated(m, layer);
}

const char *plait_model_llama_key(const struct plait_model_config *m)
{
    return m->mla.n || m->mla_kv          ? "mla"
           : m->attention_bias            ? "attention_bias"
           : m->qk_norm                   ? "qk_norm"
           : m->qk_l2_norm                ? "qk_l2_norm"
           : m->attention_chunk           ? "attention_chunk"
           : m->attention_temperature > 0 ? "attention_temperature"
           : m->sliding_window            ? "sliding_window"
           : m->no_rope_every             ? "no_rope_every"
           : m->rope_factor > 1           ? "rope_factor"
           : m->rope_columns              ? "rope_columns"
           : m->norm_place                ? "norm_place"
           : m->gate                      ? "gate"
           : m->norm_plus_one             ? "norm_plus_one"
           : m->attention_softcap > 0     ? "attention_softcap"
           : m->logit_softcap > 0         ? "logit_softcap"
           : m->attention_sinks           ? "attention_sinks"
           : m->mlp_bias                  ? "mlp_bias"
                                          : plait_model_multiplier(m);
}

bool plait_model_counts_loads(const struct plait_model_config *m)
{
    return m->experts && m->experts_balance > 0 &&
           m->experts_balance_over == PLAIT_BALANCE_BATCH;
}

const char *plait_model_multiplier(const struct plait_model_config *m)
{
    if (plait_model_factor(m->embedding_multiplier) != 1)
        return "embedding_multiplier";
    if (m->attention_multiplier > 0)
        return "attention_multiplier";
    if (plait_model_factor(m->residual_multiplier) != 1)
        return "residual_multiplier";
    return plait_model_factor(m->logits_scaling) != 1 ? "logits_scaling" : NULL;
}

double plait_model_chunk_share(const struct plait_model_config *m)
{
    double n = m->attention_chunk, rest = m->seq_len % m->attention_chunk;

    return ((m->seq_len - rest) * n + rest * rest) /
           ((double)m->seq_len * m->seq_len);
}

/* A row in a window of w of s tokens has w scores, after the first w rows,
 * which have fewer: 2 w / s less (w / s)^2 of what a causal mask leaves. */
double plait_model_reach(const struct plait_model_config *m)
{
    double share = (double)m->sliding_window / m->seq_len, less = 0;

    share = 2 * share - share * share;
    for (int i = 0; i < m->layers; i++)
        less += plait_model_windowed(m, i)  ? 1 - share
                : plait_model_chunked(m, i) ? 1 - plait_model_chunk_share(m)
                                            : 0;
    return less > 0 ? 1 - less / m->layers : 1;
}

/* kernels/cuda/cudnn.c: fits(), whose limits are in kernels/attention.h */
const char *plait_model_own_attention(const struct plait_job_config *c)
{
    int head = plait_model_head_dim(&c->model);

    return c->train.precision == PLAIT_FP32 || c->train.precision == PLAIT_TF32
               ? "fp32"
           : c->data.mask_documents         ? "documents"
           : c->model.attention_softcap > 0 ? "model.attention_softcap"
           : c->model.attention_dropout > 0 ? "model.attention_dropout"
           : head > 256                     ? "head_dim above 256"
           : head % 8                       ? "head_dim not a multiple of 8"
           : c->train.deterministic ? "train.deterministic, slower than cuDNN's"
                                    : NULL;
}

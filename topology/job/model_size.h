/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_MODEL_SIZE_H
#define PLAIT_TOPOLOGY_JOB_MODEL_SIZE_H

#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Weights of gpt2 and llama models. */

/* Weights of the matrices of a layer's attention, without its norms and
 * biases. */
double plait_model_attention(const struct plait_model_config *model);
/* Weights of the matrices of an mlp with this many inner columns. */
double plait_model_mlp(const struct plait_model_config *model, double columns);
/* The tokens of one sequence that one expert takes at most; 0: all. */
int plait_model_capacity(const struct plait_model_config *model);
/* Layers with experts, and in a model that has such those without. */
int plait_model_moe_layers(const struct plait_model_config *model);
int plait_model_dense_layers(const struct plait_model_config *model);
/* Their share of all layers. */
static inline double
plait_model_moe_share(const struct plait_model_config *model)
{
    return model->layers > 0
               ? (double)plait_model_moe_layers(model) / model->layers
               : 0;
}
/* Whether this layer is one of those without. */
static inline bool plait_model_dense(const struct plait_model_config *model,
                                     int layer)
{
    int every = model->experts_every;

    return model->experts && (layer < model->dense_layers ||
                              (every > 1 && (layer + 1) % every != 0));
}
/* Columns of the mlp of layers without experts. */
static inline int plait_model_dense_ffn(const struct plait_model_config *model)
{
    return model->experts && model->dense_ffn ? model->dense_ffn : model->ffn;
}
/* Columns of a head that have rotary positions, the first ones: all, where the
 * model does not say how many. */
static inline int
plait_model_rope_columns(const struct plait_model_config *model)
{
    if (model->mla_kv)
        return model->mla_rope;
    return model->rope_columns ? model->rope_columns
                               : plait_model_head_dim(model);
}
/* Writes the widths of heads and of first layers, and the columns with rotary
 * positions, for which the model may have 0. */
static inline void plait_model_fill_in(struct plait_model_config *model)
{
    model->head_dim = plait_model_head_dim(model);
    model->rope_columns = plait_model_rope_columns(model);
    if (plait_model_dense_layers(model))
        model->dense_ffn = plait_model_dense_ffn(model);
}
static inline bool
plait_model_partly_rotated(const struct plait_model_config *model)
{
    return !model->mla_kv && /* where some columns never are */
           plait_model_rope_columns(model) < plait_model_head_dim(model);
}
/* Weights of a layer's matrices that one token is multiplied with, on average
 * over the layers. */
double plait_model_met(const struct plait_model_config *model);
/* The same of all that predicts a token further (model.mtp_layers), the head's
 * matrix once more; 0 where nothing does. */
double plait_model_mtp_met(const struct plait_model_config *model);
/* Whether both ends of a pipeline have the embedding's table and sum its
 * gradient. */
static inline bool
plait_model_shares_table(const struct plait_model_config *model)
{
    return model->tie_embeddings || model->mtp_layers;
}
/* All weights; and those that take part in computing one token, the whole table
 * of the embedding among them. */
double plait_model_parameters(const struct plait_model_config *model);
double plait_model_active(const struct plait_model_config *model);
/* Weights of the experts that tokens are routed to. */
double plait_model_routed(const struct plait_model_config *model);

/* Whether each step counts how often experts are chosen over all of its tokens,
 * for the balance loss of the next one. */
bool plait_model_counts_loads(const struct plait_model_config *model);

/* What a score costs in a head: the columns of q and k, and of v, on
 * average. */
double plait_model_score_width(const struct plait_model_config *model);
/* Columns of a head's queries, and of its values. */
double plait_model_query_width(const struct plait_model_config *model);
double plait_model_value_width(const struct plait_model_config *model);
/* Whether this layer has a sliding window, however long sequences are. */
bool plait_model_local(const struct plait_model_config *model, int layer);
/* Whether its attention reaches fewer tokens than a sequence has, and whether
 * it has rotary positions. */
bool plait_model_windowed(const struct plait_model_config *model, int layer);
bool plait_model_rotated(const struct plait_model_config *model, int layer);
/* Whether its attention stays within runs that are shorter than a sequence. */
bool plait_model_chunked(const struct plait_model_config *model, int layer);
/* By what YaRN and LongRoPE (arXiv 2402.13753) multiply queries and keys: so
 * that scores of longer texts are as sharp, unless the model says otherwise. */
double plait_model_rope_size(const struct plait_model_config *model);
/* The key of something that only llama models have; NULL: the model has
 * nothing of the kind. */
const char *plait_model_llama_key(const struct plait_model_config *model);
/* The key of a constant that other models lack (Granite); NULL: it has none. */
const char *plait_model_multiplier(const struct plait_model_config *model);
/* attention_temperature_floor where it is not given. */
enum { PLAIT_TEMPERATURE_FLOOR = 8192 };
/* Share of a causal mask's scores that runs of attention_chunk, above 0 and at
 * most seq_len, leave: each has (tokens)^2 / 2, the last may be shorter. */
double plait_model_chunk_share(const struct plait_model_config *model);
/* Share of a causal mask's scores that sliding windows and chunks leave, on
 * average over the layers. */
double plait_model_reach(const struct plait_model_config *model);
/* Why Plait's own kernels compute attention on a GPU that has cuDNN, as the
 * start of a run says it; NULL: cuDNN does. It has no backward of wide heads
 * (PLAIT_WIDE_HEAD and more) but on Hopper. */
enum { PLAIT_WIDE_HEAD = 129 };
const char *plait_model_own_attention(const struct plait_job_config *config);

#ifdef __cplusplus
}
#endif

#endif

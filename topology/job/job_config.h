/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_JOB_CONFIG_H
#define PLAIT_TOPOLOGY_JOB_JOB_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "topology/api/plait/config.h"
#include "topology/base/error.h"
#include "topology/base/numbers.h"
#include "topology/base/parts.h"
#include "topology/job/framework.h"
#include "topology/job/optimizers.h"
#include "topology/job/schedule.h"
#include "topology/job/sync.h"
#include "topology/layout/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The configuration of plait-train, plait.yaml(5), as one plain struct. The
 * planner reads it too (plait estimate --model F), so it lives here. */

enum plait_family { PLAIT_GPT2, PLAIT_LLAMA, PLAIT_MLP, PLAIT_RESNET };
extern const char *const plait_family_names[PLAIT_RESNET + 1];

enum plait_precision {
    PLAIT_FP32,
    PLAIT_BF16,
    PLAIT_FP16,
    PLAIT_TF32, /* fp32 everywhere but inside the matrix products */
    PLAIT_FP8   /* bf16 everywhere but inside the layers' linears */
};

/* Bytes of one weight or activation: 4 or 2. */
int plait_precision_size(enum plait_precision precision);

enum plait_recompute {
    PLAIT_RECOMPUTE_NONE,
    PLAIT_RECOMPUTE_SELECTIVE, /* norms and activations; in other software
                                  attention (framework.h) */
    PLAIT_RECOMPUTE_FULL       /* keep each block's input, redo the block */
};

/* "none", "selective", "full" */
extern const char *const plait_recompute_names[PLAIT_RECOMPUTE_FULL + 1];

/* How gradients of replicated weights (zero 0) are summed. */
enum plait_grad_sync {
    PLAIT_GRAD_BUCKETED, /* piece by piece while backward still runs */
    PLAIT_GRAD_NAIVE,    /* through the first rank, after backward */
    PLAIT_GRAD_FLAT      /* one all-reduce of all of them, after backward */
};

/* The type in which gradients are reduced. */
enum plait_grad_reduce { PLAIT_GRAD_FP32, PLAIT_GRAD_BF16 };

/* How to sum over nodes that have several ranks of the group each. */
enum plait_all_reduce {
    PLAIT_ALL_REDUCE_AUTO,        /* what costs less, topology/plan/cost.h */
    PLAIT_ALL_REDUCE_FLAT,        /* as one group */
    PLAIT_ALL_REDUCE_HIERARCHICAL /* in each node, across, in each node */
};

/* The ranks over which ZeRO shards. */
enum plait_shard_group {
    PLAIT_SHARD_ALL, /* all ranks that share weights */
    PLAIT_SHARD_NODE /* those on one node; nodes are replicas */
};

/* What lives in the host's memory instead of the GPU's; bits. */
enum plait_offload {
    PLAIT_OFFLOAD_NONE,
    PLAIT_OFFLOAD_OPTIMIZER,   /* master weights and moments; the CPU steps */
    PLAIT_OFFLOAD_ACTIVATIONS, /* of a layer, from its forward to its
                                  backward */
    PLAIT_OFFLOAD_BOTH
};

/* "none", "optimizer", "activations", "both" */
extern const char *const plait_offload_names[PLAIT_OFFLOAD_BOTH + 1];

/* Whether steps are recorded as graphs of the device and repeated. */
enum plait_graph_use {
    PLAIT_GRAPH_AUTO, /* whatever can be recorded */
    PLAIT_GRAPH_ON,   /* all of a step, or the run is refused */
    PLAIT_GRAPH_OFF
};

/* Which linears of a llama model's attention have biases. */
enum plait_attention_bias {
    PLAIT_BIAS_NONE,
    PLAIT_BIAS_QKV,
    PLAIT_BIAS_ALL /* the output's too */
};

/* Where a layer of a llama model has its norms: before attention and mlp, after
 * them, so that they are of what is added to the residual stream, or both. */
enum plait_norm_place {
    PLAIT_NORMS_BEFORE,
    PLAIT_NORMS_AFTER,
    PLAIT_NORMS_BOTH
};

/* How rotary positions are stretched. */
enum plait_rope_scaling {
    PLAIT_ROPE_LLAMA3,
    PLAIT_ROPE_YARN,
    PLAIT_ROPE_LONGROPE
};

/* What the gate of a llama model's mlp goes through. */
enum plait_gate { PLAIT_GATE_SILU, PLAIT_GATE_GELU, PLAIT_GATE_CLAMPED };

/* A token's scores of the experts, from the router's logits. Of sigmoids each
 * layer has a bias for the choice alone: kernels/route.h. */
enum plait_scores {
    PLAIT_SCORES_SOFTMAX,
    PLAIT_SCORES_SIGMOID,
    PLAIT_SCORES_INPUT /* sigmoids, by which the inputs of experts are
                        * multiplied in place of their outputs (Llama 4) */
};

/* What the weights of a token's experts are: shares of the sum of its scores of
 * them, or the scores. */
enum plait_weights { PLAIT_WEIGHTS_SHARES, PLAIT_WEIGHTS_SCORES };

/* Over which tokens the balance loss counts how often each expert is chosen. */
enum plait_balance_over {
    PLAIT_BALANCE_SEQUENCE,
    PLAIT_BALANCE_BATCH /* of the step before, since that of this one is not
                         * known while its gradients are computed */
};

/* Over what a batch norm takes its statistics. */
enum plait_norm {
    PLAIT_NORM_BATCH, /* each micro-batch */
    PLAIT_NORM_GHOST, /* each ghost_batch images of it */
    PLAIT_NORM_SYNC   /* the micro-batches of all data-parallel ranks */
};

enum plait_loss { PLAIT_LOSS_CROSS_ENTROPY, PLAIT_LOSS_SQUARED };

struct plait_model_config {
    enum plait_family family;
    int layers; /* hidden ones of an mlp; of a resnet, its residual
                   blocks, which follow from the depth */
    int hidden;
    int heads;
    int kv_heads; /* default: heads */
    int head_dim; /* 0: what plait_model_head_dim() says */
    int ffn;      /* default: 4 * hidden (gpt2); 8/3 * hidden up to a
                     multiple of 64 (llama) */
    int vocab;    /* as the data has it; padding happens inside */
    int seq_len;
    bool tie_embeddings; /* default: gpt2 true, llama false */
    double rope_theta;   /* default 10000 */
    enum plait_rope_scaling rope_scaling;
    double rope_factor; /* of the scaling, see struct plait_rope_angles; 0 and
                           1: none */
    double rope_low_freq_factor;
    double rope_high_freq_factor; /* default: 4; of YaRN 32 */
    int rope_original_len;
    bool rope_truncate; /* YaRN: between whole pairs of columns; default: true
                         * of a YaRN that stretches, else false */
    double rope_attention_factor; /* YaRN's, of queries and of keys; 0: what
                                     plait_model_rope_size() says */
    struct plait_reals rope_short, rope_long; /* longrope: what divides the
                         speed of each pair of columns, in texts of at most
                         rope_original_len tokens and in longer ones */
    int rope_columns; /* of a head, the first ones, which have rotary positions;
                         0: all */
    double rope_theta_window; /* of layers with a sliding window, which then
                                 have no such scaling; 0: as the others */
    enum plait_attention_bias attention_bias;
    bool qk_norm;       /* an RMS norm of each head of q and k */
    bool qk_norm_whole; /* instead one of all heads of q, one of k's */
    bool qk_l2_norm;    /* one of each head after its rotation, without
                           weights, in layers with rotary positions */
    enum plait_norm_place norm_place;
    bool mlp_bias;      /* biases of a llama's mlps or experts, and router */
    bool norm_plus_one; /* a norm's factor is 1 + its weight, as in Gemma */
    enum plait_gate gate;
    int sliding_window;       /* how many tokens attention reaches back, the
                                 token itself among them; 0: all. Which layers
                                 have it: plait_model_windowed() */
    int full_attention_every; /* the last of so many layers reaches all tokens;
                                 0: no layer does, with a window */
    int full_attention_first; /* and so do the first ones, so many */
    int attention_chunk; /* layers with rotary positions attend within runs of
                            so many tokens; 0: they reach all */
    /* Of layers without rotary positions: queries at position p are multiplied
     * by 1 + temperature log(1 + floor((p + 1) / floor)), as Llama 4 has it; a
     * temperature of 0: by 1 */
    double attention_temperature;
    int attention_temperature_floor; /* default 8192 */
    /* Granite's constants; 0 as 1, but for attention's, where 0 is the usual
     * 1 / sqrt(head_dim): see plait_model_factor() */
    double embedding_multiplier; /* of the embedding's output */
    double attention_multiplier; /* of the scores of attention */
    double residual_multiplier;  /* of what each half of a layer adds */
    double logits_scaling;       /* by which logits are divided */
    /* The base of a maximal update parametrization (mup.h): hidden, layers and
     * head_dim there; 0: none, as many layers, as many columns */
    int mup, mup_layers, mup_head_dim;
    /* Caps, as Gemma 2 has them: x becomes cap tanh(x / cap); 0: none */
    double attention_softcap; /* of the scores of attention */
    double logit_softcap;     /* of the logits, after the scaling */
    double dropout;           /* rate of what is dropped, in training alone, of
                                 the embedding's output and of what each half
                                 of a layer adds; below 1 */
    double attention_dropout; /* and of attention's probabilities */
    bool attention_sinks;     /* a score more of each head, which is learned and
                                 whose key has no value, as in GPT-OSS */
    int no_rope_every;        /* the last of so many layers has no rotary
                                 positions; 0: all layers have them */
    struct plait_numbers mla; /* latent attention (DeepSeek): columns of q, of
                                 k and v, of a head's q and k without rotary
                                 positions and with, of its v */
    int mla_q, mla_kv, mla_nope, mla_rope, mla_value; /* the same; 0: none */
    double norm_eps;                                  /* default 1e-5 */
    int experts;                                      /* 0: dense */
    int experts_top_k;
    int shared_experts;      /* that every token takes beside the routed ones */
    int dense_layers;        /* the first ones, which have no experts */
    int experts_every;       /* or the last of so many layers has experts and
                                no other does; 0, 1: all have */
    int dense_ffn;           /* of layers without; 0: ffn */
    double experts_capacity; /* what an expert takes of a sequence at most,
                                relative to its average load; 0: no limit */
    double experts_balance;  /* weight of the load-balancing loss, which is
                                not part of the reported one; default 0.01 */
    enum plait_balance_over experts_balance_over;
    enum plait_scores experts_scores;
    enum plait_weights experts_weights;
    double experts_scale;        /* factor of the chosen experts' weights; 0 as
                                    1 */
    int experts_groups;          /* into so many equal runs experts are divided;
                                    0, 1: not */
    int experts_top_groups;      /* of which a token chooses from so many */
    double experts_balance_rate; /* by which a step moves the bias of each
                                    expert towards an even load; 0: by none */
    int mtp_layers;  /* modules that predict a token further (multi-token
                        prediction, DeepSeek-V3): 0 or 1 */
    double mtp_loss; /* the weight of their loss, which is not part of the
                        reported one; default 0.1 */
    /* Of image models alone, whose seq_len is 1, so that tokens are images. */
    int depth;                  /* of a resnet; default 20 */
    int width;                  /* of an mlp's hidden layers, default 128; of a
                                   resnet's first ones, default 16, at depth 50
                                   it is 64 */
    int classes;                /* default 10 */
    struct plait_numbers input; /* channels, height, width; empty: 1, 28, 28 */
    int image[3];               /* the same, as plain numbers */
    enum plait_norm norm;
    int ghost_batch; /* images; default 32 */
    enum plait_loss loss;
    double label_smoothing;
};

/* Columns of one head's q and k, and of its v but with latent attention. */
static inline int plait_model_head_dim(const struct plait_model_config *model)
{
    if (model->mla_kv)
        return model->mla_nope + model->mla_rope;
    return model->head_dim ? model->head_dim : model->hidden / model->heads;
}

/* A constant of the model that is 1 where it is not used. */
static inline double plait_model_factor(double constant)
{
    return constant > 0 ? constant : 1;
}

/* mlp or resnet. */
static inline bool plait_is_image_model(const struct plait_model_config *model)
{
    return model->family == PLAIT_MLP || model->family == PLAIT_RESNET;
}

/* The format of the data files, YAML key `format`. */
enum plait_data_format {
    PLAIT_DATA_AUTO, /* by the first bytes of each file */
    PLAIT_DATA_PLAIT,
    PLAIT_DATA_LLMC,
    PLAIT_DATA_MEGATRON,
    PLAIT_DATA_IDX,     /* images and, in a file beside them, labels */
    PLAIT_DATA_CIFAR10, /* label and image in turn */
    PLAIT_DATA_CIFAR100
};

struct plait_data_config {
    struct plait_parts train; /* paths or globs with weights, which are
                                 shares of their sum; none if not given */
    struct plait_parts val;   /* by name; none: no evaluation */
    enum plait_data_format format;
    double mean, std;    /* of images: (pixel / 255 - mean) / std */
    int shift;           /* pixels that a training image is moved by at most */
    bool mask_documents; /* attention and positions within documents */
    int end_token;       /* that ends a document; -1: the tokenizer's */
    bool flip; /* whether a training image may be mirrored left to right */
};

struct plait_parallel_config {
    struct plait_layout layout; /* sizes are PLAIT_AUTO where inferred */
    enum plait_schedule_kind schedule;
    int virtual_stages;          /* YAML key `virtual` */
    struct plait_numbers stages; /* layers of each stage; empty: as
                                    topology/job/stage.h cuts them */
    bool sequence;               /* sequence parallel inside the tp group */
    int zero;                    /* 0 .. 3 */
    enum plait_recompute recompute;
    int recompute_layers; /* how many are recomputed; 0: all */
    double bucket_mib;    /* 0: by the links, plait_cost_bucket() */
    enum plait_grad_sync grad_sync;
    enum plait_grad_reduce grad_reduce;
    enum plait_all_reduce all_reduce;
    enum plait_shard_group shard_group;
    enum plait_offload offload;
    int offload_layers; /* whose activations are offloaded; 0: all */
};

struct plait_train_config {
    int64_t steps;
    int global_batch; /* sequences */
    int micro_batch;  /* sequences */
    enum plait_precision precision;
    double loss_scale; /* of fp16 at first; 0: not given */
    uint64_t seed;
    enum plait_graph_use graph;
    int64_t eval_every; /* 0: never */
    int64_t eval_steps;
    int timeout;            /* seconds; 0: none; -1: learned */
    int phase_timeout;      /* seconds; 0: none */
    int64_t check_replicas; /* steps between two checks; 0: none */
    double noise; /* standard deviation of the samples' factors; 0: none */
    bool skip_outliers;
    bool deterministic;
    char *init; /* where the first weights come from; NULL: not said */
    bool search_products; /* for the fastest algorithms of matrix products, on
                             GPUs */
};

/* How the rate falls from its peak to its minimum after the warm-up. */
enum plait_lr_schedule {
    PLAIT_LR_COSINE,
    PLAIT_LR_LINEAR,
    PLAIT_LR_CONSTANT,
    PLAIT_LR_STEP, /* falls at chosen steps */
    PLAIT_LR_WSD   /* warm-up, stable, decay */
};

/* How the rate reaches its peak. */
enum plait_lr_warmup {
    PLAIT_LR_WARMUP_GRADUAL, /* linearly */
    PLAIT_LR_WARMUP_CONSTANT /* in one jump, after the warm-up */
};

/* How the peak grows with the batch. */
enum plait_lr_scaling { PLAIT_LR_SCALING_LINEAR, PLAIT_LR_SCALING_SQRT };

struct plait_lr_config {
    enum plait_lr_schedule schedule;
    int64_t warmup; /* steps */
    enum plait_lr_warmup warmup_shape;
    double warmup_from;            /* as a share of the peak, 0 .. 1 */
    double min;                    /* the same */
    struct plait_numbers decay_at; /* steps done, increasing */
    double decay_by;               /* factor at each of them */
    double stable;  /* of the steps after the warm-up, the share at the peak */
    int base_batch; /* sequences that optim.lr is meant for; 0: any */
    enum plait_lr_scaling scaling;
};

/* How the batch changes during the run. */
struct plait_batch_config {
    struct plait_numbers growth; /* pairs: steps done, sequences from then on;
                                    auto: by the gradient noise scale */
    int min, max;                /* of auto, sequences; 0: not given */
};

#define PLAIT_CHECKPOINT_AUTO (-1)
struct plait_checkpoint_config {
    char *dir;      /* NULL: no checkpoints */
    char *fallback; /* directory for what cannot be written to `dir` */
    int64_t every; /* steps; 0: only where asked for; CHECKPOINT_AUTO: chosen by
                      the cost and the failure rate */
    int keep;
    bool async;
    int64_t memory; /* steps between copies in peers' memory; 0: none */
};

struct plait_log_config {
    char *metrics;     /* JSON lines; NULL: none */
    char *tensorboard; /* directory; NULL: none */
    char *prometheus;  /* file; NULL: none */
    char *profile;     /* directory for traces; NULL: none */
    int64_t every;
    int64_t histograms; /* steps between histograms; 0: none */
};

struct plait_job_config {
    struct plait_model_config model;
    struct plait_data_config data;
    struct plait_parallel_config parallel;
    struct plait_train_config train;
    struct plait_optim_config optim;
    struct plait_lr_config lr;
    struct plait_batch_config batch;
    struct plait_sync_config sync;
    struct plait_checkpoint_config checkpoint;
    struct plait_log_config log;
    /* 1u << axis: the file (or --set) named this size, so a launch contract
     * that says otherwise is refused. */
    unsigned sizes_given;
    bool vocab_given; /* model.vocab is not its default */
    bool steps_given; /* nor is train.steps */
    /* The software whose training is planned; not keys of the file. */
    enum plait_framework framework;
    enum plait_dispatch dispatch;
    bool dispatch_hidden; /* while another micro-batch is computed */
    bool graphs;          /* a step's kernels are launched as one graph */
    bool fused_experts;   /* activation, biases and rounding of experts are part
                             of their products */
    bool fp8_attention, fp8_head; /* these products in fp8 too */
    bool tp_exposed;              /* no tp traffic is hidden behind products */
    bool messages_exposed;        /* nor messages between chunks of stages */
    unsigned recompute_modules;   /* PLAIT_MODULE_...: of selective recompute */
    bool further_left_out; /* layers of multi-token prediction, as there are
                            * more than model.mtp_layers can say */
};

/* plait_job_config_create() from memory; `name` stands for the file in
 * errors. Unknown keys, wrong types and values out of range are errors that
 * name file, line and the nearest key; what plait_fits_config() refuses
 * too. */
struct plait_job_config *plait_job_config_parse(const char *name,
                                                const char *text, size_t size,
                                                const char *const *set,
                                                int nset,
                                                struct plait_error *err);
/* The file as it is, malloc'ed, for plait_job_config_parse(). */
int plait_job_config_read(const char *path, char **text, size_t *size,
                          struct plait_error *err);

/* The table of the sections, each with that of its keys. */
struct plait_yaml_field;
const struct plait_yaml_field *plait_job_config_sections(int *n);

/* Print the section "model" as YAML, with every key. Errors of writing are
 * those of `out`. */
void plait_job_config_print_model(const struct plait_model_config *model,
                                  FILE *out);

#ifdef __cplusplus
}
#endif
#endif

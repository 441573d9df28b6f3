/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_CONFIG_H
#define PLAIT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "layout.h"
#include "schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The configuration of plait-train, plait.yaml(5), as one plain struct. The
 * planner reads it too (plait estimate --model F), so it lives here. */

enum plait_family { PLAIT_GPT2, PLAIT_LLAMA, PLAIT_MLP, PLAIT_RESNET };

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
    PLAIT_RECOMPUTE_SELECTIVE, /* attention only */
    PLAIT_RECOMPUTE_FULL       /* keep each block's input, redo the block */
};

/* How gradients of replicated weights (zero 0) are summed. */
enum plait_grad_sync {
    PLAIT_GRAD_BUCKETED, /* piece by piece while backward still runs */
    PLAIT_GRAD_NAIVE     /* through the first rank, after backward */
};

/* What gradients travel as. */
enum plait_grad_reduce { PLAIT_GRAD_FP32, PLAIT_GRAD_BF16 };

/* How a sum crosses nodes that have several of its ranks. */
enum plait_all_reduce {
    PLAIT_ALL_REDUCE_AUTO,        /* what costs less, topology/cost.h */
    PLAIT_ALL_REDUCE_FLAT,        /* as one group */
    PLAIT_ALL_REDUCE_HIERARCHICAL /* in each node, across, in each node */
};

/* Over whom ZeRO shards. */
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

/* Whether steps are recorded as graphs of the device and repeated. */
enum plait_graph_use {
    PLAIT_GRAPH_AUTO, /* what can be */
    PLAIT_GRAPH_ON,   /* all of a step, or the run is refused */
    PLAIT_GRAPH_OFF
};

struct plait_model_config {
    enum plait_family family;
    int layers;
    int hidden;
    int heads;
    int kv_heads; /* default: heads */
    int ffn;      /* default: 4 * hidden (gpt2); 8/3 * hidden up to a
                     multiple of 64 (llama) */
    int vocab;    /* as the data has it; padding happens inside */
    int seq_len;
    bool tie_embeddings; /* default: gpt2 true, llama false */
    double rope_theta;   /* default 10000 */
    double norm_eps;     /* default 1e-5 */
    int experts;         /* 0: dense */
    int experts_top_k;
    double experts_capacity; /* of an expert in a sequence, in shares of what
                                falls to it on average; 0: no limit */
    double experts_balance;  /* weight of the load-balancing loss, which is
                                not part of the reported one; default 0.01 */
};

struct plait_data_config {
    char *train;  /* path or glob; NULL if not given */
    char *val;    /* NULL: no evaluation */
    char *format; /* "auto", "plait", "llmc", "megatron" */
};

struct plait_parallel_config {
    int tp, cp, ep, pp, dp; /* PLAIT_AUTO where inferred */
    enum plait_schedule_kind schedule;
    int virtual_stages; /* YAML key `virtual` */
    bool sequence;      /* sequence parallel inside the tp group */
    int zero;           /* 0 .. 3 */
    enum plait_recompute recompute;
    double bucket_mib;
    enum plait_grad_sync grad_sync;
    enum plait_grad_reduce grad_reduce;
    enum plait_all_reduce all_reduce;
    enum plait_shard_group shard_group;
    enum plait_offload offload;
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
    int timeout; /* seconds; 0: none */
};

struct plait_optim_config {
    char *name; /* "adamw" */
    double lr;
    double betas[2];
    double eps;
    double weight_decay;
    double clip; /* 0: no clipping */
};

/* How the peak grows with the batch. */
enum plait_lr_scaling { PLAIT_LR_LINEAR, PLAIT_LR_SQRT };

struct plait_lr_config {
    char *schedule; /* "cosine", "linear", "constant" */
    int64_t warmup; /* steps */
    double min;     /* as a share of the peak, 0 .. 1 */
    int base_batch; /* sequences that optim.lr is meant for; 0: any */
    enum plait_lr_scaling scaling;
};

struct plait_checkpoint_config {
    char *dir;     /* NULL: no checkpoints */
    int64_t every; /* steps; 0: only where asked for */
    int keep;
    bool async;
};

struct plait_log_config {
    char *metrics;     /* JSON lines; NULL: none */
    char *tensorboard; /* directory; NULL: none */
    char *profile;     /* directory for traces; NULL: none */
    int64_t every;
};

struct plait_config {
    struct plait_model_config model;
    struct plait_data_config data;
    struct plait_parallel_config parallel;
    struct plait_train_config train;
    struct plait_optim_config optim;
    struct plait_lr_config lr;
    struct plait_checkpoint_config checkpoint;
    struct plait_log_config log;
    /* Bit per field of `parallel` in its order above: the file (or --set)
     * named it, so a launch contract that says otherwise is refused. */
    unsigned parallel_given;
};

/* Read a YAML file; NULL path: the defaults alone. Then apply `nset`
 * "section.key=value" strings in order. Unknown keys, wrong types and values
 * out of range are errors that name file, line and the nearest key; checks
 * across fields (heads % kv_heads, global_batch % micro_batch, ...) too. */
struct plait_config *plait_config_create(const char *path,
                                         const char *const *set, int nset,
                                         struct plait_error *err);
/* The same from memory; `name` stands for the file in errors. */
struct plait_config *plait_config_parse(const char *name, const char *text,
                                        size_t size, const char *const *set,
                                        int nset, struct plait_error *err);
/* The file as it is, malloc'ed, for plait_config_parse(). */
int plait_config_read(const char *path, char **text, size_t *size,
                      struct plait_error *err);
void plait_config_destroy(struct plait_config *config);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FRAMEWORK_H
#define PLAIT_TOPOLOGY_JOB_FRAMEWORK_H

#include <stdbool.h>
#include <stddef.h>

#include "topology/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The software whose training is predicted: what it fuses, overlaps and keeps.
 * These are facts, with their sources in framework.c; but logit_kept, tp_hidden
 * and headroom were fitted by hand to all of tests/records. */
enum plait_framework {
    PLAIT_FRAMEWORK_PLAIT,
    PLAIT_FRAMEWORK_MEGATRON,      /* Megatron-Core with Transformer Engine */
    PLAIT_FRAMEWORK_TORCHTITAN,    /* PyTorch's FSDP2, compiled */
    PLAIT_FRAMEWORK_LLM_FOUNDRY,   /* PyTorch's FSDP, not compiled, of 2023 */
    PLAIT_FRAMEWORK_MEGATRON_2021, /* Megatron-LM of SC21, and with DeepSpeed's
                                      ZeRO 1 that of BLOOM */
    PLAIT_FRAMEWORK_INTERNEVO      /* InternEvo of 2023 */
};
enum { PLAIT_NFRAMEWORKS = 6 };

/* How tokens reach the experts of other ranks. */
enum plait_dispatch {
    PLAIT_DISPATCH_OWN,     /* the framework's default */
    PLAIT_DISPATCH_ALLTOALL /* a copy for each of their experts, by NCCL */
};
/* What Megatron's selective recompute may recompute beside or instead of
 * attention's core: --recompute-modules. */
enum plait_module {
    PLAIT_MODULE_LAYERNORM = 1, /* inputs of a layer's first linears */
    PLAIT_MODULE_MOE_ACT = 2,   /* of the experts' activation */
    PLAIT_MODULE_MLA_UP = 4     /* queries, keys and values of MLA */
};
/* The module with this name in Megatron; 0: its saving is not counted. */
unsigned plait_module_find(const char *name, size_t length);
extern const char *const plait_framework_names[PLAIT_NFRAMEWORKS];

/* The layers whose activations a user can choose to recompute, or to keep in
 * the host's memory. */
enum plait_layers_said {
    PLAIT_LAYERS_ALL,   /* all layers */
    PLAIT_LAYERS_NONE,  /* not some: all or no layers, offload of none */
    PLAIT_LAYERS_FIRST, /* the first N */
    PLAIT_LAYERS_STAGE  /* N of each stage's chunk; for offload only without
                           stages and recompute, and not all layers */
};

struct plait_framework_traits {
    /* Bytes moved for each value of the hidden state in 16 bits: by norms and
     * residuals; by llama's rotary embeddings; by gpt2's transposes. */
    double norm_bytes, rotary_bytes, transpose_bytes;
    double gate_bytes; /* moved for each inner value of an MLP with a gate */
    /* The same to compute the norms again, where selective recompute is that of
     * norms and activations; 0: it is that of attention. */
    double renorm_bytes;
    double late_attention; /* share of the best attention kernels' rate on
                              GPUs after the A100 */
    double logit_bytes;    /* moved for each logit in a micro-batch, 16 bits */
    double logit_kept;     /* bytes of memory for each logit */
    double round_bytes;    /* moved to round a value of an operand to fp8 */
    double scan_bytes;     /* moved before that to find the largest value of a
                              weight, where no earlier kernel has found it */
    double code_bytes;     /* kept for an fp8 operand that backward needs */
    bool sends_once;       /* a token goes once to each node of its experts, and
                              is copied there (DeepEP, HybridEP) */
    bool whole_experts;    /* experts are spread over tp too, not split by it */
    double expert_s;   /* host's time to launch one expert's part of a pass in
                          fp8; a third of that in 16 bits */
    double bias_bytes; /* extra bytes moved for each inner value of experts with
                          biases in a pass */
    double tp_hidden;  /* share of tensor-parallel traffic behind products */
    bool gathers_codes; /* weights of fp8 products are gathered as codes */
    bool cp_hidden;     /* keys and values are sent during the attention */
    bool gather_hidden; /* ZeRO 1's new weights are gathered during the next
                           forward pass */
    double master; /* bytes of a weight that is sharded in fp32 (FSDP2), without
                      a 16-bit copy; else 0 */
    double score_bytes; /* as a GPU type's, of this software */
    double score_kept;  /* bytes of memory for each attention score */
    bool sums_late;   /* gradients are summed after the last backward pass, and
                         nothing hides new weights */
    bool whole_rows;  /* no sequence parallelism */
    double sum_bytes; /* with ZeRO 1 all ranks have all sums of gradients, made
                         in buckets of so many bytes; 0: each has its shard's */
    bool broadcasts;  /* with ZeRO 1 and 2 each rank broadcasts the new weights
                         of its shard, and nothing hides that */
    double headroom;  /* share of the allocated memory that the allocator takes
                         in addition */
    double reserve;   /* bytes: context, libraries, communicators */
    /* What users can choose. */
    int zero_stages; /* how many ZeRO stages there are from 0 on; 0: all */
    bool data_alone; /* only data parallelism */
    bool fsdp;       /* gradients at least are sharded (ZeRO 2 or 3) wherever
                        several ranks share the data */
    enum plait_layers_said recomputes, offloads;
};
extern const struct plait_framework_traits
    plait_framework_traits[PLAIT_NFRAMEWORKS];

int plait_framework_find(const char *name, enum plait_framework *framework,
                         struct plait_error *err);

#ifdef __cplusplus
}
#endif
#endif

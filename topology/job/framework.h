/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_FRAMEWORK_H
#define PLAIT_TOPOLOGY_JOB_FRAMEWORK_H

#include <stdbool.h>
#include <stddef.h>

#include "topology/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whose training is predicted: what it fuses, overlaps and keeps. Facts of
 * the software, their sources in framework.c; logit_kept, tp_hidden and
 * headroom were chosen by hand, with all of tests/records in sight. */
enum plait_framework {
    PLAIT_FRAMEWORK_PLAIT,
    PLAIT_FRAMEWORK_MEGATRON,   /* Megatron-Core with Transformer Engine */
    PLAIT_FRAMEWORK_TORCHTITAN, /* PyTorch's FSDP2, compiled */
    PLAIT_FRAMEWORK_LLM_FOUNDRY /* PyTorch's FSDP, not compiled, of 2023 */
};
enum { PLAIT_NFRAMEWORKS = 4 };

/* How tokens reach the experts of other ranks. */
enum plait_dispatch {
    PLAIT_DISPATCH_OWN,     /* as the framework does by default */
    PLAIT_DISPATCH_ALLTOALL /* a copy for each of their experts, by NCCL */
};
/* What Megatron's selective recompute may make again beside or instead of
 * attention's core: --recompute-modules. */
enum plait_module {
    PLAIT_MODULE_LAYERNORM = 1, /* inputs of a layer's first linears */
    PLAIT_MODULE_MOE_ACT = 2,   /* of the experts' activation */
    PLAIT_MODULE_MLA_UP = 4     /* queries, keys and values of MLA */
};
/* By its name there; 0: one whose saving is not counted. */
unsigned plait_module_find(const char *name, size_t length);
extern const char *const plait_framework_names[PLAIT_NFRAMEWORKS];

/* Whose activations can be said to be recomputed, or kept in the host's
 * memory. */
enum plait_layers_said {
    PLAIT_LAYERS_ALL,   /* all layers' */
    PLAIT_LAYERS_NONE,  /* no one's */
    PLAIT_LAYERS_FIRST, /* of the first N */
    PLAIT_LAYERS_STAGE, /* of N of each stage's chunk; offloaded: without
                           stages, recompute, and not of all layers */
    PLAIT_LAYERS_EVERY  /* of every Nth */
};

struct plait_framework_traits {
    /* Bytes that norms and residuals move for each value of the hidden state
     * in 16 bits; rotary embeddings and transposes, for llama and gpt2. */
    double norm_bytes, rotary_bytes, transpose_bytes;
    double late_attention; /* share of the best attention kernels' rate on
                              GPUs after the A100 */
    double logit_bytes;    /* moved for each logit in a micro-batch, 16 bits */
    double logit_kept;     /* bytes of memory for each */
    double round_bytes;    /* moved to round a value of an operand to fp8 */
    double scan_bytes;     /* before that, where no kernel on the way has found
                              the largest value: of weights */
    double code_bytes;     /* kept for an fp8 operand that backward needs */
    bool sends_once;       /* a token goes once to each node of its experts, and
                              is copied there (DeepEP, HybridEP) */
    bool whole_experts;    /* spread over tp too instead of split by it */
    double expert_s;       /* host's time to launch one expert's part of a pass
                              in fp8, a third of it in 16 bits */
    double bias_bytes;     /* moved for each inner value of experts with biases
                              in a pass, beside what others' take */
    double tp_hidden;   /* share of tensor-parallel traffic beside products */
    bool gathers_codes; /* weights are gathered as fp8 codes where they are
                           multiplied so */
    bool cp_hidden;     /* keys and values travel beside the attention */
    bool gather_hidden; /* ZeRO 1's new weights are gathered beside the
                           next forward pass */
    double master;      /* fp32 weights are the sharded ones (FSDP2), so that
                           there are no others: bytes of a weight */
    double headroom;    /* of the allocator: share of what is allocated */
    double reserve;     /* bytes: context, libraries, communicators */
    /* What it can be told to do. */
    bool data_alone; /* no parallelism but data parallelism */
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

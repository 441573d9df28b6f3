/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/framework.h"

#include <errno.h>
#include <string.h>

const char *const plait_framework_names[PLAIT_NFRAMEWORKS] = {
    "plait",       "megatron",      "torchtitan",
    "llm-foundry", "megatron-2021", "internevo"};

/* plait: kernels/cuda. A residual and the norm behind it are one kernel,
 * attention reads q, k and v where they are. A logit is read and written three
 * times in 16 bits. An fp8 operand is read and written, a gradient in two
 * orders at once; norms and SwiGLU find the largest value of what they store,
 * for the rest it is read once more. With SwiGLU that makes 2.5 bytes for each
 * of two roundings, with GELU 3.2.
 * megatron: bias, dropout and residual are one kernel, the norm another.
 * Transformer Engine's fused cross entropy works in fp32 on logits of 16 bits;
 * casts are fused into the kernel before, which leaves a read and a write; user
 * buffers and bulk overlap hide tensor-parallel traffic behind the products of
 * the layer except the first and last piece of each.
 * torchtitan: torch.compile fuses what is elementwise, not across the norm's
 * sum. Logits are cast to fp32; torchao's largest value is part of the kernel
 * before. PyTorch's allocator keeps what it has split: reserved memory is above
 * what is allocated.
 * llm-foundry: every operation is a kernel, except the loss, which writes its
 * gradient over the logits.
 * megatron-2021: Narayanan et al., SC21: softmax and dropout are kernels of
 * their own, whose results are kept (5 bytes a score, Korthikanti et al. 2022);
 * biases, dropout and residuals of the linears are fused in pairs. All ranks of
 * a tp group have whole hidden states, and gradients are summed after the last
 * backward pass.
 * internevo: InternLM/InternEvo of July 2023 (fa7337b, modeling_internlm.py,
 * linear.py, hybrid_zero_optim.py): a residual (6), its cast to fp32 (6) and
 * the norm of that (6) are kernels, twice a layer; SiLU (4) and the product
 * with the gate (6) too; logits are cast to fp32, and their gradient back.
 * ZeRO 1 sums gradients by all-reduces of 512 Mi elements in 16 bits; each rank
 * broadcasts the weights that it has updated. Ranks of a tp group have whole
 * hidden states, and nothing hides their traffic.
 *
 * The attention of torchtitan and llm-foundry is FlashAttention 2's (PyTorch's
 * own, or in Triton), which reaches 35 % of an H100 where kernels made for it
 * reach 75 % (Shah et al., FlashAttention-3, 2024). What users can choose:
 * transformer_config.py of Megatron-Core 0.16 (recompute_method block;
 * cpu_offloading's checks), torchtitan 0.3's activation-checkpoint:none or full
 * and fsdp_reshard_after_forward, llm-foundry's activation_checkpointing_target
 * and sharding_strategy. */
const struct plait_framework_traits plait_framework_traits[PLAIT_NFRAMEWORKS] =
    {[PLAIT_FRAMEWORK_PLAIT] = {.norm_bytes = 16,
                                .renorm_bytes = 8,
                                .rotary_bytes = 8,
                                .gate_bytes = 6,
                                .late_attention = 1,
                                .logit_bytes = 12,
                                .round_bytes = 3,
                                .scan_bytes = 2,
                                .code_bytes = 2,
                                .reserve = 1e9},
     [PLAIT_FRAMEWORK_MEGATRON] = {.norm_bytes = 20,
                                   .rotary_bytes = 8,
                                   .gate_bytes = 6,
                                   .transpose_bytes = 4,
                                   .late_attention = 1,
                                   .logit_bytes = 20,
                                   .logit_kept = 4,
                                   .round_bytes = 3,
                                   .code_bytes = 1,
                                   .sends_once = true,
                                   .whole_experts = true,
                                   .expert_s = 180e-6,
                                   .bias_bytes = 105,
                                   .tp_hidden = 0.6,
                                   .gathers_codes = true,
                                   .cp_hidden = true,
                                   .gather_hidden = true,
                                   .reserve = 2e9,
                                   .recomputes = PLAIT_LAYERS_STAGE,
                                   .offloads = PLAIT_LAYERS_STAGE},
     [PLAIT_FRAMEWORK_TORCHTITAN] = {.norm_bytes = 20,
                                     .rotary_bytes = 12,
                                     .gate_bytes = 6,
                                     .transpose_bytes = 12,
                                     .late_attention = 35.0 / 75,
                                     .logit_bytes = 34,
                                     .logit_kept = 12,
                                     .round_bytes = 4,
                                     .gathers_codes = true,
                                     .code_bytes = 2,
                                     .master = 4,
                                     .headroom = 0.02,
                                     .reserve = 2e9,
                                     .fsdp = true,
                                     .recomputes = PLAIT_LAYERS_NONE,
                                     .offloads = PLAIT_LAYERS_NONE},
     [PLAIT_FRAMEWORK_LLM_FOUNDRY] = {.norm_bytes = 28,
                                      .rotary_bytes = 24,
                                      .gate_bytes = 6,
                                      .transpose_bytes = 12,
                                      .late_attention = 35.0 / 75,
                                      .logit_bytes = 14,
                                      .logit_kept = 4,
                                      .round_bytes = 3,
                                      .code_bytes = 2,
                                      .master = 4,
                                      .headroom = 0.02,
                                      .reserve = 2e9,
                                      .data_alone = true,
                                      .fsdp = true,
                                      .recomputes = PLAIT_LAYERS_FIRST},
     [PLAIT_FRAMEWORK_MEGATRON_2021] = {.norm_bytes = 22,
                                        .transpose_bytes = 12,
                                        .rotary_bytes = 24,
                                        .gate_bytes = 6,
                                        .late_attention = 35.0 / 75,
                                        .logit_bytes = 52,
                                        .logit_kept = 4,
                                        .round_bytes = 3,
                                        .code_bytes = 2,
                                        .score_bytes = 13,
                                        .score_kept = 5,
                                        .sums_late = true,
                                        .whole_rows = true,
                                        .reserve = 2e9,
                                        .zero_stages = 2,
                                        .recomputes = PLAIT_LAYERS_STAGE,
                                        .offloads = PLAIT_LAYERS_NONE},
     [PLAIT_FRAMEWORK_INTERNEVO] = {.norm_bytes = 36,
                                    .rotary_bytes = 8,
                                    .gate_bytes = 10,
                                    .late_attention = 35.0 / 75,
                                    .logit_bytes = 24,
                                    .logit_kept = 6,
                                    .round_bytes = 3,
                                    .code_bytes = 2,
                                    .whole_rows = true,
                                    .sum_bytes = 1 << 30,
                                    .broadcasts = true,
                                    .reserve = 2e9,
                                    .zero_stages = 2,
                                    .recomputes = PLAIT_LAYERS_NONE,
                                    .offloads = PLAIT_LAYERS_NONE}};

unsigned plait_module_find(const char *name, size_t length)
{
    static const struct {
        const char *name;
        enum plait_module module;
    } known[] = {{"layernorm", PLAIT_MODULE_LAYERNORM},
                 {"moe_act", PLAIT_MODULE_MOE_ACT},
                 {"mla_up_proj", PLAIT_MODULE_MLA_UP}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i].name) == length &&
            strncmp(known[i].name, name, length) == 0)
            return known[i].module;
    return 0;
}

int plait_framework_find(const char *name, enum plait_framework *framework,
                         struct plait_error *err)
{
    for (int i = 0; i < PLAIT_NFRAMEWORKS; i++)
        if (strcasecmp(plait_framework_names[i], name) == 0) {
            *framework = (enum plait_framework)i;
            return 0;
        }
    errno = EINVAL;
    return plait_errorf(err,
                        "unknown framework \"%.40s\"; must be one of plait, "
                        "megatron, torchtitan, llm-foundry, megatron-2021 "
                        "and internevo",
                        name);
}

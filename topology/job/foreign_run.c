/* SPDX-License-Identifier: Apache-2.0 */
/* How other software will run a model. */
#include "topology/job/foreign_run.h"

#include <stdbool.h>
#include <string.h>

#include "topology/job/framework.h"

/* Whether the traffic with this flag stays beside the computing. On a command
 * line of Megatron-LM a flag that is not given is off; its recipes in YAML say
 * where they change the default, which is on. */
static bool is_exposed(const struct plait_pairs *p, const char *flag)
{
    return plait_pairs_value(p, flag) ? !plait_pairs_flag(p, flag)
                                      : p->arguments;
}

static void set_overlap(const struct plait_pairs *p, struct plait_job_config *c)
{
    if (is_exposed(p, "overlap_grad_reduce"))
        c->parallel.grad_sync = PLAIT_GRAD_FLAT;
    c->tp_exposed = is_exposed(p, "tp_comm_overlap");
    c->messages_exposed = plait_pairs_flag(p, "no_overlap_p2p_communication");
}

/* Graphs of parts of a layer leave the experts' kernels to the host. */
static void set_fusions(const struct plait_pairs *p, struct plait_job_config *c)
{
    static const char *const names[] = {"cuda_graph_impl", "cuda_graph_scope",
                                        "cuda_graph_modules"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = plait_pairs_value(p, names[i]);

        c->graphs |= value && strstr(value, "full_iteration");
    }
    c->fused_experts = plait_pairs_flag(p, "use_transformer_engine_op_fuser");
    c->fp8_attention = plait_pairs_flag(p, "fp8_dot_product_attention");
    c->fp8_head = plait_pairs_flag(p, "fp8_output_proj");
}

/* How Megatron's tokens reach their experts. */
static void set_dispatch(const struct plait_pairs *p,
                         struct plait_job_config *c)
{
    const char *type = plait_pairs_value(p, "moe_token_dispatcher_type");

    if (type && strcmp(type, "flex") != 0)
        c->dispatch = PLAIT_DISPATCH_ALLTOALL;
    c->dispatch_hidden =
        plait_pairs_flag(p, "overlap_moe_expert_parallel_comm");
}

/* "layernorm moe_act", in YAML or on a command line: the modules recomputed
 * instead of attention's core, which is meant where there is no list. */
static void set_modules(const struct plait_pairs *p, struct plait_job_config *c)
{
    const char *list = plait_pairs_value(p, "recompute_modules");
    static const char space[] = " ,[]'\"";
    bool core = !list;

    for (const char *word = list; word && *(word += strspn(word, space));) {
        size_t n = strcspn(word, space);

        c->recompute_modules |= plait_module_find(word, n);
        core |= n == 9 && strncmp(word, "core_attn", n) == 0;
        word += n;
    }
    if (!core && c->parallel.recompute == PLAIT_RECOMPUTE_SELECTIVE)
        c->parallel.recompute = PLAIT_RECOMPUTE_NONE;
}

/* Of Megatron's two moments the first stands for both. */
static void set_moments(const struct plait_pairs *p, struct plait_job_config *c)
{
    const char *type = plait_pairs_value(p, "exp_avg_dtype");

    if (type &&
        (strcmp(type, "bf16") == 0 || strcmp(type, "torch.bfloat16") == 0))
        c->optim.moments = PLAIT_MOMENTS_BF16_NEAREST;
}

int plait_foreign_further(const struct plait_pairs *p)
{
    static const char *const names[] = {"num_nextn_predict_layers",
                                        "num_mtp_layers", "mtp_num_layers"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (plait_pairs_value(p, names[i]))
            return plait_pairs_number(p, names[i], 0);
    return 0;
}

void plait_foreign_run_set(const struct plait_pairs *p,
                           struct plait_job_config *c)
{
    c->further_left_out = plait_foreign_further(p) > 1;
    set_dispatch(p, c);
    if (!plait_pairs_value(p, "model_type"))
        set_overlap(p, c);
    set_fusions(p, c);
    set_modules(p, c);
    set_moments(p, c);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "topology/base/text.h"
#include "topology/cli/cmd_plan.h"
#include "topology/job/stage.h"

/* plait plan --auto: print the best layout as arguments of the software that is
 * planned for. */

void plait_plan_split_nodes(const struct plan_job *job, int gpus, int *nodes,
                            int *per_node)
{
    *per_node = plait_gpu_type_tasks(&job->gpu, gpus);
    *nodes = gpus / *per_node;
}

static bool nodes_are_equal(const struct plan_job *job)
{
    for (int i = 1; i < job->request.nnodes; i++)
        if (job->tasks[i] != job->tasks[0])
            return false;
    return true;
}

/* The tasks for the named nodes, or for this many GPUs. Only a host file gives
 * nodes different numbers of them. */
static void print_srun(const struct plan_job *job, int gpus)
{
    int per_node = job->tasks[0], nodes = job->request.nnodes;
    bool cpu = strcmp(job->gpu.name, "cpu") == 0;

    if (!nodes_are_equal(job)) {
        printf("\nSLURM_HOSTFILE=FILE srun -N%d -n%d --distribution=arbitrary",
               nodes, gpus);
        if (!cpu)
            printf(" --gpus=%d", gpus);
        return;
    }
    if (!job->node_list)
        plait_plan_split_nodes(job, gpus, &nodes, &per_node);
    printf("\nsrun -N%d --ntasks-per-node=%d", nodes, per_node);
    if (!cpu)
        printf(" --gpus-per-node=%d", per_node);
}

/* plait-train takes no model of Hugging Face's as its configuration: the line
 * that makes one of it. The file that plait-train is given. */
static const char *print_convert(const char *model)
{
    const char *slash = strrchr(model, '/'), *base = slash ? slash + 1 : model;
    char folder[PLAIT_QUOTED_MAX], room[PLAIT_QUOTED_MAX];
    struct stat st;

    if (stat(model, &st) == 0 && S_ISDIR(st.st_mode))
        snprintf(folder, sizeof(folder), "%s", model);
    else if (strcmp(base, "config.json") != 0)
        return model;
    else
        snprintf(folder, sizeof(folder), "%.*s",
                 slash ? (int)(slash - model) : 1, slash ? model : ".");
    printf("\nplait convert --from %s --to start",
           plait_text_quote(folder, room));
    return "start/plait.yaml";
}

static void print_plait(const struct plan_job *job,
                        const struct plait_choice *best, int gpus)
{
    const struct plait_parallel_config *p = &best->parallel;
    const struct model_options *o = &job->options;
    const char *file = print_convert(o->model_file);
    char room[PLAIT_QUOTED_MAX];

    print_srun(job, gpus);
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (i != PLAIT_EP || job->config->model.experts)
            printf(" --%s=%d", plait_axis_names[i], best->layout.size[i]);
    printf(" \\\n  plait-train %s", plait_text_quote(file, room));
    /* First what was asked for; what was chosen comes later and wins. */
    for (int i = 0; i < o->nsets; i++)
        printf(" --set %s", plait_text_quote(o->set[i], room));
    /* The file's sizes must be srun's. */
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (job->config->sizes_given & 1u << i)
            printf(" --set parallel.%s=%d", plait_axis_names[i],
                   best->layout.size[i]);
    printf(" --set parallel.zero=%d --set parallel.recompute=%s \\\n"
           "  --set parallel.sequence=%s --set train.micro_batch=%d "
           "--set parallel.schedule=%s \\\n  --set parallel.virtual=%d",
           p->zero, plait_recompute_names[p->recompute],
           p->sequence ? "true" : "false", best->micro_batch,
           plait_schedule_names[p->schedule], p->virtual_stages);
    if (p->offload)
        printf(" --set parallel.offload=%s", plait_offload_names[p->offload]);
    printf(" --set train.global_batch=%d\n", job->config->train.global_batch);
}

/* Where stages differ: the embedding and the head that count as layers, or
 * each stage by itself. */
static void print_megatron_stages(const struct plan_job *job,
                                  const struct plait_choice *best)
{
    struct plait_stage_split split;
    int n, each;

    plait_plan_set_split(job->config, best, &split);
    n = split.stages;
    each = plait_stage_split_at(&split, 0);
    if (split.given || split.more) {
        printf(" \\\n--pipeline-model-parallel-layout 'E");
        for (int i = 0; i < n; i++) {
            if (plait_stage_split_at(&split, i))
                printf("t*%d", plait_stage_split_at(&split, i));
            printf("%s", i < n - 1 ? "|" : "L'");
        }
    } else if (n > 1 && each < plait_stage_split_at(&split, n / 2)) {
        printf(" \\\n--account-for-embedding-in-pipeline-split "
               "--account-for-loss-in-pipeline-split \\\n");
    }
}

/* The dispatcher that is predicted: DeepEP between nodes, HybridEP in racks. */
static void print_megatron_experts(const struct plan_job *job, int ep)
{
    bool copies = job->config->dispatch == PLAIT_DISPATCH_ALLTOALL;

    printf(" \\\n--expert-model-parallel-size %d "
           "--moe-token-dispatcher-type %s",
           ep, copies ? "alltoall" : "flex");
    if (!copies)
        printf(" --moe-flex-dispatcher-backend %s",
               job->gpu.domain > job->gpu.per_node ? "hybridep" : "deepep");
    if (job->config->dispatch_hidden)
        printf(" \\\n--overlap-moe-expert-parallel-comm");
}

/* What is predicted to be hidden is off in Megatron unless it is asked for. */
static void print_megatron_overlap(const struct plan_job *job,
                                   const struct plait_choice *best)
{
    const struct plait_parallel_config *p = &best->parallel;
    const int *size = best->layout.size;

    if (job->config->framework != PLAIT_FRAMEWORK_MEGATRON)
        return;
    if (p->zero < 2 && size[PLAIT_DP] * size[PLAIT_CP] > 1 &&
        p->grad_sync == PLAIT_GRAD_BUCKETED)
        printf(" \\\n--overlap-grad-reduce%s",
               p->zero ? " --overlap-param-gather" : "");
    if (p->sequence && !job->config->tp_exposed)
        printf(" --tp-comm-overlap");
}

static void print_megatron(const struct plan_job *job,
                           const struct plait_choice *best)
{
    const struct plait_parallel_config *p = &best->parallel;
    const int *size = best->layout.size;

    printf("\n--tensor-model-parallel-size %d --context-parallel-size %d "
           "\\\n--pipeline-model-parallel-size %d --micro-batch-size %d "
           "--global-batch-size %d",
           size[PLAIT_TP], size[PLAIT_CP], size[PLAIT_PP], best->micro_batch,
           job->config->train.global_batch);
    if (size[PLAIT_EP] > 1)
        print_megatron_experts(job, size[PLAIT_EP]);
    if (job->config->graphs)
        printf(" \\\n--cuda-graph-impl local --cuda-graph-scope "
               "full_iteration");
    if (p->virtual_stages > 1)
        printf(" \\\n--num-virtual-stages-per-pipeline-rank %d",
               p->virtual_stages);
    print_megatron_stages(job, best);
    if (p->sequence)
        printf(" --sequence-parallel");
    if (p->zero > 1)
        printf(" \\\n--use-megatron-fsdp --data-parallel-sharding-strategy "
               "optim_grads%s",
               p->zero == 3 ? "_params" : "");
    else if (p->zero)
        printf(" --use-distributed-optimizer");
    print_megatron_overlap(job, best);
    if (p->recompute_layers)
        printf(" \\\n--recompute-granularity full --recompute-method block "
               "--recompute-num-layers %d",
               p->recompute_layers / (size[PLAIT_PP] * p->virtual_stages));
    else if (p->recompute == PLAIT_RECOMPUTE_FULL)
        printf(" \\\n--recompute-granularity full --recompute-method uniform "
               "--recompute-num-layers 1");
    else if (p->recompute == PLAIT_RECOMPUTE_SELECTIVE)
        printf(" \\\n--recompute-granularity selective");
    if (p->offload_layers)
        printf(" \\\n--cpu-offloading-num-layers %d", p->offload_layers);
    printf("\n");
}

/* As release 0.3 reads them: it refuses CUDA graphs beside stages, and takes
 * what is recomputed as a subcommand, behind all options. */
static void print_torchtitan(const struct plan_job *job,
                             const struct plait_choice *best)
{
    const struct plait_parallel_config *p = &best->parallel;
    const struct plait_job_config *c = job->config;
    const int *size = best->layout.size, batch = c->train.global_batch;
    int share = batch / size[PLAIT_DP], pp = size[PLAIT_PP];

    printf("\n--parallelism.tensor_parallel_degree=%d "
           "--parallelism.context_parallel_degree=%d \\\n"
           "--parallelism.data_parallel_shard_degree=%d "
           "--parallelism.fsdp_reshard_after_forward=%s \\\n"
           "--parallelism.pipeline_parallel_degree=%d",
           size[PLAIT_TP], size[PLAIT_CP], size[PLAIT_DP],
           p->zero == 3 ? "always" : "never", pp);
    if (size[PLAIT_EP] > 1)
        printf(" \\\n--parallelism.expert_parallel_degree=%d", size[PLAIT_EP]);
    if (pp > 1)
        printf(" --parallelism.pipeline_parallel_schedule=%s \\\n"
               "--parallelism.pipeline_parallel_microbatch_size=%d "
               "--parallelism.pipeline_parallel_layers_per_stage=%d \\\n"
               "--parallelism.pipeline_parallel_first_stage_less_layers=0 "
               "--parallelism.pipeline_parallel_last_stage_less_layers=0 "
               "\\\n--training.disable_cuda_graphs",
               p->virtual_stages > 1 ? "Interleaved1F1B" : "1F1B",
               best->micro_batch, c->model.layers / (pp * p->virtual_stages));
    printf(" \\\n--training.local_batch_size=%d "
           "--training.global_batch_size=%d \\\nactivation-checkpoint:%s\n",
           pp > 1 ? share : best->micro_batch, batch,
           plait_recompute_names[p->recompute]);
}

/* Lines of llm-foundry's YAML. */
static void print_foundry(const struct plan_job *job,
                          const struct plait_choice *best)
{
    const struct plait_parallel_config *p = &best->parallel;

    printf("\nglobal_train_batch_size: %d\n"
           "device_train_microbatch_size: %d\n"
           "fsdp_config:\n  sharding_strategy: %s\n"
           "  activation_checkpointing: %s\n  activation_cpu_offload: %s\n",
           job->config->train.global_batch, best->micro_batch,
           p->zero == 3   ? "FULL_SHARD"
           : p->zero == 2 ? "SHARD_GRAD_OP"
                          : "NO_SHARD",
           p->recompute ? "true" : "false", p->offload ? "true" : "false");
    if (p->recompute_layers)
        printf("  activation_checkpointing_target: {mptblock: first-%d}\n",
               p->recompute_layers);
}

/* Lines of InternEvo's configuration of November 2023, which is Python. */
static void print_internevo(const struct plan_job *job,
                            const struct plait_choice *best)
{
    const struct plait_parallel_config *p = &best->parallel;
    const int *size = best->layout.size;
    int zero = !p->zero                             ? 1
               : p->shard_group == PLAIT_SHARD_NODE ? job->gpu.per_node
                                                    : -1;

    printf("\nparallel = dict(zero1=dict(size=%d, fsdp=False), tensor=%d,\n"
           "    pipeline=dict(size=%d, interleaved_overlap=%s))\n"
           "data = dict(micro_bsz=%d, micro_num=%d)\n"
           "model = dict(checkpoint=%s, num_chunks=%d)\n",
           zero, size[PLAIT_TP], size[PLAIT_PP],
           p->virtual_stages > 1 ? "True" : "False", best->micro_batch,
           job->config->train.global_batch / size[PLAIT_DP] / best->micro_batch,
           p->recompute ? "True" : "False", p->virtual_stages);
}

void plait_plan_print_hosted(const struct plan_job *job)
{
    const struct plait_layout *layout = &job->plan->layout;
    char order[16];

    plait_layout_format_order(layout, order);
    printf("\nin a job on these nodes, for trainers that read SLURM_PROCID\n"
           "  SLURM_HOSTFILE=%s srun -N%d -n%d --distribution=arbitrary "
           "--placement=linear",
           job->host_file, job->plan->nnodes, plait_layout_world(layout));
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (layout->size[i] > 1)
            printf(" --%s=%d", plait_axis_names[i], layout->size[i]);
    printf(" --rank-order=%s COMMAND\n", order);
}

void plait_plan_print_command(const struct plan_job *job,
                              const struct plait_choice *best, int gpus)
{
    if (job->config->framework == PLAIT_FRAMEWORK_PLAIT)
        print_plait(job, best, gpus);
    else if (job->config->framework == PLAIT_FRAMEWORK_MEGATRON ||
             job->config->framework == PLAIT_FRAMEWORK_MEGATRON_2021)
        print_megatron(job, best);
    else if (job->config->framework == PLAIT_FRAMEWORK_TORCHTITAN)
        print_torchtitan(job, best);
    else if (job->config->framework == PLAIT_FRAMEWORK_INTERNEVO)
        print_internevo(job, best);
    else
        print_foundry(job, best);
}

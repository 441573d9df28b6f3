/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "topology/cli/cmd_plan.h"
#include "topology/cli/commands.h"
#include "topology/job/stage.h"

/* plait plan --auto: the layouts that fit, fastest first. */

enum { CHOICES_MOST = 10 };

void plait_plan_set_split(const struct plait_job_config *config,
                          const struct plait_choice *c,
                          struct plait_stage_split *split)
{
    plait_stage_split_set(split, config,
                          c->layout.size[PLAIT_PP] *
                              plait_model_chunks(&c->parallel));
}

/* For the table: the number of layers where only some are meant. */
static const char *name_or_layers(const char *name, int layers, char *buf,
                                  size_t size)
{
    if (!layers)
        return name;
    snprintf(buf, size, "%d layer%s", layers, layers == 1 ? "" : "s");
    return buf;
}

void plait_plan_print_settings(const struct plait_choice *c)
{
    const struct plait_parallel_config *p = &c->parallel;
    const int *size = c->layout.size;
    char done[24], away[24];

    printf("%4d %3d %2d %4d %5d %-9s %-11s ", size[PLAIT_DP], size[PLAIT_PP],
           p->virtual_stages, p->zero, c->micro_batch,
           name_or_layers(plait_recompute_names[p->recompute],
                          p->recompute_layers, done, sizeof(done)),
           name_or_layers(plait_offload_names[p->offload], p->offload_layers,
                          away, sizeof(away)));
}

json_t *plait_plan_choice_to_json(const struct plait_job_config *config,
                                  const struct plait_choice *c)
{
    const int *size = c->layout.size;
    struct plait_stage_split split;
    json_t *stages = json_array();

    plait_plan_set_split(config, c, &split);
    for (int i = 0; i < split.stages; i++)
        json_array_append_new(stages,
                              json_integer(plait_stage_split_at(&split, i)));
    return json_pack(
        "{si si si si si si si si ss ss ss si si sb sf sf sf sf sf sf sf si "
        "ss so}",
        "tp", size[PLAIT_TP], "cp", size[PLAIT_CP], "ep", size[PLAIT_EP], "dp",
        size[PLAIT_DP], "pp", size[PLAIT_PP], "virtual",
        c->parallel.virtual_stages, "zero", c->parallel.zero, "micro_batch",
        c->micro_batch, "schedule", plait_schedule_names[c->parallel.schedule],
        "recompute", plait_recompute_names[c->parallel.recompute], "offload",
        plait_offload_names[c->parallel.offload], "recompute_layers",
        c->parallel.recompute_layers, "offload_layers",
        c->parallel.offload_layers, "sequence", c->parallel.sequence, "step_s",
        c->estimate.step_s, "memory_bytes", c->estimate.memory.total,
        "memory_expected_bytes", c->estimate.memory.expected,
        "memory_worst_bytes", c->estimate.memory.worst, "tflops_per_gpu",
        c->estimate.tflops_per_gpu, "mfu", c->estimate.mfu, "mfu_causal",
        c->estimate.mfu_causal, "alike", c->alike, "reason", c->reason,
        "stages", stages);
}

static json_t *to_json(const struct plan_job *job,
                       const struct plait_choices *found, int gpus)
{
    const struct plait_job_config *config = job->config;
    json_t *list = json_array();

    for (int i = 0; i < found->n; i++)
        json_array_append_new(
            list, plait_plan_choice_to_json(config, &found->choice[i]));
    return json_pack("{si so sI sI si si}", "world", gpus, "choices", list,
                     "tried", (json_int_t)found->tried, "too_large",
                     (json_int_t)found->too_large,
                     "fewest_gpus_without_offload",
                     plait_auto_fewest_whole(config, &job->gpu), "fewest_gpus",
                     plait_auto_fewest(config, &job->gpu));
}

static void print_choice(const struct plait_choice *c, double memory,
                         bool experts)
{
    const int *size = c->layout.size;
    double total = c->estimate.memory.total;

    printf("%4d %3d ", size[PLAIT_TP], size[PLAIT_CP]);
    if (experts)
        printf("%3d ", size[PLAIT_EP]);
    plait_plan_print_settings(c);
    printf("%6.1f GB %5.1f GB %7.3f s %4.1f%% %4.1f%%  %s", total / 1e9,
           (memory - total) / 1e9, c->estimate.step_s, 100 * c->estimate.mfu,
           100 * c->estimate.mfu_causal, c->reason);
    if (c->alike)
        printf("%s%d more that differ only in dp, cp, chunks or micro-batch",
               *c->reason ? "; " : "", c->alike);
    printf("\n");
}

/* Print for which routing of tokens the memory is, and the memory of the other
 * case. */
static void print_routing(const struct plait_memory *m)
{
    if (m->total < m->worst)
        printf("\nMemory is of tokens that spread evenly over the experts; the "
               "first layout needs\n%.1f GB where all go to one GPU's.\n",
               m->worst / 1e9);
    else
        printf("\nMemory is of all tokens going to one GPU's experts, which "
               "plait-train allocates;\nspread evenly the first layout's "
               "would be %.1f GB.\n",
               m->expected / 1e9);
}

/* Print the stages where they differ. */
static void print_stages(const struct plait_job_config *config,
                         const struct plait_choice *best)
{
    struct plait_stage_split split;
    bool alike = true;
    char text[200];

    plait_plan_set_split(config, best, &split);
    for (int i = 1; i < split.stages; i++)
        alike &=
            plait_stage_split_at(&split, i) == plait_stage_split_at(&split, 0);
    plait_stage_split_print(&split, " ", text, sizeof(text));
    if (!alike)
        printf("\nLayers of the first layout's stages: %s\n", text);
}

/* Print what the table's numbers mean and leave out. */
static void print_terms(const struct plait_choices *found,
                        const struct plait_gpu_type *gpu)
{
    double free = gpu->memory - plait_gpu_type_room(gpu), host = 0;
    char warning[256];

    for (int i = 0; i < found->n; i++)
        if (found->choice[i].estimate.memory.host > host)
            host = found->choice[i].estimate.memory.host;
    printf(
        "\nMFU counts attention in full, causal the half that a mask leaves. "
        "Steps that differ\nby less than %.0f %% are equal.",
        100 * PLAIT_CHOICE_EQUAL);
    if (free > 0)
        printf(" Of the %.0f GB of a GPU %.1f are left free (headroom_gb\nof a "
               "site file).",
               gpu->memory / 1e9, free / 1e9);
    if (host > 0)
        printf(" What is offloaded takes at most %.0f of the %.0f GB of\n"
               "the host's memory for each GPU (host_memory_gb).",
               host / 1e9, gpu->host_memory / 1e9);
    printf("\n");
    plait_gpu_type_warn(gpu, warning, sizeof(warning));
    if (*warning)
        printf("note: %s\n", warning);
}

static void print_choices(const struct plait_choices *found,
                          const struct plan_job *job, int gpus)
{
    const struct plait_choice *best = &found->choice[0];
    bool experts = job->config->model.experts > 0;
    char fewest[96];

    printf("%d %s GPU%s%s: %ld layouts divide, %ld of them fit in memory", gpus,
           job->gpu.name, gpus == 1 ? "" : "s",
           job->gpu_known ? "" : " (assumed; see --gpu-type)", found->tried,
           found->tried - found->too_large);
    if (model_fewest_gpus(job->config, &job->gpu, fewest, sizeof(fewest)) > 0)
        printf("\nit needs at least %s", fewest);
    printf("\n\n  tp  cp %s  dp  pp  v zero micro recompute offload       "
           "memory     free     step   MFU causal\n",
           experts ? " ep " : "");
    for (int i = 0; i < found->n; i++)
        print_choice(&found->choice[i], job->gpu.memory, experts);
    if (best->estimate.memory.worst > best->estimate.memory.expected)
        print_routing(&best->estimate.memory);
    print_stages(job->config, best);
    print_terms(found, &job->gpu);
    plait_plan_print_command(job, best, gpus);
}

int plait_plan_auto(const struct plan_job *job)
{
    struct plait_layout wanted = job->request.layout;
    struct plait_choices *found;
    int gpus, rc = PLAIT_EXIT_GOOD;
    struct plait_error err;

    for (int i = 0; i < PLAIT_NAXES; i++)
        if (!(job->given & 1u << i))
            wanted.size[i] = PLAIT_AUTO;
    gpus = plait_layout_tasks(job->tasks, job->request.nnodes);
    found =
        plait_auto_create(job->config, &wanted, gpus, &job->gpu, CHOICES_MOST);
    if (!found)
        return plait_cmd_failed("out of memory");
    if (found->n == 0) {
        plait_auto_why(found, job->config, gpus, &job->gpu, &err);
        rc = plait_cmd_failed("%s", err.text);
    } else if (job->options.json)
        rc = plait_cmd_json(to_json(job, found, gpus));
    else
        print_choices(found, job, gpus);
    plait_choices_destroy(found);
    return rc;
}

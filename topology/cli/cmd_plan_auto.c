/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/cli/cmd_plan.h"
#include "topology/cli/commands.h"
#include "topology/predict/auto.h"

/* plait plan --auto: the layouts that fit, fastest first. */

enum { CHOICES_MOST = 10 };

static const char *const recompute_names[] = {"none", "selective", "full"};

static json_t *choice_to_json(const struct plait_choice *c)
{
    const int *size = c->layout.size;

    return json_pack(
        "{si si si si si si si si ss ss sb sf sf sf sf ss}", "tp",
        size[PLAIT_TP], "cp", size[PLAIT_CP], "ep", size[PLAIT_EP], "dp",
        size[PLAIT_DP], "pp", size[PLAIT_PP], "virtual",
        c->parallel.virtual_stages, "zero", c->parallel.zero, "micro_batch",
        c->micro_batch, "schedule", plait_schedule_names[c->parallel.schedule],
        "recompute", recompute_names[c->parallel.recompute], "sequence",
        c->parallel.sequence, "step_s", c->estimate.step_s, "memory_bytes",
        c->estimate.memory.total, "tflops_per_gpu", c->estimate.tflops_per_gpu,
        "mfu", c->estimate.mfu, "reason", c->reason);
}

static json_t *to_json(const struct plait_choices *found, int gpus)
{
    json_t *list = json_array();

    for (int i = 0; i < found->n; i++)
        json_array_append_new(list, choice_to_json(&found->choice[i]));
    return json_pack("{si so sI sI}", "world", gpus, "choices", list, "tried",
                     (json_int_t)found->tried, "too_large",
                     (json_int_t)found->too_large);
}

static void print_choices(const struct plait_choices *found, int gpus,
                          const struct plait_gpu_type *gpu)
{
    const struct plait_choice *best = &found->choice[0];

    printf("%d %s GPU%s: %ld layouts divide, %ld of them fit in memory\n\n",
           gpus, gpu->name, gpus == 1 ? "" : "s", found->tried,
           found->tried - found->too_large);
    printf("  tp  cp   dp  pp  v zero micro recompute   memory     step   "
           "MFU\n");
    for (int i = 0; i < found->n; i++) {
        const struct plait_choice *c = &found->choice[i];
        const int *size = c->layout.size;

        printf("%4d %3d %4d %3d %2d %4d %5d %-9s %6.1f GB %7.3f s %4.1f%%  "
               "%s\n",
               size[PLAIT_TP], size[PLAIT_CP], size[PLAIT_DP], size[PLAIT_PP],
               c->parallel.virtual_stages, c->parallel.zero, c->micro_batch,
               recompute_names[c->parallel.recompute],
               c->estimate.memory.total / 1e9, c->estimate.step_s,
               100 * c->estimate.mfu, c->reason);
    }
    printf("\nsrun --tp=%d --cp=%d --pp=%d --dp=%d plait-train FILE --set "
           "parallel.zero=%d \\\n  --set parallel.recompute=%s --set "
           "parallel.sequence=%s \\\n  --set train.micro_batch=%d "
           "--set parallel.schedule=%s \\\n  --set parallel.virtual=%d\n",
           best->layout.size[PLAIT_TP], best->layout.size[PLAIT_CP],
           best->layout.size[PLAIT_PP], best->layout.size[PLAIT_DP],
           best->parallel.zero, recompute_names[best->parallel.recompute],
           best->parallel.sequence ? "true" : "false", best->micro_batch,
           plait_schedule_names[best->parallel.schedule],
           best->parallel.virtual_stages);
}

int plait_plan_auto(const struct plan_job *job)
{
    struct plait_layout wanted = job->request.layout;
    struct plait_choices *found;
    int gpus = 0, rc = PLAIT_EXIT_GOOD;
    struct plait_error err;

    for (int i = 0; i < PLAIT_NAXES; i++)
        if (!(job->given & 1u << i))
            wanted.size[i] = i == PLAIT_EP ? 1 : PLAIT_AUTO;
    for (int i = 0; i < job->request.nnodes; i++)
        gpus += job->tasks[i];
    found =
        plait_auto_create(job->config, &wanted, gpus, &job->gpu, CHOICES_MOST);
    if (!found)
        return plait_cmd_failed("out of memory");
    if (found->n == 0) {
        plait_auto_why(found, job->config, gpus, &job->gpu, &err);
        rc = plait_cmd_failed("%s", err.text);
    } else if (job->options.json)
        rc = plait_cmd_json(to_json(found, gpus));
    else
        print_choices(found, gpus, &job->gpu);
    plait_choices_destroy(found);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "topology/job/fits.h"
#include "topology/predict/auto.h"

/* Why a choice is not the best one, and why there is none. */

/* By the part of the step on which the best choice saves most. */
static void explain(struct plait_choice *c, const struct plait_choice *best)
{
    const struct plait_estimate *e = &c->estimate, *b = &best->estimate;
    const struct {
        const char *what;
        double more;
    } parts[] = {
        {"recomputed or smaller matrix products", e->matmul_s - b->matmul_s},
        {"attention", e->attention_s - b->attention_s},
        {"transfers to the host", e->offload_s - b->offload_s},
        {"elementwise work", e->elementwise_s - b->elementwise_s},
        {"many small kernels", e->launch_s - b->launch_s},
        {"tensor-parallel traffic", e->axis_s[PLAIT_TP] - b->axis_s[PLAIT_TP]},
        {"context-parallel traffic", e->axis_s[PLAIT_CP] - b->axis_s[PLAIT_CP]},
        {"expert traffic", e->axis_s[PLAIT_EP] - b->axis_s[PLAIT_EP]},
        {"gradient and weight traffic",
         e->axis_s[PLAIT_DP] - b->axis_s[PLAIT_DP]},
        {"pipeline messages", e->axis_s[PLAIT_PP] - b->axis_s[PLAIT_PP]},
        {"pipeline bubble", e->bubble_s - b->bubble_s},
        {"the last stage's head", e->head_s - b->head_s},
        {"optimizer", e->optimizer_s - b->optimizer_s},
    };
    size_t most = 0;

    for (size_t i = 1; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i].more > parts[most].more)
            most = i;
    if (e->step_s <= b->step_s * (1 + 1e-9))
        snprintf(c->reason, sizeof(c->reason), "as fast, but more complex");
    else if (e->step_s <= b->step_s * (1 + PLAIT_CHOICE_EQUAL))
        snprintf(c->reason, sizeof(c->reason),
                 "equal within %.0f %%: %.3g s more for %s",
                 100 * PLAIT_CHOICE_EQUAL, parts[most].more, parts[most].what);
    else
        snprintf(c->reason, sizeof(c->reason),
                 "%.1f %% slower, %.3g s more for %s",
                 100 * (e->step_s / b->step_s - 1), parts[most].more,
                 parts[most].what);
}

void plait_choices_explain(struct plait_choices *found)
{
    for (int i = 1; i < found->n; i++)
        explain(&found->choice[i], &found->choice[0]);
}

static int fewest_within(const struct plait_job_config *config,
                         const struct plait_gpu_type *gpu, double room)
{
    struct plait_gpu_type less = *gpu;

    less.memory = room;
    return plait_auto_fewest(config, &less);
}

int plait_auto_fewest_free(const struct plait_job_config *config,
                           const struct plait_gpu_type *gpu)
{
    return fewest_within(config, gpu, plait_gpu_type_room(gpu));
}

int plait_auto_why(const struct plait_choices *found,
                   const struct plait_job_config *config, int gpus,
                   const struct plait_gpu_type *gpu, struct plait_error *err)
{
    char more[48] = "", room[64] = "";
    int fewest;

    errno = EINVAL;
    if (found->tried == 0 && found->uneven)
        return plait_errorf(
            err,
            "%s: no layout of %d GPU%s has several of the ranks that share "
            "weights on each of several nodes",
            config->parallel.shard_group == PLAIT_SHARD_NODE
                ? "parallel.shard_group node"
                : "parallel.all_reduce hierarchical",
            gpus, gpus == 1 ? "" : "s");
    if (found->tried == 0 && plait_fits_trainer_on(config, gpu, err) < 0)
        return -1;
    if (found->tried == 0)
        return plait_errorf(err,
                            "this model's heads and layers and its batch of "
                            "%d are not divisible by any layout of %d GPU%s",
                            config->train.global_batch, gpus,
                            gpus == 1 ? "" : "s");
    fewest = fewest_within(config, gpu, found->room);
    if (fewest > gpus)
        snprintf(more, sizeof(more), "; %d GPUs could hold it", fewest);
    if (found->room < gpu->memory)
        snprintf(room, sizeof(room), ", of which %.1f GB are left free",
                 (gpu->memory - found->room) / 1e9);
    errno = ENOMEM;
    return plait_errorf(err,
                        "none of %ld layouts fits: the smallest needs %.1f GB "
                        "of the %.0f GB of each %s%s%s",
                        found->tried, found->least_memory / 1e9,
                        gpu->memory / 1e9, gpu->name, room, more);
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* asprintf */
#include "topology/cli/hand_over.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [HAND_OVER_MEGATRON] = "megatron",
    [HAND_OVER_DEEPSPEED] = "deepspeed",
    [HAND_OVER_TORCHTITAN] = "torchtitan",
    [HAND_OVER_NEMO] = "nemo",
    [HAND_OVER_JAX] = "jax",
    [HAND_OVER_LIGHTNING] = "lightning",
    [HAND_OVER_ACCELERATE] = "accelerate",
};
enum { NTRAINERS = sizeof(names) / sizeof(names[0]) };

int hand_over_parse(const char *what, const char *text, enum hand_over *to,
                    struct plait_error *err)
{
    for (int i = HAND_OVER_MEGATRON; i < NTRAINERS; i++)
        if (strcmp(text, names[i]) == 0) {
            *to = (enum hand_over)i;
            return 0;
        }
    errno = EINVAL;
    return plait_errorf(err,
                        "--%s=%.40s: must be megatron, deepspeed, "
                        "torchtitan, nemo, jax, lightning or accelerate",
                        what, text);
}

/* The order of the axes that are longer than 1, ep aside: it is counted inside
 * cp and dp. */
static void short_order(const struct plait_layout *layout, char order[16])
{
    size_t used = 0;

    order[0] = '\0';
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (layout->order[i] != PLAIT_EP && layout->size[layout->order[i]] > 1)
            used += (size_t)snprintf(order + used, 16 - used, "%s%s",
                                     used ? "-" : "",
                                     plait_axis_names[layout->order[i]]);
}

/* Do the axes of `layout` stand in the order of `wanted`? */
static bool follows(const struct plait_layout *layout, const char *wanted)
{
    char order[16], *save;
    const char *at = wanted;

    short_order(layout, order);
    for (char *axis = strtok_r(order, "-", &save); axis && at;
         axis = strtok_r(NULL, "-", &save))
        at = strstr(at, axis);
    return at != NULL;
}

static bool megatron_swaps(const struct plait_layout *layout)
{
    return !follows(layout, "tp-cp-dp-pp");
}

/* Are its groups of experts those of tp-cp-ep-dp-pp, or of Megatron's other
 * order, tp-cp-ep-pp-dp? With one replica of the experts ep is all of cp and
 * dp, wherever it stands among them. */
static bool experts_follow(const struct plait_layout *layout)
{
    const int *n = layout->size;
    int at[PLAIT_NAXES];

    for (int i = 0; i < PLAIT_NAXES; i++)
        at[layout->order[i]] = i;
    if (n[PLAIT_EP] == 1)
        return true;
    if (megatron_swaps(layout))
        return at[PLAIT_EP] < at[PLAIT_PP];
    return at[PLAIT_EP] < at[PLAIT_DP] ||
           n[PLAIT_CP] * n[PLAIT_DP] == n[PLAIT_EP];
}

/* torchtitan and DeepSpeed spread experts over tp too, and DeepSpeed's mesh has
 * one axis beside dp. */
static int check_pairs(enum hand_over to, const struct plait_layout *layout,
                       struct plait_error *err)
{
    const int *n = layout->size;

    if ((to != HAND_OVER_TORCHTITAN && to != HAND_OVER_DEEPSPEED) ||
        n[PLAIT_TP] == 1)
        return 0;
    errno = EINVAL;
    if (n[PLAIT_EP] > 1)
        return plait_errorf(err,
                            "%s spreads experts over tp too: with "
                            "--tp=%d and --ep=%d its groups are not the "
                            "plan's",
                            names[to], n[PLAIT_TP], n[PLAIT_EP]);
    if (to == HAND_OVER_DEEPSPEED && n[PLAIT_CP] > 1)
        return plait_errorf(err,
                            "deepspeed has tp or cp beside dp, and the plan "
                            "has --tp=%d and --cp=%d",
                            n[PLAIT_TP], n[PLAIT_CP]);
    return 0;
}

/* What makes a trainer's mesh may have fewer axes than a plan. */
static int check_axes(enum hand_over to, const struct plait_layout *layout,
                      struct plait_error *err)
{
    static const enum plait_axis lacking[] = {PLAIT_EP, PLAIT_PP, PLAIT_CP};
    const int *size = layout->size;
    int n = to == HAND_OVER_LIGHTNING ? 3 : to == HAND_OVER_ACCELERATE ? 2 : 0;

    if (to == HAND_OVER_DEEPSPEED && size[PLAIT_PP] > 1) {
        errno = EINVAL;
        return plait_errorf(
            err,
            "deepspeed's JSON has no pp, and the plan has --pp=%d: its "
            "PipelineModule takes "
            "topology=PipeModelDataParallelTopology(%d, %d, %d)",
            size[PLAIT_PP], size[PLAIT_PP], size[PLAIT_TP],
            size[PLAIT_CP] * size[PLAIT_DP]);
    }

    for (int i = 0; i < n; i++)
        if (layout->size[lacking[i]] > 1) {
            errno = EINVAL;
            return plait_errorf(
                err, "%s has no %s, and the plan has --%s=%d",
                to == HAND_OVER_LIGHTNING ? "lightning's ModelParallelStrategy"
                                          : "accelerate's ParallelismConfig",
                plait_axis_names[lacking[i]], plait_axis_names[lacking[i]],
                layout->size[lacking[i]]);
        }
    return 0;
}

int hand_over_check(enum hand_over to, const struct plait_layout *layout,
                    struct plait_error *err)
{
    char order[16];

    if (check_axes(to, layout, err) < 0 || check_pairs(to, layout, err) < 0)
        return -1;
    /* JAX's mesh has no ep and takes any order, Megatron one more than the
     * others. */
    if (to == HAND_OVER_JAX ||
        (experts_follow(layout) &&
         (follows(layout, "tp-cp-dp-pp") ||
          (to == HAND_OVER_MEGATRON && follows(layout, "tp-cp-pp-dp")))))
        return 0;
    plait_layout_format_order(layout, order);
    errno = EINVAL;
    return plait_errorf(err,
                        "%s cannot keep to --rank-order=%s; it counts "
                        "tp-cp-ep-dp-pp",
                        names[to], order);
}

static char *format_jax(const struct plait_layout *layout)
{
    char shape[96] = "", axes[96] = "", *text;
    size_t s = 0, a = 0;

    for (int i = PLAIT_NAXES - 1; i >= 0; i--) {
        enum plait_axis axis = layout->order[i];

        if (axis == PLAIT_EP)
            continue;
        s += (size_t)snprintf(shape + s, sizeof(shape) - s, "%s%d",
                              s ? ", " : "", layout->size[axis]);
        a += (size_t)snprintf(axes + a, sizeof(axes) - a, "%s\"%s\"",
                              a ? ", " : "", plait_axis_names[axis]);
    }
    return asprintf(&text, "{\"mesh_shape\": [%s], \"axis_names\": [%s]}",
                    shape, axes) < 0
               ? NULL
               : text;
}

/* For Lightning's command line. ModelParallelStrategy wants a model that cuts
 * itself over tp, which without tp it need not. */
static char *format_lightning(const int *n)
{
    char *text;
    int rc;

    if (n[PLAIT_TP] == 1)
        rc = asprintf(&text, "--trainer.strategy=ddp");
    else
        rc = asprintf(&text,
                      "--trainer.strategy=ModelParallelStrategy "
                      "--trainer.strategy.data_parallel_size=%d "
                      "--trainer.strategy.tensor_parallel_size=%d",
                      n[PLAIT_DP], n[PLAIT_TP]);
    return rc < 0 ? NULL : text;
}

/* Variables that Accelerator() reads: `accelerate launch`, whose arguments they
 * would be, is left out under a plan. It refuses FSDP with nothing to shard. */
static char *format_accelerate(const int *n)
{
    bool shards = n[PLAIT_DP] > 1 || n[PLAIT_CP] > 1;
    char *text;

    return asprintf(&text,
                    "ACCELERATE_USE_PARALLELISM_CONFIG=true "
                    "PARALLELISM_CONFIG_DP_REPLICATE_SIZE=1 "
                    "PARALLELISM_CONFIG_DP_SHARD_SIZE=%d "
                    "PARALLELISM_CONFIG_CP_SIZE=%d "
                    "PARALLELISM_CONFIG_TP_SIZE=%d%s",
                    n[PLAIT_DP], n[PLAIT_CP], n[PLAIT_TP],
                    shards ? " ACCELERATE_USE_FSDP=true FSDP_VERSION=2" : "") <
                   0
               ? NULL
               : text;
}

/* The keys that deepspeed.initialize() makes groups of: with cp it wants to
 * know dp too, and an axis of size 1 is none. */
static char *format_deepspeed(const int *n)
{
    char keys[192] = "", *text;
    size_t used = 0;

    if (n[PLAIT_TP] > 1)
        used += (size_t)snprintf(keys, sizeof(keys),
                                 ", \"tensor_parallel\": {\"autotp_size\": %d}",
                                 n[PLAIT_TP]);
    if (n[PLAIT_CP] > 1)
        used += (size_t)snprintf(keys + used, sizeof(keys) - used,
                                 ", \"data_parallel_size\": %d, "
                                 "\"sequence_parallel_size\": %d",
                                 n[PLAIT_DP], n[PLAIT_CP]);
    if (n[PLAIT_EP] > 1)
        used += (size_t)snprintf(keys + used, sizeof(keys) - used,
                                 ", \"expert_parallel\": {\"enabled\": true, "
                                 "\"autoep_size\": %d}",
                                 n[PLAIT_EP]);
    return asprintf(&text, "{%s}", keys + (used ? 2 : 0)) < 0 ? NULL : text;
}

/* It refuses CUDA graphs beside stages. */
static char *format_torchtitan(const int *n)
{
    char *text;

    return asprintf(
               &text,
               "--parallelism.data_parallel_replicate_degree=1 "
               "--parallelism.data_parallel_shard_degree=%d "
               "--parallelism.context_parallel_degree=%d "
               "--parallelism.tensor_parallel_degree=%d "
               "--parallelism.pipeline_parallel_degree=%d "
               "--parallelism.expert_parallel_degree=%d%s",
               n[PLAIT_DP], n[PLAIT_CP], n[PLAIT_TP], n[PLAIT_PP], n[PLAIT_EP],
               n[PLAIT_PP] > 1 ? " --training.disable_cuda_graphs" : "") < 0
               ? NULL
               : text;
}

char *hand_over_format(enum hand_over to, const struct plait_layout *layout)
{
    const int *n = layout->size;
    int tp = n[PLAIT_TP], cp = n[PLAIT_CP], ep = n[PLAIT_EP], pp = n[PLAIT_PP],
        rc = -1;
    char *text = NULL;

    if (to == HAND_OVER_JAX)
        return format_jax(layout);
    if (to == HAND_OVER_DEEPSPEED)
        return format_deepspeed(n);
    if (to == HAND_OVER_LIGHTNING)
        return format_lightning(n);
    if (to == HAND_OVER_ACCELERATE)
        return format_accelerate(n);
    if (to == HAND_OVER_TORCHTITAN)
        return format_torchtitan(n);
    if (to == HAND_OVER_MEGATRON)
        rc = asprintf(&text,
                      "--tensor-model-parallel-size %d "
                      "--context-parallel-size %d "
                      "--expert-model-parallel-size %d "
                      "--pipeline-model-parallel-size %d%s",
                      tp, cp, ep, pp,
                      megatron_swaps(layout) ? " --use-tp-pp-dp-mapping" : "");
    if (to == HAND_OVER_NEMO)
        rc = asprintf(&text,
                      "{\"tensor_model_parallel_size\": %d, "
                      "\"context_parallel_size\": %d, "
                      "\"expert_model_parallel_size\": %d, "
                      "\"pipeline_model_parallel_size\": %d}",
                      tp, cp, ep, pp);
    return rc < 0 ? NULL : text;
}

char **hand_over_append(const struct plait_layout *layout, char **command)
{
    char *text = hand_over_format(HAND_OVER_MEGATRON, layout), *save;
    size_t n = 0;
    char **all;

    while (command[n])
        n++;
    all = text ? calloc(n + 16, sizeof(*all)) : NULL;
    if (!all) {
        free(text);
        return NULL;
    }
    memcpy(all, command, n * sizeof(*all));
    for (char *word = strtok_r(text, " ", &save); word;
         word = strtok_r(NULL, " ", &save))
        all[n++] = word;
    return all;
}

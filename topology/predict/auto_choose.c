/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/auto.h"

/* The sizes of a layout, where some are left to be found. */

/* Take the sizes that the file names and no flag does. Returns the new
 * `given`. */
static unsigned take_sizes(struct plait_layout *layout, unsigned given,
                           const struct plait_job_config *config)
{
    unsigned more = config->sizes_given & ~given;

    for (int i = 0; i < PLAIT_NAXES; i++)
        if (more & 1u << i)
            layout->size[i] = config->parallel.layout.size[i];
    return given | more;
}

static int choose_sizes(struct plait_layout *layout,
                        const struct plait_job_config *config, int gpus,
                        const struct plait_gpu_type *gpu,
                        struct plait_error *err)
{
    struct plait_choices *found =
        plait_auto_sizes_create(config, layout, gpus, gpu, 1);
    int rc = 0;

    if (!found)
        return plait_errorf(err, "out of memory");
    if (found->n)
        *layout = found->choice[0].layout;
    else
        rc = plait_auto_why(found, config, gpus, gpu, err);
    plait_choices_destroy(found);
    return rc;
}

/* Where only tp is auto: as many of a node's GPUs as divide the rest, and dp
 * what is left. */
static void take_node(struct plait_layout *l, unsigned given, int gpus,
                      int per_node)
{
    const int *size = l->size;
    int others = size[PLAIT_CP] * size[PLAIT_PP], tp = per_node;

    if (size[PLAIT_TP] != PLAIT_AUTO || given >> PLAIT_DP & 1 ||
        size[PLAIT_CP] == PLAIT_AUTO || size[PLAIT_PP] == PLAIT_AUTO ||
        others < 1 || gpus % others)
        return;
    while (tp > 1 && (per_node % tp || gpus / others % tp))
        tp--;
    l->size[PLAIT_TP] = tp > 0 ? tp : 1;
}

/* Sizes that are given and fit no number of the others. */
static int check_given(const struct plait_layout *wanted, int gpus,
                       struct plait_error *err)
{
    struct plait_layout others = *wanted;
    bool open = false;

    others.size[PLAIT_EP] = 1;
    for (int i = 0; i < PLAIT_NAXES; i++) {
        if (others.size[i] == PLAIT_AUTO && open)
            others.size[i] = 1;
        open |= others.size[i] == PLAIT_AUTO;
    }
    return plait_layout_resolve(&others, gpus, err);
}

/* The tasks of a node within which tp groups must stay; 0: anything. */
static int tasks_of_node(const struct plait_layout *layout, int gpus,
                         int per_node)
{
    return layout->order[0] == PLAIT_TP && gpus > per_node && per_node > 0 &&
                   gpus % per_node == 0
               ? per_node
               : 0;
}

int plait_layout_choose(struct plait_layout *layout, unsigned given,
                        const struct plait_job_config *config, int gpus,
                        const struct plait_gpu_type *gpu,
                        struct plait_error *err)
{
    struct plait_layout wanted = *layout;
    int open = 0;

    if (config)
        given = take_sizes(&wanted, given, config);
    for (int i = 0; i < PLAIT_NAXES; i++)
        open |= i != PLAIT_EP && i != PLAIT_DP && wanted.size[i] == PLAIT_AUTO;
    if (config && open) {
        if (!(given & 1u << PLAIT_DP))
            wanted.size[PLAIT_DP] = PLAIT_AUTO;
        for (int i = 0; i < PLAIT_NAXES; i++)
            if (wanted.unnamed & 1u << i && wanted.size[i] == PLAIT_AUTO)
                wanted.size[i] = 1;
        if (check_given(&wanted, gpus, err) < 0 ||
            choose_sizes(&wanted, config, gpus, gpu, err) < 0)
            return -1;
    } else {
        take_node(&wanted, given, gpus, gpu->per_node);
        plait_layout_leave_out(&wanted, given);
        if (plait_layout_resolve_on(&wanted, gpus,
                                    tasks_of_node(&wanted, gpus, gpu->per_node),
                                    err) < 0)
            return -1;
    }
    *layout = wanted;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/parallel.h"

#include <errno.h>
#include <stdlib.h>

static const char *const group_names[PLAIT_NGROUPS] = {
    [PLAIT_GROUP_TP] = "tp",
    [PLAIT_GROUP_CP] = "cp",
    [PLAIT_GROUP_EP] = "ep",
    [PLAIT_GROUP_DP] = "dp",
    [PLAIT_GROUP_PP] = "pp",
    [PLAIT_GROUP_DP_CP] = "dp-cp",
    [PLAIT_GROUP_EXPERT_DP] = "expert-dp",
    [PLAIT_GROUP_TP_PP] = "tp-pp",
};

/* Groups of one kind are disjoint: the lowest member names the group. */
static int split_group(struct plait_parallel *par, enum plait_group group,
                       int *members, struct plait_error *err)
{
    plait_layout_group(&par->layout, group, par->rank, members);
    return plait_comm_split(par->world, members[0], par->rank,
                            group_names[group], &par->group[group], err);
}

static int split_embedding(struct plait_parallel *par, struct plait_error *err)
{
    int pp = par->layout.size[PLAIT_PP], at = par->coord.at[PLAIT_PP];
    struct plait_coord first = par->coord;
    int color = -1;

    if (pp == 1)
        return 0;
    first.at[PLAIT_PP] = 0;
    if (at == 0 || at == pp - 1)
        color = plait_layout_rank(&par->layout, &first);
    return plait_comm_split(par->world, color, at, "embedding",
                            &par->embedding, err);
}

struct plait_parallel *plait_parallel_create(const struct plait_ops *ops,
                                             struct plait_device *dev,
                                             struct plait_comm *world,
                                             const struct plait_layout *layout,
                                             struct plait_error *err)
{
    struct plait_parallel *par = calloc(1, sizeof(*par));
    int *members = calloc(plait_comm_size(world), sizeof(*members));
    int group;

    if (!par || !members) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    par->ops = ops;
    par->dev = dev;
    par->world = world;
    par->layout = *layout;
    par->rank = plait_comm_rank(world);
    par->world_size = plait_comm_size(world);
    if (plait_layout_world(layout) != par->world_size) {
        plait_errorf(err, "the layout is for %d ranks, the world has %d",
                     plait_layout_world(layout), par->world_size);
        errno = EINVAL;
        goto error;
    }
    plait_layout_coord(layout, par->rank, &par->coord);
    par->q = ops->queue_create(dev, 0);
    if (!par->q) {
        plait_errorf(err, "cannot create the compute queue");
        goto error;
    }
    for (group = 0; group < PLAIT_NGROUPS; group++)
        if (split_group(par, group, members, err) < 0)
            goto error;
    if (split_embedding(par, err) < 0)
        goto error;
    free(members);
    return par;

error:
    free(members);
    plait_parallel_destroy(par);
    return NULL;
}

void plait_parallel_set_trace(struct plait_parallel *par,
                              struct plait_trace *trace)
{
    int group;

    par->trace = trace;
    for (group = 0; group < PLAIT_NGROUPS; group++)
        plait_comm_set_trace(par->group[group], trace);
    if (par->embedding)
        plait_comm_set_trace(par->embedding, trace);
}

void plait_parallel_destroy(struct plait_parallel *par)
{
    int saved = errno;
    int group;

    if (!par)
        return;
    plait_comm_destroy(par->embedding);
    for (group = PLAIT_NGROUPS - 1; group >= 0; group--)
        plait_comm_destroy(par->group[group]);
    if (par->q)
        par->ops->queue_destroy(par->q);
    free(par);
    errno = saved;
}

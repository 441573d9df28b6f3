/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/train/figures.h"

/* -- configuration ------------------------------------------------------- */

static int read_config(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err)
{
    size_t size = 0;
    char *text = NULL;
    int rc = 0;

    if (plait_comm_rank(s->world) == 0)
        rc = plait_config_read(args->config, &text, &size, err);
    if (plait_hand_out(s->world, rc, &text, &size, err) < 0)
        return -1;
    s->config = plait_config_parse(args->config, text, size, args->set,
                                   args->nset, err);
    free(text);
    return plait_agree(s->world, s->config ? 0 : -1, err);
}

/* -- layout -------------------------------------------------------------- */

static int *config_size(struct plait_config *c, enum plait_axis axis)
{
    struct plait_parallel_config *p = &c->parallel;
    int *sizes[PLAIT_NAXES] = {&p->tp, &p->cp, &p->ep, &p->dp, &p->pp};

    return sizes[axis];
}

/* parallel_given has its bits in the order tp, cp, ep, pp, dp. */
static bool given(const struct plait_config *c, enum plait_axis axis)
{
    static const int bit[PLAIT_NAXES] = {0, 1, 2, 4, 3};

    return c->parallel_given & 1u << bit[axis];
}

/* The plan decides; a configuration that says otherwise is refused. */
static int follow_launch(struct plait_session *s, struct plait_layout *layout,
                         struct plait_error *err)
{
    int axis;

    *layout = s->launch.layout;
    for (axis = 0; axis < PLAIT_NAXES; axis++) {
        int want = *config_size(s->config, axis);

        if (given(s->config, axis) && want != PLAIT_AUTO &&
            want != layout->size[axis])
            return plait_errorf(err,
                                "parallel.%s is %d, but the job was started "
                                "with %s %d: leave it out of the "
                                "configuration, or use srun --%s=%d",
                                plait_axis_names[axis], want,
                                plait_axis_names[axis], layout->size[axis],
                                plait_axis_names[axis], want);
    }
    return 0;
}

static int follow_config(struct plait_session *s, struct plait_layout *layout,
                         struct plait_error *err)
{
    int axis;

    plait_layout_init(layout);
    for (axis = 0; axis < PLAIT_NAXES; axis++)
        layout->size[axis] = *config_size(s->config, axis);
    return plait_layout_resolve(layout, plait_comm_size(s->world), err);
}

static int resolve_layout(struct plait_session *s, struct plait_layout *layout,
                          struct plait_error *err)
{
    const struct plait_train_config *t = &s->config->train;
    int axis, dp;

    if (s->planned ? follow_launch(s, layout, err) < 0
                   : follow_config(s, layout, err) < 0)
        return -1;
    for (axis = 0; axis < PLAIT_NAXES; axis++)
        *config_size(s->config, axis) = layout->size[axis];
    dp = layout->size[PLAIT_DP];
    if (t->global_batch % ((int64_t)dp * t->micro_batch))
        return plait_errorf(err,
                            "train.global_batch %d is not a multiple of dp %d "
                            "* train.micro_batch %d",
                            t->global_batch, dp, t->micro_batch);
    return 0;
}

/* Which node this is: equal for the ranks of one. Without a plan, hosts are
 * told apart by their names (FNV-1a). */
static uint64_t node_id(const struct plait_session *s)
{
    uint64_t id = 0xcbf29ce484222325u;
    char name[256] = "";
    const char *c;

    if (s->planned)
        return s->launch.node_rank;
    gethostname(name, sizeof(name) - 1);
    for (c = name; *c; c++)
        id = (id ^ (unsigned char)*c) * 0x100000001b3u;
    return id;
}

#define EXPERTS_USE (1u << PLAIT_GROUP_EP | 1u << PLAIT_GROUP_EXPERT_DP)

static int open_parallel(struct plait_session *s,
                         const struct plait_layout *layout,
                         const struct plait_figures *figures,
                         struct plait_error *err)
{
    plait_comm_set_network(s->world, &figures->network, node_id(s));
    s->par = plait_parallel_create(s->ops, s->dev, s->world, layout, err);
    if (plait_agree(s->world, s->par ? 0 : -1, err) < 0)
        return -1;
    s->par->node = node_id(s);
    s->par->gpu = figures->gpu;
    if (s->config->model.experts &&
        plait_agree(s->world, plait_parallel_need(s->par, EXPERTS_USE, err),
                    err) < 0)
        return -1;
    return plait_agree(
        s->world,
        plait_parallel_divide(s->par, &s->config->parallel, s->par->node, err),
        err);
}

/* -- life ---------------------------------------------------------------- */

static int open_world(struct plait_session *s, const char *device,
                      struct plait_error *err)
{
    struct plait_world world;
    int rc = plait_world_open(&world, device, err);

    s->launch = world.launch;
    s->planned = world.planned;
    s->ops = world.ops;
    s->dev = world.dev;
    s->world = world.comm;
    return rc;
}

static int find_figures(struct plait_session *s, struct plait_figures *figures,
                        struct plait_error *err)
{
    const struct plait_world world = {.launch = s->launch,
                                      .planned = s->planned,
                                      .ops = s->ops,
                                      .dev = s->dev,
                                      .comm = s->world};

    return plait_figures_find(&world, figures, err);
}

int plait_session_open(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err)
{
    struct plait_figures figures;
    struct plait_layout layout;

    memset(s, 0, sizeof(*s));
    if (open_world(s, args->device, err) < 0 || read_config(s, args, err) < 0)
        return -1;
    if (plait_agree(s->world, resolve_layout(s, &layout, err), err) < 0)
        return -1;
    if (find_figures(s, &figures, err) < 0)
        return -1;
    return open_parallel(s, &layout, &figures, err);
}

void plait_session_close(struct plait_session *s)
{
    plait_parallel_destroy(s->par);
    plait_config_destroy(s->config);
    plait_comm_destroy(s->world);
    if (s->dev)
        s->ops->device_destroy(s->dev);
}

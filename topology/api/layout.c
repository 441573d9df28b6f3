/* SPDX-License-Identifier: Apache-2.0 */
/* The public library: ranks, coordinates and groups of a layout. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topology/layout/layout.h"

static bool is_axis(enum plait_axis axis)
{
    return (unsigned)axis < PLAIT_NAXES;
}

static bool is_rank(const struct plait_layout *layout, int rank)
{
    return rank >= 0 && rank < plait_layout_world(layout);
}

static int refuse_argument(void)
{
    errno = EINVAL;
    return -1;
}

const char *plait_axis_name(enum plait_axis axis)
{
    return is_axis(axis) ? plait_axis_names[axis] : NULL;
}

struct plait_layout *plait_layout_create(const int size[PLAIT_NAXES],
                                         const char *order, int world,
                                         struct plait_error *err)
{
    struct plait_layout *layout = malloc(sizeof(*layout));

    if (!layout) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    plait_layout_init(layout);
    memcpy(layout->size, size, sizeof(layout->size));
    if (order && plait_layout_parse_order(order, layout->order, err) < 0)
        goto error;
    if (plait_layout_resolve(layout, world, err) < 0)
        goto error;
    return layout;
error:
    plait_layout_destroy(layout);
    return NULL;
}

void plait_layout_destroy(struct plait_layout *layout)
{
    int saved = errno;

    free(layout);
    errno = saved;
}

int plait_layout_size(const struct plait_layout *layout, enum plait_axis axis)
{
    return is_axis(axis) ? layout->size[axis] : refuse_argument();
}

int plait_layout_coordinate(const struct plait_layout *layout, int rank,
                            enum plait_axis axis)
{
    struct plait_coord coord;

    if (!is_axis(axis) || !is_rank(layout, rank))
        return refuse_argument();
    plait_layout_coord(layout, rank, &coord);
    return coord.at[axis];
}

int plait_layout_find_rank(const struct plait_layout *layout,
                           const int at[PLAIT_NAXES])
{
    struct plait_coord coord;

    for (int i = 0; i < PLAIT_NAXES; i++)
        if (i != PLAIT_EP && (at[i] < 0 || at[i] >= layout->size[i]))
            return refuse_argument();
    memcpy(coord.at, at, sizeof(coord.at));
    return plait_layout_rank(layout, &coord);
}

int plait_layout_members(const struct plait_layout *layout,
                         enum plait_group group, int rank, int *members,
                         int most)
{
    int *all, n;

    if ((unsigned)group >= PLAIT_NGROUPS || !is_rank(layout, rank) || most < 0)
        return refuse_argument();
    all = malloc((size_t)plait_layout_world(layout) * sizeof(*all));
    if (!all)
        return -1;
    n = plait_layout_group(layout, group, rank, all);
    most = n < most ? n : most;
    if (most > 0)
        memcpy(members, all, (size_t)most * sizeof(*all));
    free(all);
    return n;
}

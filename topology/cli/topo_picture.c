/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/cli/topo_picture.h"

#include <stdlib.h>

static double row_width(int ncards)
{
    return ncards * CARD + (ncards - 1) * GAP;
}

/* Centre of card `at` of `ncards` in the middle of a group. */
static double card_x(const struct topo_group *group, int at, int ncards)
{
    return group->x + group->width / 2 - row_width(ncards) / 2 +
           at * (CARD + GAP) + CARD / 2.0;
}

/* Behind a switch, NICs are above GPUs; devices on ports of their own are side
 * by side, so that no port's line crosses another's card. */
static void place_group(struct topo_picture *picture, struct topo_group *group,
                        const struct topo_device *devices, int ndevices)
{
    int most = group->nnics > group->ngpus ? group->nnics : group->ngpus;
    int ncards = group->is_switch ? most : ndevices, g = 0, n = 0;

    group->width = row_width(ncards) + 2 * GAP;
    for (int k = 0; k < ndevices; k++) {
        int index = devices[k].index;

        if (!group->is_switch && devices[k].is_nic)
            picture->nic_x[index] = card_x(group, k, ndevices);
        else if (!group->is_switch)
            picture->gpu_x[index] = card_x(group, k, ndevices);
        else if (devices[k].is_nic)
            picture->nic_x[index] = card_x(group, n++, group->nnics);
        else
            picture->gpu_x[index] = card_x(group, g++, group->ngpus);
    }
}

/* Divide the devices of one NUMA node into groups, left to right. */
static void place_column(struct topo_picture *picture,
                         struct topo_column *column,
                         struct topo_device *devices, int ndevices)
{
    double x = column->x + (ndevices > 1 ? GAP : 0);
    int end;

    for (int i = 0; i < ndevices; i = end) {
        struct topo_group *group = &picture->groups[picture->ngroups++];

        for (end = i + 1;
             end < ndevices && devices[end].behind == devices[i].behind;)
            end++;
        group->is_switch = devices[i].behind >= 0;
        for (int k = i; k < end; k++) {
            group->nnics += devices[k].is_nic;
            group->ngpus += !devices[k].is_nic;
        }
        group->x = x;
        place_group(picture, group, devices + i, end - i);
        x += group->width + (ndevices > 1 ? GAP : 0);
    }
    column->width = x - column->x;
    if (column->width < CARD + 2 * GAP)
        column->width = CARD + 2 * GAP;
}

static void count_cores(const struct plait_node *node,
                        struct topo_column *column)
{
    hwloc_obj_t obj = NULL;

    while (node->topology && (obj = hwloc_get_next_obj_by_type(
                                  node->topology, HWLOC_OBJ_NUMANODE, obj))) {
        if ((int)obj->os_index != column->numa)
            continue;
        column->nthreads = hwloc_bitmap_weight(obj->cpuset);
        column->ncores = hwloc_get_nbobjs_inside_cpuset_by_type(
            node->topology, obj->cpuset, HWLOC_OBJ_CORE);
    }
}

int topo_picture_place(struct topo_picture *picture)
{
    const struct plait_node *node = picture->node;
    size_t n = (size_t)(node->ngpus + node->nnics) + 1;
    int *numas = topo_numas_of(node, &picture->ncolumns);
    struct topo_device *at;
    double x = MARGIN;
    int rows = 0;

    picture->columns =
        calloc((size_t)picture->ncolumns + 1, sizeof(*picture->columns));
    picture->groups = calloc(n, sizeof(*picture->groups));
    picture->devices = calloc(n, sizeof(*picture->devices));
    picture->gpu_x = calloc(n, sizeof(*picture->gpu_x));
    picture->nic_x = calloc(n, sizeof(*picture->nic_x));
    if (!numas || !picture->columns || !picture->groups || !picture->devices ||
        !picture->gpu_x || !picture->nic_x) {
        free(numas);
        return -1;
    }
    at = picture->devices;
    for (int i = 0; i < picture->ncolumns; i++) {
        struct topo_column *column = &picture->columns[i];
        int count = topo_devices_of(node, numas[i], at);

        column->numa = numas[i];
        column->x = x;
        count_cores(node, column);
        place_column(picture, column, at, count);
        at += count;
        x += column->width + 2 * GAP;
        column->row = (int)(column->width - 2 * GAP) / CORE;
        if (column->row > CORES_PER_ROW)
            column->row = CORES_PER_ROW;
        if ((column->ncores + column->row - 1) / column->row > rows)
            rows = (column->ncores + column->row - 1) / column->row;
    }
    free(numas);
    picture->width = x - 2 * GAP + MARGIN;
    if (picture->width < 480)
        picture->width = 480;
    picture->cpu_y = 72;
    picture->cpu_height = 52 + (rows > 0 ? rows * CORE + 10 : 0);
    picture->group_y = picture->cpu_y + picture->cpu_height + 36;
    picture->nic_y = picture->group_y + 30;
    picture->gpu_y = picture->nic_y + (node->nnics > 0 ? NIC_HEIGHT + 34 : 0);
    picture->link_y = picture->gpu_y + GPU_HEIGHT + GAP;
    if (node->ngpus == 0) /* nothing below the NICs, or the processors */
        picture->link_y = node->nnics > 0
                              ? picture->nic_y + NIC_HEIGHT + GAP
                              : picture->cpu_y + picture->cpu_height;
    return 0;
}

void topo_picture_release(struct topo_picture *picture)
{
    free(picture->columns);
    free(picture->groups);
    free(picture->devices);
    free(picture->gpu_x);
    free(picture->nic_x);
}

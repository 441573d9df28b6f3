/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_TOPO_PICTURE_H
#define PLAIT_TOPOLOGY_CLI_TOPO_PICTURE_H

#include <stdio.h>

#include "topology/cli/topo_draw.h"

/* The positions of everything in the picture of a machine (topo_picture.c), for
 * topo_svg.c to draw. All lengths are in pixels. */

#define MARGIN 32
#define CARD 124 /* width of a GPU or NIC */
#define GAP 12   /* between cards, and around those of a switch */
#define NIC_HEIGHT 34
#define GPU_HEIGHT 64
#define CORE 9 /* pitch of the little squares that are cores */
#define CORES_PER_ROW 32

/* The devices of one NUMA node under one switch, or on ports of their own. */
struct topo_group {
    int is_switch;
    int ngpus, nnics;
    double x, width;
};

struct topo_column {
    int numa, ncores, nthreads; /* 0 cores: not known */
    int row;                    /* cores side by side */
    double x, width;
};

struct topo_picture {
    const struct plait_node *node;
    FILE *out;
    int ncolumns, ngroups;
    struct topo_column *columns;
    struct topo_group *groups;
    struct topo_device *devices; /* [ngpus + nnics] group after group */
    double *gpu_x, *nic_x;       /* middle of each card */
    double width;
    double cpu_y, cpu_height, group_y, nic_y, gpu_y, link_y;
};

/* Place all processors, switches and devices of picture->node. -1: out of
 * memory; call topo_picture_release() in any case. */
int topo_picture_place(struct topo_picture *picture);
void topo_picture_release(struct topo_picture *picture);

#endif

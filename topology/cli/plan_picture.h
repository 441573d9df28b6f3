/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_PLAN_PICTURE_H
#define PLAIT_TOPOLOGY_CLI_PLAN_PICTURE_H

#include <stdbool.h>
#include <stdio.h>

#include "topology/cli/cmd_plan.h"

/* The picture of a plan: which nodes are in it, and in which order. */

enum {
    PICTURE_NODES_MOST = 64, /* a page that can still be read */
    PICTURE_LEVELS_MOST = 3  /* of switches */
};

/* A node that is shown. */
struct shown {
    int node;  /* index in the order of the request */
    int nodes; /* it stands for so many */
    int rank;  /* among the shown, in the order of NODE_RANKs */
    int under[PICTURE_LEVELS_MOST]; /* by switch level: the first that is shown
                              below the same switch */
};

struct picture {
    const struct plan_job *job;
    FILE *out;
    struct shown shown[PICTURE_NODES_MOST];
    int n, most; /* nodes that are shown; tasks of the fullest */
    int box_w;
    int levels, base; /* of switches that are drawn, and the lowest of them */
    bool condensed;   /* nodes stand for others */
};

/* Choose nodes and levels for picture->job: all nodes, or where they are too
 * many one of each kind; those below one switch are neighbours, in the order of
 * their ranks. */
void plan_picture_choose(struct picture *picture);
/* The switch of this level that the i-th of the shown nodes is below, or -1: a
 * branch of a tree need not have all levels. */
int plan_picture_switch(const struct picture *picture, int i, int level);

#endif

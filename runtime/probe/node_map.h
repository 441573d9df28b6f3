/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_GRID_H
#define PLAIT_GRID_H

#include "runtime/comm/world.h"

enum { PLAIT_GRID_LEVELS = 8 };

/* Which node each rank is on, and which nodes are how far apart; the same on
 * every rank. */
struct plait_grid {
    int world, nnodes;
    int width;        /* ranks of the node with the fewest */
    int even;         /* all nodes have as many */
    int *node;        /* [world] in the order of their first rank */
    int *local;       /* [world] counting the ranks of a node */
    int *rank;        /* [nnodes][width] */
    char (*name)[64]; /* [nnodes] */
    int nlevels;      /* switch levels with a pair of nodes that they join */
    int level[PLAIT_GRID_LEVELS]; /* 1: under one leaf switch, 2: ... */
    int *partner; /* [nlevels][nnodes] disjoint pairs that far apart; -1:
                     left over */
};

/* Collective. fabric_file: the switches, read by rank 0; NULL: all nodes are
 * under one. */
int plait_grid_create(struct plait_grid *grid, struct plait_comm *world,
                      const char *fabric_file, struct plait_error *err);
void plait_grid_destroy(struct plait_grid *grid);

#endif

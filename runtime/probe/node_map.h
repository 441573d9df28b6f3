/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PROBE_NODE_MAP_H
#define PLAIT_RUNTIME_PROBE_NODE_MAP_H

#include "runtime/comm/comm.h"

enum { PLAIT_NODE_MAP_LEVELS = 8 };

/* The node of each rank, and the distance between nodes in switch levels; the
 * same on every rank. */
struct plait_node_map {
    int world, nnodes;
    int width;        /* ranks of the node that has the fewest */
    int *node;        /* [world] numbered in the order of their first ranks */
    int *local;       /* [world] the rank's number within its node */
    int *rank;        /* [nnodes][width] */
    char (*name)[64]; /* [nnodes] */
    int nlevels;      /* switch levels that join a pair of nodes */
    int level[PLAIT_NODE_MAP_LEVELS]; /* 1: under one leaf switch, 2: ... */
    int *partner; /* [nlevels][nnodes] the other node of disjoint pairs at that
                     distance; -1: none */
};

/* Collective. fabric_file: the switches, read by rank 0; NULL: all nodes are
 * under one switch. */
int plait_node_map_create(struct plait_node_map *map, struct plait_comm *world,
                          const char *fabric_file, struct plait_error *err);
void plait_node_map_destroy(struct plait_node_map *map);

#endif

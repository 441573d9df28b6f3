/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PLAN_COST_PATTERN_H
#define PLAIT_TOPOLOGY_PLAN_COST_PATTERN_H

#include "topology/plan/cost_order.h"

/* Shared by cost_pattern.c, which finds which positions communicate over which
 * fabric, and cost_order.c, which computes what that costs in an order of the
 * nodes. */

/* Ring edges between nodes, and members of all-to-all groups, in terms of
 * positions (NODE_RANKs): where nodes have equally many tasks they do not
 * depend on which node is at which position. */
struct order_edge {
    int from, to, count;
};

struct order_pattern {
    int n;     /* ranks of a group; 1: no communication */
    int local; /* most members of a group on one node */
    int span;  /* most nodes of a group */
    struct order_edge *edge;
    int nedges;
    int *member; /* all-to-all: positions, n after n */
    int nmembers;
};

struct plait_orders {
    struct plait_layout layout;
    struct plait_traffic traffic;
    struct plait_gpu_type gpu;
    int nnodes, world, even, island;
    double nics; /* bytes/s of a node's NICs, 0 unknown */
    const int *tasks;
    struct order_pattern pattern[PLAIT_NAXES];
    /* the fabric: switches and, per node, the leaf */
    int nswitches;
    int *parent, *height, *leaf, *class;
    int nclasses, levels, blocks;
    double *capacity; /* [switches] bytes/s to the outside */
    /* scratch of one evaluation */
    int *position;    /* [world] position of a rank */
    double *out, *in; /* [switches] */
    double *node_out; /* [positions] */
    int *members;     /* [world] */
    char *seen;       /* [world] */
};

/* The edges and members of every axis with traffic; order[NODE_RANK] = node
 * index, NULL: Slurm's order. -1: out of memory. */
int orders_build_patterns(struct plait_orders *orders, const int *order);

/* Network bytes/s of a node: its NICs where they are known, a share for
 * every task otherwise. Inline, as the loops over nodes call it. */
static inline double orders_node_bandwidth(const struct plait_orders *o,
                                           int node)
{
    return o->nics > 0 ? o->nics : o->tasks[node] * o->gpu.nic_bw;
}

#endif

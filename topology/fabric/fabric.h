/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_FABRIC_H
#define PLAIT_FABRIC_H

#include <stddef.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The switches between the nodes, as a forest of switches (or blocks) with
 * nodes as leaves. A node that no switch names hangs from the root. */
struct plait_fabric;

/* Guess the format from the content: topology.conf (tree or block),
 * `scontrol show topology` output, topology.yaml, a topograph model, lines of
 * "$SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN" (one per node), or
 * ibnetdiscover output. A file without any of these is flat if it is empty,
 * an error otherwise. Errors name the line. */
struct plait_fabric *plait_fabric_create(const char *path,
                                         struct plait_error *err);
struct plait_fabric *plait_fabric_parse(const char *name, const char *text,
                                        size_t size, struct plait_error *err);
/* Every node one hop from every other. */
struct plait_fabric *plait_fabric_create_flat(void);
void plait_fabric_destroy(struct plait_fabric *fabric);

/* Switch levels above the nodes: 0 flat, 1 leaves only, 2 leaf + spine. */
int plait_fabric_levels(const struct plait_fabric *fabric);

/* Lowest level that joins two nodes: 0 the same node, 1 one leaf (or one
 * block), ...; a number above plait_fabric_levels() if no switch does. */
int plait_fabric_distance(const struct plait_fabric *fabric, const char *a,
                          const char *b);

/* The tree itself, for the planner and for pictures. Switches are numbered
 * from 0; switches that share a node or a child (rails, the spines of a fat
 * tree) count as one. */
int plait_fabric_switches(const struct plait_fabric *fabric);
const char *plait_fabric_switch_name(const struct plait_fabric *fabric,
                                     int index);
/* The switch above a switch, or -1. */
int plait_fabric_parent(const struct plait_fabric *fabric, int index);
/* 1 for a leaf, 1 + the highest child otherwise. */
int plait_fabric_height(const struct plait_fabric *fabric, int index);
/* The switch a node hangs from, or -1. */
int plait_fabric_leaf(const struct plait_fabric *fabric, const char *node);
/* The leaves are blocks: NVLink domains that join several nodes. */
int plait_fabric_has_blocks(const struct plait_fabric *fabric);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_FABRIC_FABRIC_H
#define PLAIT_TOPOLOGY_FABRIC_FABRIC_H

#include <stdbool.h>

#include "topology/api/plait/fabric.h"
#include "topology/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tree, for the planner and for pictures. Switches are numbered from 0;
 * switches that share a node or a child (rails, the spines of a fat tree) count
 * as one. */
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
bool plait_fabric_has_blocks(const struct plait_fabric *fabric);
/* The first of `n` nodes that no switch has, or -1. A flat fabric has no
 * switches, and none is missing. */
int plait_fabric_lacks(const struct plait_fabric *fabric,
                       const char *const *nodes, int n);

/* plait_fabric_create() for a file that may have several topologies, as
 * topology.yaml(5): the one called `topology`. NULL: the default one, or else
 * the first that has all `n` nodes. */
struct plait_fabric *plait_fabric_create_for(const char *path,
                                             const char *topology,
                                             const char *const *nodes, int n,
                                             struct plait_error *err);
/* The name of the topology that was taken where the file has several, or
 * "". */
const char *plait_fabric_topology(const struct plait_fabric *fabric);

#ifdef __cplusplus
}
#endif
#endif

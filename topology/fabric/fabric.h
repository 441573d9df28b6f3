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

#ifdef __cplusplus
}
#endif
#endif

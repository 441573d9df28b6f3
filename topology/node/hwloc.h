/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_HWLOC_H
#define PLAIT_TOPOLOGY_NODE_HWLOC_H

#include "topology/node/node.h"

/* What discovery finds and hwloc does not is written into the hwloc topology,
 * as infos and distances, and read from there: so the cache keeps it too. */

/* Info of an OS device: the speed of its port in Mbit/s. */
#define NODE_INFO_MBPS "PlaitPortMbps"
/* Infos of a PCI device; the last two are hwloc's own words. A discovery for
 * other processes keeps only these four: discover.c. */
#define NODE_INFO_VENDOR "GPUVendor"
#define NODE_INFO_MODEL "GPUModel"
#define NODE_INFO_DEVICE "PCIDevice"

/* An empty topology whose filters keep only what is used here. */
hwloc_topology_t node_create_topology(void);

/* Takes ownership of the topology, also on failure. NULL with errno. */
struct plait_node *node_read_topology(hwloc_topology_t topology);

/* The whole machine, including what this process may not use; HWLOC_* is not
 * obeyed. */
struct plait_node *node_create_whole(struct plait_error *err);

/* Store a bandwidth matrix between PCI devices: values[n][n] in MB/s, one
 * way. Best effort. */
void node_note_links(hwloc_topology_t topology, const char *name, unsigned n,
                     hwloc_obj_t *objs, hwloc_uint64_t *values);

/* Ask NVML for names and NVLinks of the GPUs in `topology`; nothing happens
 * where there is no NVML. */
void node_note_nvml(hwloc_topology_t topology);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_HWLOC_H
#define PLAIT_TOPOLOGY_NODE_HWLOC_H

#include "topology/node/build.h"
#include "topology/node/compat.h"
#include "topology/node/node.h"

/* What discovery finds and hwloc does not is written into the hwloc topology,
 * as infos and distances, and read from there: so the cache keeps it too. */

/* Info of an OS device: the speed of its port in Mbit/s. */
#define NODE_INFO_MBPS "PlaitPortMbps"
/* Infos of a PCI device: a part of a GPU (parts.h), of which there may be
 * several; Slingshot's device. */
#define NODE_INFO_PART "PlaitPart"
#define NODE_INFO_CXI "PlaitCxi"
/* The last two are hwloc's own words. A discovery for other processes keeps
 * only these six: discover.c. */
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

/* Where a device is attached: 0, or -1 with errno. */
int node_locate(hwloc_topology_t topology, hwloc_obj_t device,
                struct node_locus *locus);
/* Add the GPUs, and the NICs, that a PCI device is; -1 with errno. */
int node_add_gpu(struct node_builder *builder, hwloc_topology_t topology,
                 hwloc_obj_t pci);
int node_add_nics(struct node_builder *builder, hwloc_topology_t topology,
                  hwloc_obj_t pci);
/* Without PCI devices (an XML written without them) the GPUs are what one of
 * the GPU libraries listed; each lists all of them, so only one is used. */
int node_add_bare_gpus(struct node_builder *builder, hwloc_topology_t topology);
/* Add the links of the bandwidth matrices with this name, after the sort. */
void node_add_links(struct node_builder *builder, hwloc_topology_t topology,
                    const char *name);

/* AMD's kernel driver numbers the GPUs as ROCm does, and lists their xGMI
 * links. `root` is "", or where a snapshot of sysfs lies. */
void node_note_kfd(hwloc_topology_t topology, const char *root);

/* Ask NVML for names, UUIDs, MIG instances and NVLinks of the GPUs in
 * `topology`; nothing happens where there is no NVML. */
void node_note_nvml(hwloc_topology_t topology);

#endif

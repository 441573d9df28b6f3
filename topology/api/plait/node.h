/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_NODE_H
#define PLAIT_NODE_H

#include <plait/error.h>
#include <plait/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one machine looks like: its GPUs and how they are wired, its NICs,
 * its cores. It does not change once it is read. */
struct plait_node;

/* The machine this process runs on. HWLOC_* in the environment is obeyed
 * only where trust_env is non-zero (never as root); otherwise these variables
 * are taken out of the environment while the machine is read, so that no other
 * thread may use the environment then. The caller owns the node, here and
 * below; NULL: `err` says why. */
PLAIT_EXPORT struct plait_node *plait_node_create(int trust_env,
                                                  struct plait_error *err);
/* From a file of hwloc XML, formats 1 and 2; format 3 is refused. */
PLAIT_EXPORT struct plait_node *plait_node_create_xml(const char *path,
                                                      struct plait_error *err);
/* From an hwloc synthetic description, "numa:2 core:4 pu:1". */
PLAIT_EXPORT struct plait_node *
plait_node_create_synthetic(const char *description, struct plait_error *err);
/* From NCCL_TOPO_DUMP_FILE output or a cloud provider's PCI skeleton. */
PLAIT_EXPORT struct plait_node *plait_node_create_nccl(const char *path,
                                                       struct plait_error *err);
/* NULL-safe, keeps errno. */
PLAIT_EXPORT void plait_node_destroy(struct plait_node *node);

/* How many there are; cores, PUs (hardware threads) and NUMA nodes are 0
 * where the source does not say. An island is a set of GPUs joined by NVLink,
 * NVSwitch or xGMI; a GPU without such links is an island of its own. */
PLAIT_EXPORT int plait_node_gpus(const struct plait_node *node);
PLAIT_EXPORT int plait_node_nics(const struct plait_node *node);
PLAIT_EXPORT int plait_node_islands(const struct plait_node *node);
PLAIT_EXPORT int plait_node_numa_nodes(const struct plait_node *node);
PLAIT_EXPORT int plait_node_cores(const struct plait_node *node);
PLAIT_EXPORT int plait_node_pus(const struct plait_node *node);

/* Of GPU `gpu`, counted in the order of the PCI bus. The texts belong to the
 * node and are "" where the source does not say; the numbers are -1 then.
 * NULL or -1 with EINVAL: no such GPU. */
PLAIT_EXPORT const char *plait_node_gpu_busid(const struct plait_node *node,
                                              int gpu); /* "0000:07:00.0" */
PLAIT_EXPORT const char *plait_node_gpu_vendor(const struct plait_node *node,
                                               int gpu); /* "nvidia" */
PLAIT_EXPORT const char *plait_node_gpu_model(const struct plait_node *node,
                                              int gpu);
PLAIT_EXPORT int plait_node_gpu_numa(const struct plait_node *node, int gpu);
PLAIT_EXPORT int plait_node_gpu_island(const struct plait_node *node, int gpu);

/* The NICs nearest to a GPU: how many, and the index of the one at `place`
 * (from 0) among them. -1 with EINVAL: no such GPU or place. */
PLAIT_EXPORT int plait_node_gpu_nics(const struct plait_node *node, int gpu);
PLAIT_EXPORT int plait_node_gpu_nic(const struct plait_node *node, int gpu,
                                    int place);

/* GB/s, one way, of the direct links between two GPUs; 0: none. -1 with
 * EINVAL: no such GPU. */
PLAIT_EXPORT double plait_node_link(const struct plait_node *node, int a,
                                    int b);

/* Of NIC `nic`: its name ("mlx5_0"), which belongs to the node, and the GB/s
 * of its port, 0 where they are unknown. NULL or -1 with EINVAL: no such
 * NIC. */
PLAIT_EXPORT const char *plait_node_nic_name(const struct plait_node *node,
                                             int nic);
PLAIT_EXPORT double plait_node_nic_bandwidth(const struct plait_node *node,
                                             int nic);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_BUILD_H
#define PLAIT_TOPOLOGY_NODE_BUILD_H

#include <stdbool.h>

#include "topology/node/node.h"

/* Shared by the readers of node descriptions: they add the GPUs and NICs they
 * find, sort them, join GPUs by links, and have the rest computed. */

#define NODE_BRIDGES_MOST 32
/* Bytes of an NCCL topology. */
#define NODE_NCCL_MOST (16 << 20)
/* Far more than any machine has: a file with more is broken. */
#define NODE_DEVICES_MOST 512

/* Where a device is attached: the host bridge, then bridge by bridge
 * downwards. */
struct node_locus {
    int numa;          /* -1 unknown */
    const void *place; /* identifies the part of the host near the device, where
                          that is not one NUMA node; NULL: the whole host */
    const void *host;  /* identifies the host bridge */
    int nbridges;
    const void *bridges[NODE_BRIDGES_MOST];
};

struct node_builder {
    struct plait_node *node;
    struct node_locus *gpus; /* [ngpus] */
    struct node_locus *nics; /* [nnics] */
    /* Bridges between a switch and a device on it: 1 where the source lists a
     * switch's ports (hwloc), 0 where it lists switches (NCCL). */
    int switch_depth;
};

/* 0, or -1 with errno (E2BIG: more than NODE_DEVICES_MOST). */
int node_builder_init(struct node_builder *builder, int switch_depth);
/* Both clean the texts, which come from files. */
int node_builder_add_gpu(struct node_builder *builder,
                         const struct plait_gpu *gpu,
                         const struct node_locus *locus);
int node_builder_add_nic(struct node_builder *builder,
                         const struct plait_nic *nic,
                         const struct node_locus *locus);

/* Of GPUs in their final order: their numbers; and links between the parts of a
 * device, where none are known. Both are called by the functions below. */
void node_number_gpus(struct plait_node *node);
void node_join_parts(struct plait_node *node);

/* All devices are in: put them in bus order and make room for the links. */
int node_builder_sort(struct node_builder *builder);
/* Links between GPUs, each stated by one of its ends; to be joined after the
 * sort. 0, or -1 with errno. */
struct node_link {
    char from[16], to[16]; /* bus ids; `to` is unset if to_switch */
    int part;              /* of the GPU `from` */
    int count;
    int to_switch;
    double gbps; /* of one link, one way */
};
int node_builder_join(struct node_builder *builder,
                      const struct node_link *links, int nlinks);
/* Index of a GPU after sorting, -1 if there is none there. */
int node_builder_find_gpu(const struct node_builder *builder,
                          const char *busid);
/* Islands, distances, and each GPU's NICs from devices and links. The node
 * then belongs to the caller. NULL with errno. */
struct plait_node *node_builder_finish(struct node_builder *builder);
/* Drop everything; keeps errno. */
void node_builder_abandon(struct node_builder *builder);

/* Write "0000:07:00.0"; `busid` holds 16 bytes. */
void node_format_busid(unsigned domain, unsigned bus, unsigned dev,
                       unsigned func, char *busid);
/* Read "7:0.0", "0000:07:00.0" or "00000000:07:00.0"; 0, or -1. */
int node_parse_busid(const char *text, unsigned *domain, unsigned *bus,
                     unsigned *dev, unsigned *func);

/* If this PCI function is a GPU that can train, its vendor's short name, else
 * NULL. `vendor` and `device` are 0 where unknown. */
const char *node_gpu_vendor(unsigned class_id, unsigned vendor,
                            unsigned device);
/* One NVLink in one direction by the vendor's data sheet, in GB/s. `sm` is 10 *
 * compute capability, 0 unknown. */
double node_nvlink_gbps(int sm);
/* One xGMI link in one direction by AMD's data sheet, in GB/s. `gcn` is the GPU
 * generation in hexadecimal (0x90a for gfx90a), which node_parse_gcn() reads
 * from RCCL's gcn attribute (NULL: 0). */
double node_xgmi_gbps(int gcn);
int node_parse_gcn(const char *text);
/* How many tiles a GPU with these ids has, 1 if it has none. */
int node_gpu_tiles(unsigned vendor, unsigned device);
/* The name of a GPU model, "" if these ids are not known here. */
const char *node_gpu_model(unsigned vendor, unsigned device);
/* Is this PCI function a NIC made for message passing (InfiniBand, EFA,
 * Slingshot, Omni-Path)? */
bool node_is_fabric_nic(unsigned class_id, unsigned vendor, unsigned device);
bool node_is_slingshot(unsigned vendor, unsigned device);
/* By its name and its vendor (0 unknown). */
enum plait_nic_kind node_nic_kind(const char *name, unsigned vendor);

#endif

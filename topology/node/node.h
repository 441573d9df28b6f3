/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_NODE_H
#define PLAIT_TOPOLOGY_NODE_NODE_H

#include <hwloc.h>
#include <stdbool.h>
#include <stddef.h>

#include "topology/api/plait/node.h"
#include "topology/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one machine looks like: its GPUs and how they are wired, its NICs,
 * its cores. Read from the live machine, an hwloc XML, an hwloc synthetic
 * description or an NCCL topology XML. */

/* How far two PCI devices are apart, NCCL's and nvidia-smi's terms, nearest
 * first. */
enum plait_distance {
    PLAIT_DIST_SELF,
    PLAIT_DIST_PIX,  /* one PCIe switch */
    PLAIT_DIST_PXB,  /* several PCIe switches, no host bridge */
    PLAIT_DIST_PHB,  /* one host bridge */
    PLAIT_DIST_NODE, /* one NUMA node, several host bridges */
    PLAIT_DIST_SYS   /* across NUMA nodes */
};

/* What the vendor's library counts as a GPU: a PCI device or, where it is
 * divided, a part of it (a partition of an MI300, a MIG instance, a tile). */
struct plait_gpu {
    int index;       /* in PCI bus order, the parts of a device in theirs */
    int number;      /* by which the variable that lists visible GPUs names it,
                        -1 unknown: of NVIDIA's and Intel's in PCI bus order, of
                        AMD's in the order of the kernel's driver */
    int part, parts; /* its place in the PCI device, and how many that has */
    int file;        /* number of its render device file, -1 unknown */
    char uuid[64];   /* "GPU-...", "MIG-...", "" unknown */
    unsigned vendor_id, device_id; /* 0 unknown */
    char busid[16];                /* "0000:07:00.0", "" if unknown */
    char vendor[16];               /* "nvidia", "amd", "intel", "" if unknown */
    char model[64];                /* "" if unknown */
    int numa; /* NUMA node as the operating system counts, -1 unknown */
    hwloc_bitmap_t near; /* owned: the cores that share a cache, a NUMA node or
                            a package with it; NULL unknown */
    int island; /* its number from 0: GPUs joined by NVLink, NVSwitch, xGMI;
                   a GPU without such links is an island of its own */
    int nnics;
    int *nics; /* indices of the NICs nearest to this GPU */
};

enum plait_nic_kind {
    PLAIT_NIC_OTHER,
    PLAIT_NIC_VERBS,    /* InfiniBand, RoCE: NCCL's HCA, UCX's "mlx5_0:1" */
    PLAIT_NIC_SLINGSHOT /* libfabric's cxi */
};

struct plait_nic {
    char name[32]; /* as NCCL or its plugins call it: "mlx5_0", "cxi0" */
    enum plait_nic_kind kind;
    char interface[32]; /* "hsn0", "" unknown */
    char busid[16];
    int numa;
    double gbps; /* GB/s of the port, 0 unknown */
};

struct plait_node {
    int ngpus;
    struct plait_gpu *gpus;
    int nnics;
    struct plait_nic *nics;
    int nislands;
    double *links; /* [ngpus][ngpus] GB/s of direct links one way, 0: none */
    enum plait_distance *gpu_gpu; /* [ngpus][ngpus] */
    enum plait_distance *gpu_nic; /* [ngpus][nnics] */
    int numa_nodes, cores, pus;   /* 0: the source does not say */
    int unclassified; /* PCI devices the source names without saying what
                         they are */
    int hosts;        /* in the source, this one first; 0: unknown */
    hwloc_topology_t topology; /* owned; NULL when read from an NCCL XML */
};

/* From plait_node_export_xml() on this very machine: the topology counts as
 * this system (so that binding works) and holds only what this process may
 * use. Nothing is discovered, so this takes little time. */
struct plait_node *plait_node_create_cached(const char *xml, size_t size,
                                            struct plait_error *err);
/* The node's topology as hwloc XML, for a cache. Caller frees; `size` counts
 * the terminating NUL too. NULL with errno (ENOTSUP: read from an NCCL XML). */
char *plait_node_export_xml(const struct plait_node *node, size_t *size);
/* plait_node_create_nccl() from memory; `name` stands for the file in
 * errors. */
struct plait_node *plait_node_parse_nccl(const char *name, const char *text,
                                         size_t size, struct plait_error *err);
/* Whether a NUMA node is one of those that the processors are divided into: the
 * memory of a GPU, HBM and memory without processors appear as some, too. */
bool plait_node_is_host(hwloc_topology_t topology, hwloc_obj_t numa);
bool plait_gpu_is_mig(const struct plait_gpu *gpu);
/* The model by the GPU's PCI ids, "" if these are not known here. */
const char *plait_gpu_known_model(const struct plait_gpu *gpu);
/* Whether GPUs lack links that most of the node's have, which then are all of
 * one model; `text`: "GPU 1 has no NVLink, the other 3 have: broken?". */
bool plait_node_find_odd(const struct plait_node *node, char *text,
                         size_t size);
/* What links of GPU `gpu` are called: "NVLink". */
const char *plait_node_link_name(const struct plait_node *node, int gpu);
/* Order `n` of the node's GPUs (indices in `gpus`, or all if NULL) so that
 * consecutive runs of `group` (the tp size) stay inside an island, islands
 * whole, best-connected first; writes n indices. Deterministic. */
void plait_node_order_gpus(const struct plait_node *node, const int *gpus,
                           int n, int group, int *order);

/* The cores for task `local` of `ntasks`: the share of `allowed` nearest to its
 * GPU, seats[local] (-1: none). With GPUs, tasks with the same cache or NUMA
 * node near to theirs divide its allowed PUs; without (`seats` is NULL), whole
 * cores are dealt evenly. All tasks of a node compute the same division. Writes
 * `cpus`, which the caller allocated; never empty where `allowed` is not. */
int plait_node_bind(const struct plait_node *node, hwloc_const_cpuset_t allowed,
                    const int *seats, int ntasks, int local,
                    hwloc_cpuset_t cpus);

#ifdef __cplusplus
}
#endif
#endif

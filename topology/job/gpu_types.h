/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_GPU_TYPES_H
#define PLAIT_TOPOLOGY_JOB_GPU_TYPES_H

#include <stdbool.h>
#include <stddef.h>

#include "topology/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the cost model knows about one kind of GPU and the machines it is
 * usually built into. Bandwidths are one way, per GPU, in bytes/s; times in
 * seconds. The numbers and their sources are in gpu_types.c; a site file
 * (site.h; `plait probe` writes one) replaces any of them but sm,
 * channels and switched. */
struct plait_gpu_type {
    char name[16];
    /* Properties of the GPU itself; a site file cannot replace them: NVIDIA's
     * compute capability times ten, 0: of another maker; the channels that
     * NCCL takes for sums in a node or NVLink domain, 4 where nothing but PCIe
     * joins the GPUs; and those of sums that NVSwitches add, 0 where there are
     * none that do. */
    int sm, channels, switched;
    double flops16;    /* dense bf16/fp16 matrix FLOP/s */
    double flops32;    /* fp32 */
    double flops_tf32; /* TF32, or fp32 where there is none */
    double flops8;     /* fp8, or flops16 where there is none */
    double memory;     /* bytes */
    double memory_bw;  /* bytes/s */
    int per_node;      /* GPUs a node usually has */
    int domain; /* GPUs that NVLink or xGMI joins, over all nodes of a rack */
    double link_bw;          /* NVLink, xGMI: to the other GPUs of the node */
    double link_alpha;       /* seconds per message over it */
    double host_bw;          /* without NVLink or xGMI: PCIe through the host */
    double nic_bw;           /* network bandwidth per GPU */
    double nic_alpha;        /* seconds per message within a leaf switch */
    double hop_alpha;        /* added per switch level above the leaf */
    double oversubscription; /* of each level above the leaf */
    int units;               /* multiprocessors or compute units, 0 none */
    double host_memory;      /* bytes of the host's memory for each GPU that a
                                job may fill, of the usual machine */
    bool fitted; /* there are published runs of this type in tests/records; the
                    constants below are another type's where there are none */
    /* Shares (at most 1) of the peaks that fused kernels of large shapes reach,
     * and the cost of a launch, fitted to half of tests/records. */
    double matmul;      /* of the peak, products in 16 bits and fp32 */
    double matmul8;     /* of the peak of fp8 */
    double attention;   /* of the 16-bit peak, on the scores that a causal mask
                           leaves, heads of 128 and long sequences */
    double stream;      /* of the memory's bandwidth, elementwise work */
    double layer_s;     /* fixed time per layer and pass: launches, gaps */
    double score_bytes; /* moved per attention score and pass: 13 where softmax
                           and dropout are kernels of their own (and scores are
                           kept), 0 where they are fused */
    /* Set by a site file alone; 0 in the table, and below 0 for headroom. */
    double headroom;      /* bytes of `memory` that a chosen layout leaves free;
                             below 0: see plait_gpu_type_room() */
    double leaf_gpus;     /* GPUs below a leaf switch; 0: all of them */
    double failure_hours; /* hours between two failures of a GPU that end a run;
                             0: PLAIT_FAILURE_HOURS */
    /* For CPUs, which the ranks of a node share. cores: those of a node, to
     * which FLOP/s and memory_bw belong; 0: every rank has a device of its own.
     * threads: what a rank computes with; 0: its share of the cores. */
    double cores, threads;
    double crowding; /* by how much longer a collective takes for each doubling
                        of the nodes it spans: topology/predict/scale.h */
    double stragglers; /* by how much longer a step takes with slow machines in
                          it: scale.h */
    int uplinks_known; /* whether a site file gives the oversubscription */
};

enum { PLAIT_NGPU_TYPES = 25 };
extern const struct plait_gpu_type plait_gpu_types[PLAIT_NGPU_TYPES];

/* Fill in a type by name; the error lists the names there are. */
int plait_gpu_type_find(const char *name, struct plait_gpu_type *type,
                        struct plait_error *err);
/* *rank: what one of `ranks` ranks computes with while the others are idle, the
 * figures of as many cores as it has threads (a type without cores stays as it
 * is). Returns the number of threads per core while all ranks compute. */
double plait_gpu_type_share(const struct plait_gpu_type *type, int ranks,
                            struct plait_gpu_type *rank);
/* Nodes have this many GPUs; where a domain is a node, it stays one. */
void plait_gpu_type_set_node(struct plait_gpu_type *type, int per_node);
/* How many of `gpus` GPUs each node has where all have equally many, as many as
 * divide them. */
int plait_gpu_type_tasks(const struct plait_gpu_type *type, int gpus);
/* Scale a type of CPU to a node with this many cores. */
void plait_gpu_type_set_cores(struct plait_gpu_type *type, double cores);
/* The bytes of a GPU's memory that --auto fills: what is left of it by the
 * headroom, which is 6 % of it, or 4 GB where that is more and at most 10 %,
 * unless a site says otherwise. There an allocator leaves gaps and libraries
 * take more than an estimate counts. A CPU has none. */
double plait_gpu_type_room(const struct plait_gpu_type *type);
/* Say that no published run of this type is known: a sentence of at most `size`
 * bytes; "" where there are some. */
void plait_gpu_type_warn(const struct plait_gpu_type *type, char *text,
                         size_t size);
/* "v100-32g a100-40g ..." */
const char *plait_gpu_type_names(void);
struct plait_gpu;

/* The type that a GPU of a node is, by its PCI ids or else its name; NULL: none
 * of these, or only a partition or MIG instance of one. */
const char *plait_gpu_type_of(const struct plait_gpu *gpu);
/* The type that a product name ("NVIDIA H100 80GB HBM3", struct plait_gpu's
 * model) means, or NULL. */
const char *plait_gpu_type_guess(const char *model);

#ifdef __cplusplus
}
#endif
#endif

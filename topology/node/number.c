/* SPDX-License-Identifier: Apache-2.0 */
/* What visible-devices variables call the GPUs, and what joins those that are
 * parts of one device. */
#include <string.h>

#include "topology/node/build.h"

/* GB/s, one way, between the partitions or tiles of one device where no source
 * says it: what hwloc's ROCm backend reports between those of an MI300A. */
#define INSIDE_GBPS 100

bool plait_gpu_is_mig(const struct plait_gpu *gpu)
{
    return strncmp(gpu->uuid, "MIG-", 4) == 0;
}

static bool is_of(const struct plait_gpu *gpu, const char *vendor)
{
    /* A file without ids is NCCL's or NVIDIA's. */
    const char *own = gpu->vendor[0] ? gpu->vendor : "nvidia";

    return strcmp(own, vendor) == 0;
}

/* Plait has the libraries of these vendors count in the order of the PCI bus.
 * What CUDA counts beside a GPU with MIG instances depends on them, so that
 * those have UUIDs alone. */
static void number_in_order(struct plait_node *node, const char *vendor)
{
    bool has_mig = false;
    int n = 0;

    for (int i = 0; i < node->ngpus; i++)
        has_mig |=
            is_of(&node->gpus[i], vendor) && plait_gpu_is_mig(&node->gpus[i]);
    for (int i = 0; i < node->ngpus; i++)
        if (is_of(&node->gpus[i], vendor))
            node->gpus[i].number = has_mig ? -1 : n++;
}

/* AMD's order is the driver's, and there is no variable that changes it. The
 * numbers that were read count if each stands for one GPU. */
static void check_amd(struct plait_node *node)
{
    bool is_good = true;
    int n = 0, last = -1;

    for (int i = 0; i < node->ngpus; i++) {
        if (!is_of(&node->gpus[i], "amd"))
            continue;
        n++;
        last = i;
        for (int k = 0; k < i; k++)
            is_good &= !is_of(&node->gpus[k], "amd") ||
                       node->gpus[k].number != node->gpus[i].number;
    }
    if (n == 1 && node->gpus[last].number < 0)
        node->gpus[last].number = 0;
    for (int i = 0; i < node->ngpus && !is_good; i++)
        if (is_of(&node->gpus[i], "amd"))
            node->gpus[i].number = -1;
}

void node_number_gpus(struct plait_node *node)
{
    number_in_order(node, "nvidia");
    number_in_order(node, "intel");
    check_amd(node);
}

void node_join_parts(struct plait_node *node)
{
    int n = node->ngpus;

    for (int i = 0; i < n; i++) {
        const struct plait_gpu *gpu = &node->gpus[i];
        double best = INSIDE_GBPS;

        /* MIG instances cannot reach each other. */
        if (gpu->parts < 2 || plait_gpu_is_mig(gpu))
            continue;
        for (int k = 0; k < n; k++)
            if (node->links[i * n + k] > best)
                best = node->links[i * n + k];
        for (int k = i - gpu->part; k < i - gpu->part + gpu->parts; k++)
            if (k != i && node->links[i * n + k] == 0)
                node->links[i * n + k] = best;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* libplait's functions on a node: how much it has, and figures of its GPUs,
 * links and cards. */
#include <errno.h>

#include "topology/node/node.h"

/* GPU `index`, or NULL with EINVAL. */
static const struct plait_gpu *find_gpu(const struct plait_node *node,
                                        int index)
{
    if (index >= 0 && index < node->ngpus)
        return &node->gpus[index];
    errno = EINVAL;
    return NULL;
}

static const struct plait_nic *find_nic(const struct plait_node *node,
                                        int index)
{
    if (index >= 0 && index < node->nnics)
        return &node->nics[index];
    errno = EINVAL;
    return NULL;
}

int plait_node_gpus(const struct plait_node *node)
{
    return node->ngpus;
}

int plait_node_nics(const struct plait_node *node)
{
    return node->nnics;
}

int plait_node_islands(const struct plait_node *node)
{
    return node->nislands;
}

int plait_node_numa_nodes(const struct plait_node *node)
{
    return node->numa_nodes;
}

int plait_node_cores(const struct plait_node *node)
{
    return node->cores;
}

int plait_node_pus(const struct plait_node *node)
{
    return node->pus;
}

const char *plait_node_gpu_busid(const struct plait_node *node, int gpu)
{
    const struct plait_gpu *g = find_gpu(node, gpu);

    return g ? g->busid : NULL;
}

const char *plait_node_gpu_vendor(const struct plait_node *node, int gpu)
{
    const struct plait_gpu *g = find_gpu(node, gpu);

    return g ? g->vendor : NULL;
}

const char *plait_node_gpu_model(const struct plait_node *node, int gpu)
{
    const struct plait_gpu *g = find_gpu(node, gpu);

    return g ? g->model : NULL;
}

int plait_node_gpu_numa(const struct plait_node *node, int gpu)
{
    const struct plait_gpu *g = find_gpu(node, gpu);

    return g ? g->numa : -1;
}

int plait_node_gpu_island(const struct plait_node *node, int gpu)
{
    const struct plait_gpu *g = find_gpu(node, gpu);

    return g ? g->island : -1;
}

int plait_node_gpu_nics(const struct plait_node *node, int gpu)
{
    const struct plait_gpu *g = find_gpu(node, gpu);

    return g ? g->nnics : -1;
}

int plait_node_gpu_nic(const struct plait_node *node, int gpu, int place)
{
    const struct plait_gpu *g = find_gpu(node, gpu);

    if (g && place >= 0 && place < g->nnics)
        return g->nics[place];
    errno = EINVAL;
    return -1;
}

double plait_node_link(const struct plait_node *node, int a, int b)
{
    if (!find_gpu(node, a) || !find_gpu(node, b))
        return -1;
    return node->links[a * node->ngpus + b];
}

const char *plait_node_nic_name(const struct plait_node *node, int nic)
{
    const struct plait_nic *n = find_nic(node, nic);

    return n ? n->name : NULL;
}

double plait_node_nic_bandwidth(const struct plait_node *node, int nic)
{
    const struct plait_nic *n = find_nic(node, nic);

    return n ? n->gbps : -1;
}

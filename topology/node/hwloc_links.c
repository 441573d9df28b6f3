/* SPDX-License-Identifier: Apache-2.0 */
/* The links between the GPUs of an hwloc topology. */
#include <string.h>

#include "topology/node/build.h"
#include "topology/node/hwloc.h"
#include "topology/node/parts.h"

/* The GPUs an object of a bandwidth matrix stands for: all parts of a PCI
 * device, or the one that an OS device is. Returns how many, 0 for none. */
static int gpus_of(const struct node_builder *builder, hwloc_obj_t obj,
                   int *first)
{
    hwloc_obj_t pci = obj;
    char busid[16];
    int part;

    while (pci && pci->type != HWLOC_OBJ_PCI_DEVICE)
        pci = pci->parent;
    if (!pci)
        return 0;
    node_format_busid(pci->attr->pcidev.domain, pci->attr->pcidev.bus,
                      pci->attr->pcidev.dev, pci->attr->pcidev.func, busid);
    *first = node_builder_find_gpu(builder, busid);
    if (*first < 0 || plait_gpu_is_mig(&builder->node->gpus[*first]))
        return 0;
    part = obj == pci ? 0 : node_part_of(obj);
    if (obj == pci || part >= builder->node->gpus[*first].parts)
        return builder->node->gpus[*first].parts;
    *first += part;
    return 1;
}

static bool is_switch(hwloc_obj_t obj)
{
    return obj->subtype && strcmp(obj->subtype, "NVSwitch") == 0;
}

/* The bandwidth of object `from` to all switch ports together, in GB/s. */
static double to_switches(const struct hwloc_distances_s *matrix, unsigned from)
{
    double sum = 0;

    for (unsigned k = 0; k < matrix->nbobjs; k++) {
        if (k != from && is_switch(matrix->objs[k]))
            sum += (double)matrix->values[from * matrix->nbobjs + k] / 1000;
    }
    return sum;
}

static void add_pair(struct node_builder *builder,
                     const struct hwloc_distances_s *matrix, unsigned i,
                     unsigned k)
{
    struct plait_node *node = builder->node;
    int a, b, na = gpus_of(builder, matrix->objs[i], &a);
    int nb = gpus_of(builder, matrix->objs[k], &b);
    double up, down, link;

    if (na == 0 || nb == 0)
        return;
    up = to_switches(matrix, i);
    down = up > 0 ? to_switches(matrix, k) : 0;
    link = (double)matrix->values[i * matrix->nbobjs + k] / 1000 +
           (up < down ? up : down);
    for (int x = a; x < a + na; x++)
        for (int y = b; y < b + nb; y++)
            if (x != y)
                node->links[x * node->ngpus + y] = link;
}

/* hwloc keeps link bandwidths in MB/s, with each NVSwitch port (and POWER's
 * packages) as objects beside the GPUs. Its own transitive closure loses direct
 * links. So here a pair of GPUs gets its direct link, plus, through the
 * switches, the smaller of the two GPUs' bandwidths to them. */
static void add_matrix(struct node_builder *builder,
                       const struct hwloc_distances_s *matrix)
{
    for (unsigned i = 0; i < matrix->nbobjs; i++)
        for (unsigned k = 0; k < matrix->nbobjs; k++)
            if (i != k)
                add_pair(builder, matrix, i, k);
}

void node_add_links(struct node_builder *builder, hwloc_topology_t topology,
                    const char *name)
{
    struct hwloc_distances_s *found[4];
    unsigned n = 4;

    if (hwloc_distances_get_by_name(topology, name, &n, found, 0))
        return;
    for (unsigned i = 0; i < n && i < 4; i++) {
        add_matrix(builder, found[i]);
        hwloc_distances_release(topology, found[i]);
    }
}

void node_note_links(hwloc_topology_t topology, const char *name, unsigned n,
                     hwloc_obj_t *objs, hwloc_uint64_t *values)
{
    hwloc_distances_add_handle_t handle = hwloc_distances_add_create(
        topology, name, HWLOC_DISTANCES_KIND_FROM_USER | NODE_MEANS_BANDWIDTH,
        0);

    if (handle &&
        hwloc_distances_add_values(topology, handle, n, objs, values, 0) == 0)
        hwloc_distances_add_commit(topology, handle, 0);
}

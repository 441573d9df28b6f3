/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/node/build.h"
#include "topology/node/hwloc.h"

/* From an hwloc topology to a node; reads XML and synthetic topologies. */

/* Does another NUMA node have the same processors and come before, or fewer of
 * them? HBM beside DRAM has the same, memory on a card or behind CXL has those
 * of several nodes. */
static bool is_outranked(hwloc_topology_t topology, hwloc_obj_t numa)
{
    hwloc_obj_t other = NULL;

    while ((other = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                               other))) {
        if (other == numa || hwloc_bitmap_iszero(other->complete_cpuset) ||
            !hwloc_bitmap_isincluded(other->complete_cpuset,
                                     numa->complete_cpuset))
            continue;
        if (!hwloc_bitmap_isequal(other->complete_cpuset,
                                  numa->complete_cpuset) ||
            other->os_index < numa->os_index)
            return true;
    }
    return false;
}

bool plait_node_is_host(hwloc_topology_t topology, hwloc_obj_t numa)
{
    if (numa->subtype && strcmp(numa->subtype, "GPUMemory") == 0)
        return false;
    return !hwloc_bitmap_iszero(numa->complete_cpuset) &&
           !is_outranked(topology, numa);
}

/* The one NUMA node that `set` holds, or -1; of HBM and DRAM with the same
 * cores it is the DRAM. */
static int only_numa(hwloc_topology_t topology, hwloc_const_nodeset_t set)
{
    hwloc_obj_t numa = NULL;
    int found = -1;

    while ((numa = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                              numa))) {
        if (!plait_node_is_host(topology, numa) || !set ||
            !hwloc_bitmap_isset(set, numa->os_index))
            continue;
        if (found >= 0)
            return -1;
        found = (int)numa->os_index;
    }
    return found;
}

/* The cores that share something with the device: a cache, a NUMA node, a
 * package. Firmware that names a single core means nothing by it. NULL: the
 * whole host. */
static hwloc_obj_t near_object(hwloc_obj_t host)
{
    while (host->parent &&
           (host->type == HWLOC_OBJ_PU || host->type == HWLOC_OBJ_CORE ||
            (hwloc_obj_type_is_cache(host->type) &&
             host->type != HWLOC_OBJ_L3CACHE)))
        host = host->parent;
    return host->parent ? host : NULL;
}

int node_locate(hwloc_topology_t topology, hwloc_obj_t device,
                struct node_locus *locus)
{
    hwloc_obj_t host = hwloc_get_non_io_ancestor_obj(topology, device);
    int n = 0;

    memset(locus, 0, sizeof(*locus));
    locus->numa = only_numa(topology, host->nodeset);
    locus->place = near_object(host);
    for (hwloc_obj_t at = device->parent; at && at != host; at = at->parent) {
        if (at->type != HWLOC_OBJ_BRIDGE)
            continue;
        if (at->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) {
            locus->host = at;
            continue;
        }
        if (n == NODE_BRIDGES_MOST) {
            errno = E2BIG;
            return -1;
        }
        /* Collected from the device upwards, and reversed below. */
        locus->bridges[n++] = at;
    }
    locus->nbridges = n;
    for (int i = 0; i < n / 2; i++) {
        const void *bridge = locus->bridges[i];

        locus->bridges[i] = locus->bridges[n - 1 - i];
        locus->bridges[n - 1 - i] = bridge;
    }
    return 0;
}

static int add_devices(struct node_builder *builder, hwloc_topology_t topology)
{
    hwloc_obj_t pci = NULL;

    while ((pci = hwloc_get_next_pcidev(topology, pci))) {
        if (node_add_gpu(builder, topology, pci) ||
            node_add_nics(builder, topology, pci))
            return -1;
    }
    return node_add_bare_gpus(builder, topology);
}

static void count_host(struct plait_node *node)
{
    hwloc_obj_t numa = NULL;
    int n;

    while ((numa = hwloc_get_next_obj_by_type(node->topology,
                                              HWLOC_OBJ_NUMANODE, numa)))
        node->numa_nodes += plait_node_is_host(node->topology, numa);
    n = hwloc_get_nbobjs_by_type(node->topology, HWLOC_OBJ_CORE);
    node->cores = n > 0 ? n : 0;
    n = hwloc_get_nbobjs_by_type(node->topology, HWLOC_OBJ_PU);
    node->pus = n > 0 ? n : 0;
}

/* The cores near to each GPU. */
static int note_near(struct node_builder *builder)
{
    struct plait_node *node = builder->node;

    for (int i = 0; i < node->ngpus; i++) {
        hwloc_obj_t place = (hwloc_obj_t)builder->gpus[i].place;

        if (!place && node->gpus[i].numa >= 0)
            place = hwloc_get_root_obj(node->topology);
        if (place && !(node->gpus[i].near = hwloc_bitmap_dup(place->cpuset)))
            return -1;
    }
    return 0;
}

struct plait_node *node_read_topology(hwloc_topology_t topology)
{
    struct node_builder builder;
    struct plait_node *node;

    if (node_builder_init(&builder, 1)) {
        hwloc_topology_destroy(topology);
        return NULL;
    }
    builder.node->topology = topology;
    count_host(builder.node);
    if (add_devices(&builder, topology) || node_builder_sort(&builder) ||
        note_near(&builder))
        goto error;
    node_add_links(&builder, topology, "NVLinkBandwidth");
    node_add_links(&builder, topology, "XGMIBandwidth");
    node_add_links(&builder, topology, "XeLinkBandwidth");
    node = node_builder_finish(&builder);
    if (node)
        return node;
error:
    node_builder_abandon(&builder);
    return NULL;
}

hwloc_topology_t node_create_topology(void)
{
    hwloc_topology_t topology;

    if (hwloc_topology_init(&topology))
        return NULL;
    if (hwloc_topology_set_cache_types_filter(topology,
                                              HWLOC_TYPE_FILTER_KEEP_NONE) ||
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_L3CACHE,
                                       HWLOC_TYPE_FILTER_KEEP_ALL) ||
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_MISC,
                                       HWLOC_TYPE_FILTER_KEEP_NONE) ||
        hwloc_topology_set_io_types_filter(topology,
                                           HWLOC_TYPE_FILTER_KEEP_IMPORTANT)) {
        hwloc_topology_destroy(topology);
        return NULL;
    }
    return topology;
}

/* hwloc reports only EINVAL: look for the usual reasons. */
static int explain_bad_xml(const char *path, struct plait_error *err)
{
    char head[4096], version[16] = "";
    const char *at;
    FILE *file = fopen(path, "re");
    size_t n;

    if (!file)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    n = fread(head, 1, sizeof(head) - 1, file);
    head[n] = '\0';
    fclose(file);
    at = strstr(head, "<topology");
    if (!at && strstr(head, "<system"))
        return plait_errorf(err,
                            "%s: this is an NCCL topology, not hwloc's: "
                            "give it with --nccl-xml",
                            path);
    if (!at)
        return plait_errorf(err, "%s: not an hwloc XML (no <topology>)", path);
    if (sscanf(at, "<topology version=\"%15[0-9.]\"", version) == 1 &&
        atoi(version) > HWLOC_API_VERSION >> 16)
        return plait_errorf(
            err,
            "%s: hwloc XML format %s; this hwloc (%s) reads 1 and 2: "
            "write it with 'lstopo --export-xml-flags v2'",
            path, version, HWLOC_VERSION);
    /* A format 1 file names no version. */
    if (!version[0] && HWLOC_API_VERSION >= 0x30000)
        return plait_errorf(err,
                            "%s: hwloc XML format 1, which hwloc %s does not "
                            "read: convert it with hwloc 2's lstopo",
                            path, HWLOC_VERSION);
    return plait_errorf(err, "%s: damaged hwloc XML", path);
}

struct plait_node *plait_node_create_xml(const char *path,
                                         struct plait_error *err)
{
    hwloc_topology_t topology = node_create_topology();
    struct plait_node *node;

    if (!topology)
        goto error;
    if (hwloc_topology_set_xml(topology, path) ||
        hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        explain_bad_xml(path, err);
        return NULL;
    }
    node = node_read_topology(topology);
    if (node)
        return node;
error:
    plait_errorf(err, "%s: %s", path, strerror(errno));
    return NULL;
}

struct plait_node *plait_node_create_synthetic(const char *description,
                                               struct plait_error *err)
{
    hwloc_topology_t topology = node_create_topology();
    struct plait_node *node;

    if (!topology)
        goto error;
    if (hwloc_topology_set_synthetic(topology, description) ||
        hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        plait_errorf(err,
                     "'%s' is not an hwloc synthetic description; "
                     "try 'pack:2 numa:1 core:8 pu:2'",
                     description);
        return NULL;
    }
    node = node_read_topology(topology);
    if (node)
        return node;
error:
    plait_errorf(err, "%s: %s", description, strerror(errno));
    return NULL;
}

char *plait_node_export_xml(const struct plait_node *node, size_t *size)
{
    char *xml, *copied;
    int length;

    if (!node->topology) {
        errno = ENOTSUP;
        return NULL;
    }
    if (hwloc_topology_export_xmlbuffer(node->topology, &xml, &length, 0))
        return NULL;
    copied = malloc((size_t)length);
    if (copied) {
        memcpy(copied, xml, (size_t)length);
        *size = (size_t)length;
    }
    hwloc_free_xmlbuffer(node->topology, xml);
    return copied;
}

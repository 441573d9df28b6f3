/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/node/build.h"
#include "topology/node/hwloc.h"

/* From an hwloc topology to a node; reads XML and synthetic topologies. */

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

static hwloc_obj_t child_of_type(hwloc_obj_t pci, hwloc_obj_osdev_type_t type)
{
    for (hwloc_obj_t child = pci->io_first_child; child;
         child = child->next_sibling) {
        if (child->type == HWLOC_OBJ_OS_DEVICE &&
            child->attr->osdev.type == type)
            return child;
    }
    return NULL;
}

bool plait_node_is_host(hwloc_obj_t numa)
{
    return !numa->subtype || strcmp(numa->subtype, "GPUMemory") != 0;
}

/* The one NUMA node that `set` holds, or -1. Other memory of the same cores, as
 * HBM is, counts with the first, their DRAM. */
static int only_numa(hwloc_topology_t topology, hwloc_const_nodeset_t set)
{
    hwloc_obj_t numa = NULL, found = NULL;

    while ((numa = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                              numa))) {
        if (!plait_node_is_host(numa) || !set ||
            !hwloc_bitmap_isset(set, numa->os_index))
            continue;
        if (found && !hwloc_bitmap_isequal(found->cpuset, numa->cpuset))
            return -1;
        found = found ? found : numa;
    }
    return found ? (int)found->os_index : -1;
}

static int locate(hwloc_topology_t topology, hwloc_obj_t device,
                  struct node_locus *locus)
{
    hwloc_obj_t host = hwloc_get_non_io_ancestor_obj(topology, device);
    int n = 0;

    memset(locus, 0, sizeof(*locus));
    locus->numa = only_numa(topology, host->nodeset);
    locus->place = host->parent ? host : NULL;
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

static const char *pci_gpu_vendor(hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
    const char *noted = hwloc_obj_get_info_by_name(pci, NODE_INFO_VENDOR);

    if (attr->vendor_id == 0 && noted)
        return noted;
    return node_gpu_vendor(attr->class_id, attr->vendor_id, attr->device_id);
}

/* Under a PCIe port only device 0 of one bus is real; what else answers
 * there with a GPU's class is a virtual function of it. */
static bool is_virtual_function(hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;

    if (!pci->parent || pci->parent->type != HWLOC_OBJ_BRIDGE ||
        pci->parent->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_PCI)
        return false;
    for (hwloc_obj_t other = pci->parent->io_first_child; other && other != pci;
         other = other->next_sibling) {
        if (other->type == HWLOC_OBJ_PCI_DEVICE &&
            other->attr->pcidev.dev == 0 && other->attr->pcidev.func == 0 &&
            other->attr->pcidev.vendor_id == attr->vendor_id &&
            pci_gpu_vendor(other))
            return true;
    }
    return false;
}

/* "Tesla V100-SXM2-16GB", from the first source that has a name. */
static const char *gpu_model(hwloc_obj_t pci)
{
    const char *model = hwloc_obj_get_info_by_name(pci, NODE_INFO_MODEL);

    for (hwloc_obj_t child = pci->io_first_child; child && !model;
         child = child->next_sibling)
        model = hwloc_obj_get_info_by_name(child, NODE_INFO_MODEL);
    if (!model)
        model = node_gpu_model(pci->attr->pcidev.vendor_id,
                               pci->attr->pcidev.device_id);
    return model[0] ? model : hwloc_obj_get_info_by_name(pci, NODE_INFO_DEVICE);
}

static int add_gpu(struct node_builder *builder, hwloc_topology_t topology,
                   hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
    const char *vendor = pci_gpu_vendor(pci);
    struct plait_gpu gpu = {0};
    struct node_locus locus;

    if (!vendor || is_virtual_function(pci))
        return 0;
    if (locate(topology, pci, &locus))
        return -1;
    node_format_busid(attr->domain, attr->bus, attr->dev, attr->func,
                      gpu.busid);
    copy(gpu.vendor, sizeof(gpu.vendor), vendor);
    copy(gpu.model, sizeof(gpu.model), gpu_model(pci));
    gpu.numa = locus.numa;
    return node_builder_add_gpu(builder, &gpu, &locus);
}

/* GB/s of a port, where discovery has noted it. */
static double port_gbps(hwloc_obj_t osdev)
{
    const char *mbps = hwloc_obj_get_info_by_name(osdev, NODE_INFO_MBPS);

    return mbps ? strtod(mbps, NULL) / 8000 : 0;
}

/* One NIC for every RDMA device; a fabric card without a driver for it
 * counts as one, under the name its network interface has. */
static int add_nics(struct node_builder *builder, hwloc_topology_t topology,
                    hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
    struct plait_nic nic = {0};
    struct node_locus locus;
    hwloc_obj_t child;
    int found = 0;

    if (locate(topology, pci, &locus))
        return -1;
    nic.numa = locus.numa;
    node_format_busid(attr->domain, attr->bus, attr->dev, attr->func,
                      nic.busid);
    for (child = pci->io_first_child; child; child = child->next_sibling) {
        if (child->type != HWLOC_OBJ_OS_DEVICE ||
            child->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS)
            continue;
        copy(nic.name, sizeof(nic.name), child->name);
        nic.gbps = port_gbps(child);
        if (node_builder_add_nic(builder, &nic, &locus))
            return -1;
        found = 1;
    }
    if (found ||
        !node_is_fabric_nic(attr->class_id, attr->vendor_id, attr->device_id))
        return 0;
    child = child_of_type(pci, HWLOC_OBJ_OSDEV_NETWORK);
    copy(nic.name, sizeof(nic.name), child ? child->name : nic.busid);
    nic.gbps = child ? port_gbps(child) : 0;
    return node_builder_add_nic(builder, &nic, &locus);
}

/* Did `library` find this OS device, and is it a GPU? */
static bool found_by(hwloc_obj_t osdev, const char *library)
{
    size_t n = strlen(library);

    return osdev->name && strncmp(osdev->name, library, n) == 0 &&
           osdev->name[n] >= '0' && osdev->name[n] <= '9';
}

static bool has_pci(hwloc_obj_t obj)
{
    while (obj && obj->type != HWLOC_OBJ_PCI_DEVICE)
        obj = obj->parent;
    return obj != NULL;
}

/* Without PCI devices (an XML written without them) the GPUs are what one of
 * the GPU libraries listed; each lists all of them, so only one is used. */
static int add_bare_gpus(struct node_builder *builder,
                         hwloc_topology_t topology)
{
    static const struct {
        const char *library, *vendor;
    } kinds[] = {{"nvml", "nvidia"}, {"rsmi", "amd"}, {"cuda", "nvidia"}};
    hwloc_obj_t osdev;
    int n = (int)(sizeof(kinds) / sizeof(kinds[0]));

    for (int i = 0; i < n && builder->node->ngpus == 0; i++) {
        osdev = NULL;
        while ((osdev = hwloc_get_next_osdev(topology, osdev))) {
            struct plait_gpu gpu = {0};
            struct node_locus locus;

            if (!found_by(osdev, kinds[i].library) || has_pci(osdev))
                continue;
            if (locate(topology, osdev, &locus))
                return -1;
            copy(gpu.vendor, sizeof(gpu.vendor), kinds[i].vendor);
            copy(gpu.model, sizeof(gpu.model),
                 hwloc_obj_get_info_by_name(osdev, NODE_INFO_MODEL));
            gpu.numa = locus.numa;
            if (node_builder_add_gpu(builder, &gpu, &locus))
                return -1;
        }
    }
    return 0;
}

static int add_devices(struct node_builder *builder, hwloc_topology_t topology)
{
    hwloc_obj_t pci = NULL;

    while ((pci = hwloc_get_next_pcidev(topology, pci))) {
        if (add_gpu(builder, topology, pci) || add_nics(builder, topology, pci))
            return -1;
    }
    return add_bare_gpus(builder, topology);
}

/* The GPU an object of a bandwidth matrix stands for, or -1. */
static int gpu_of(const struct node_builder *builder, hwloc_obj_t obj)
{
    char busid[16];

    while (obj && obj->type != HWLOC_OBJ_PCI_DEVICE)
        obj = obj->parent;
    if (!obj)
        return -1;
    node_format_busid(obj->attr->pcidev.domain, obj->attr->pcidev.bus,
                      obj->attr->pcidev.dev, obj->attr->pcidev.func, busid);
    return node_builder_find_gpu(builder, busid);
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

/* hwloc keeps link bandwidths in MB/s, with each NVSwitch port (and POWER's
 * packages) as objects beside the GPUs. Its own transitive closure loses direct
 * links. So here a pair of GPUs gets its direct link, plus, through the
 * switches, the smaller of the two GPUs' bandwidths to them. */
static void add_matrix(struct node_builder *builder,
                       const struct hwloc_distances_s *matrix)
{
    unsigned n = matrix->nbobjs;

    for (unsigned i = 0; i < n; i++) {
        int a = gpu_of(builder, matrix->objs[i]);
        double up = a < 0 ? 0 : to_switches(matrix, i);

        for (unsigned k = 0; a >= 0 && k < n; k++) {
            int b = gpu_of(builder, matrix->objs[k]);
            double down, *link;

            if (b < 0 || a == b)
                continue;
            down = up > 0 ? to_switches(matrix, k) : 0;
            link = &builder->node->links[a * builder->node->ngpus + b];
            *link = (double)matrix->values[i * n + k] / 1000 +
                    (up < down ? up : down);
        }
    }
}

static void add_links(struct node_builder *builder, hwloc_topology_t topology,
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

static void count_host(struct plait_node *node)
{
    hwloc_obj_t numa = NULL;
    int n;

    while ((numa = hwloc_get_next_obj_by_type(node->topology,
                                              HWLOC_OBJ_NUMANODE, numa)))
        node->numa_nodes += plait_node_is_host(numa);
    n = hwloc_get_nbobjs_by_type(node->topology, HWLOC_OBJ_CORE);
    node->cores = n > 0 ? n : 0;
    n = hwloc_get_nbobjs_by_type(node->topology, HWLOC_OBJ_PU);
    node->pus = n > 0 ? n : 0;
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
    if (add_devices(&builder, topology) || node_builder_sort(&builder))
        goto error;
    add_links(&builder, topology, "NVLinkBandwidth");
    add_links(&builder, topology, "XGMIBandwidth");
    add_links(&builder, topology, "XeLinkBandwidth");
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
        atoi(version) > 2)
        return plait_errorf(
            err,
            "%s: hwloc XML format %s; this hwloc (%s) reads 1 and 2: "
            "write it with 'lstopo --export-xml-flags v2'",
            path, version, HWLOC_VERSION);
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

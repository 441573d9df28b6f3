/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of an hwloc topology, with their names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "topology/node/build.h"
#include "topology/node/hwloc.h"
#include "topology/node/parts.h"
#include "topology/node/pci_ids.h"

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

/* What a library says of the GPU: "Tesla V100-SXM2-16GB". */
static const char *library_model(hwloc_obj_t pci)
{
    const char *model = hwloc_obj_get_info_by_name(pci, NODE_INFO_MODEL);

    for (hwloc_obj_t child = pci->io_first_child;
         child && (!model || !model[0]); child = child->next_sibling)
        model = hwloc_obj_get_info_by_name(child, NODE_INFO_MODEL);
    return model ? model : "";
}

/* AMD's libraries name a package by its board ("AMD INSTINCT MI200 (MCM) OAM LC
 * MBA HPE C2"), so its ids come first; NVIDIA's know more than the ids, as the
 * size of the memory. */
static void name_gpu(hwloc_obj_t pci, const char *vendor, char *model,
                     size_t size)
{
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
    const char *known = node_gpu_model(attr->vendor_id, attr->device_id);
    const char *library = library_model(pci);
    const char *noted = hwloc_obj_get_info_by_name(pci, NODE_INFO_DEVICE);

    if (known[0] && (!library[0] || strcmp(vendor, "amd") == 0))
        snprintf(model, size, "%s", known);
    else if (library[0])
        snprintf(model, size, "%s", library);
    else if (noted && noted[0])
        node_short_name(noted, model, size);
    else
        node_name_gpu(attr->vendor_id, attr->device_id, model, size);
}

static int add_parts(struct node_builder *builder, const struct plait_gpu *gpu,
                     const struct node_part *parts, int n,
                     const struct node_locus *locus)
{
    for (int i = 0; i < n; i++) {
        struct plait_gpu part = *gpu;

        part.part = i;
        part.parts = n;
        part.number = parts[i].number;
        part.file = parts[i].file;
        snprintf(part.uuid, sizeof(part.uuid), "%s", parts[i].uuid);
        if (node_builder_add_gpu(builder, &part, locus))
            return -1;
    }
    return 0;
}

int node_add_gpu(struct node_builder *builder, hwloc_topology_t topology,
                 hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
    const char *vendor = pci_gpu_vendor(pci);
    struct node_part parts[NODE_PARTS_MOST];
    struct plait_gpu gpu = {0};
    struct node_locus locus;

    if (!vendor || is_virtual_function(pci))
        return 0;
    if (node_locate(topology, pci, &locus))
        return -1;
    node_format_busid(attr->domain, attr->bus, attr->dev, attr->func,
                      gpu.busid);
    snprintf(gpu.vendor, sizeof(gpu.vendor), "%s", vendor);
    gpu.vendor_id = attr->vendor_id;
    gpu.device_id = attr->device_id;
    name_gpu(pci, vendor, gpu.model, sizeof(gpu.model));
    gpu.numa = locus.numa;
    return add_parts(builder, &gpu, parts, node_find_parts(pci, vendor, parts),
                     &locus);
}

static bool has_pci(hwloc_obj_t obj)
{
    while (obj && obj->type != HWLOC_OBJ_PCI_DEVICE)
        obj = obj->parent;
    return obj != NULL;
}

int node_add_bare_gpus(struct node_builder *builder, hwloc_topology_t topology)
{
    static const struct {
        const char *library, *vendor;
    } kinds[] = {{"nvml", "nvidia"},
                 {"rsmi", "amd"},
                 {"cuda", "nvidia"},
                 {"ze", "intel"}};
    hwloc_obj_t osdev;
    int n = (int)(sizeof(kinds) / sizeof(kinds[0]));

    for (int i = 0; i < n && builder->node->ngpus == 0; i++) {
        osdev = NULL;
        while ((osdev = hwloc_get_next_osdev(topology, osdev))) {
            struct plait_gpu gpu = {.parts = 1, .file = -1};
            const char *model;
            struct node_locus locus;

            gpu.number = node_found_by(osdev, kinds[i].library);
            if (gpu.number < 0 || strchr(osdev->name, '.') || has_pci(osdev))
                continue;
            if (node_locate(topology, osdev, &locus))
                return -1;
            model = hwloc_obj_get_info_by_name(osdev, NODE_INFO_MODEL);
            snprintf(gpu.vendor, sizeof(gpu.vendor), "%s", kinds[i].vendor);
            snprintf(gpu.model, sizeof(gpu.model), "%s", model ? model : "");
            gpu.numa = locus.numa;
            if (node_builder_add_gpu(builder, &gpu, &locus))
                return -1;
        }
    }
    return 0;
}

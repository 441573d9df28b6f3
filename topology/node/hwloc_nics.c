/* SPDX-License-Identifier: Apache-2.0 */
/* The NICs of an hwloc topology, under the names that libraries call them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/node/build.h"
#include "topology/node/hwloc.h"

/* GB/s of a port, where discovery has noted it. */
static double port_gbps(hwloc_obj_t osdev)
{
    const char *mbps = hwloc_obj_get_info_by_name(osdev, NODE_INFO_MBPS);

    return mbps ? strtod(mbps, NULL) / 8000 : 0;
}

static bool is_rdma(hwloc_obj_t osdev)
{
    return osdev->type == HWLOC_OBJ_OS_DEVICE && osdev->name &&
           node_osdev_is(osdev, HWLOC_OBJ_OSDEV_OPENFABRICS);
}

/* For hwloc 3 an RDMA device is a network device, too. */
static hwloc_obj_t find_interface(hwloc_obj_t pci)
{
    for (hwloc_obj_t child = pci->io_first_child; child;
         child = child->next_sibling) {
        if (child->type == HWLOC_OBJ_OS_DEVICE && child->name &&
            node_osdev_is(child, HWLOC_OBJ_OSDEV_NETWORK) && !is_rdma(child))
            return child;
    }
    return NULL;
}

/* Slingshot's device as its driver and libfabric call it. Only hwloc 2.14 and
 * later list it; before, it has the number of the card's network interface,
 * hsn0 or hsi0, which the driver numbers alike. */
static void name_slingshot(hwloc_obj_t pci, hwloc_obj_t interface,
                           struct plait_nic *nic)
{
    const char *noted = hwloc_obj_get_info_by_name(pci, NODE_INFO_CXI);
    const char *at = interface ? interface->name : "";

    if (noted) {
        snprintf(nic->name, sizeof(nic->name), "%s", noted);
        return;
    }
    at += strcspn(at, "0123456789");
    if (isdigit((unsigned char)at[0]) && at[strspn(at, "0123456789")] == '\0')
        snprintf(nic->name, sizeof(nic->name), "cxi%.8s", at);
}

static int add_nic(struct node_builder *builder, struct plait_nic *nic,
                   unsigned vendor, const struct node_locus *locus)
{
    nic->kind = node_nic_kind(nic->name, vendor);
    return node_builder_add_nic(builder, nic, locus);
}

/* One NIC for every RDMA device; a fabric card without a driver for it
 * counts as one, under the name its network interface has. */
int node_add_nics(struct node_builder *builder, hwloc_topology_t topology,
                  hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
    hwloc_obj_t interface = find_interface(pci);
    struct plait_nic nic = {0};
    struct node_locus locus;
    int found = 0;

    if (node_locate(topology, pci, &locus))
        return -1;
    nic.numa = locus.numa;
    node_format_busid(attr->domain, attr->bus, attr->dev, attr->func,
                      nic.busid);
    if (interface)
        snprintf(nic.interface, sizeof(nic.interface), "%s", interface->name);
    for (hwloc_obj_t child = pci->io_first_child; child;
         child = child->next_sibling) {
        if (!is_rdma(child))
            continue;
        snprintf(nic.name, sizeof(nic.name), "%s", child->name);
        nic.gbps = port_gbps(child);
        if (nic.gbps == 0 && interface)
            nic.gbps = port_gbps(interface);
        if (add_nic(builder, &nic, attr->vendor_id, &locus))
            return -1;
        found = 1;
    }
    if (found ||
        !node_is_fabric_nic(attr->class_id, attr->vendor_id, attr->device_id))
        return 0;
    snprintf(nic.name, sizeof(nic.name), "%s",
             interface ? interface->name : nic.busid);
    if (node_is_slingshot(attr->vendor_id, attr->device_id))
        name_slingshot(pci, interface, &nic);
    nic.gbps = interface ? port_gbps(interface) : 0;
    return add_nic(builder, &nic, attr->vendor_id, &locus);
}

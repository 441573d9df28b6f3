/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/node/build.h"
#include "topology/node/env.h"
#include "topology/node/hwloc.h"
#include "topology/node/parts.h"

/* The live machine: what hwloc finds, and what it does not report without the
 * vendors' plugins: link bandwidths and port speeds. */

static FILE *open_under(const char *root, const char *path)
{
    char full[4096];

    if ((size_t)snprintf(full, sizeof(full), "%s%s", root, path) >=
        sizeof(full))
        return NULL;
    return fopen(full, "re");
}

/* A snapshot of sysfs may lack the vendor ids, but not the NVIDIA driver's
 * list of its GPUs. */
static void note_nvidia_gpus(hwloc_topology_t topology, const char *root)
{
    hwloc_obj_t pci = NULL;
    char path[4096], busid[16];

    while ((pci = hwloc_get_next_pcidev(topology, pci))) {
        const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;

        node_format_busid(attr->domain, attr->bus, attr->dev, attr->func,
                          busid);
        snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus/%s", root,
                 busid);
        if (attr->vendor_id == 0 && access(path, F_OK) == 0)
            hwloc_obj_add_info(pci, NODE_INFO_VENDOR, "nvidia");
    }
}

/* "200 Gb/sec (4X HDR)" of an InfiniBand or RoCE port, "25000" (Mbit/s) of a
 * network interface. */
static void note_port_speed(hwloc_obj_t osdev, const char *root)
{
    int rdma = node_osdev_is(osdev, HWLOC_OBJ_OSDEV_OPENFABRICS);
    char path[512], mbps[32];
    double rate;
    FILE *file;

    if (!osdev->name || strchr(osdev->name, '/'))
        return;
    snprintf(path, sizeof(path),
             rdma ? "/sys/class/infiniband/%.64s/ports/1/rate"
                  : "/sys/class/net/%.64s/speed",
             osdev->name);
    file = open_under(root, path);
    if (!file)
        return;
    if (fscanf(file, "%lf", &rate) == 1 && rate > 0 && rate < 1e9) {
        snprintf(mbps, sizeof(mbps), "%.0f", rdma ? rate * 1000 : rate);
        hwloc_obj_add_info(osdev, NODE_INFO_MBPS, mbps);
    }
    fclose(file);
}

static void note_port_speeds(hwloc_topology_t topology, const char *root)
{
    hwloc_obj_t osdev = NULL;

    while ((osdev = hwloc_get_next_osdev(topology, osdev))) {
        if (node_osdev_is(osdev, HWLOC_OBJ_OSDEV_OPENFABRICS) ||
            node_osdev_is(osdev, HWLOC_OBJ_OSDEV_NETWORK))
            note_port_speed(osdev, root);
    }
}

/* Slingshot's driver names its device below the card; hwloc lists it since
 * 2.14 alone. */
static void note_slingshot(hwloc_topology_t topology, const char *root)
{
    hwloc_obj_t pci = NULL;
    char path[4096], busid[16];
    struct dirent *entry;

    while ((pci = hwloc_get_next_pcidev(topology, pci))) {
        const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
        DIR *dir;

        if (!node_is_slingshot(attr->vendor_id, attr->device_id))
            continue;
        node_format_busid(attr->domain, attr->bus, attr->dev, attr->func,
                          busid);
        snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/cxi", root,
                 busid);
        dir = opendir(path);
        while (dir && (entry = readdir(dir)))
            if (strncmp(entry->d_name, "cxi", 3) == 0)
                hwloc_obj_add_info(pci, NODE_INFO_CXI, entry->d_name);
        if (dir)
            closedir(dir);
    }
}

/* How many of `form`, which ends with a number, there are below the card. */
static int count_files(const char *root, const char *busid, const char *form)
{
    char path[4096];
    int n = 0;

    do
        snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/%s%d", root,
                 busid, form, n);
    while (access(path, F_OK) == 0 && ++n < NODE_PARTS_MOST);
    return n;
}

/* The driver xe has tile0, tile1 below a card, i915 drm/card0/gt/gt0 and gt1.
 * Where there is neither, the ids tell. */
static int count_tiles(const char *root, const char *busid)
{
    int n = count_files(root, busid, "tile");
    char form[32];

    for (int card = 0; n == 0 && card < NODE_PARTS_MOST; card++) {
        snprintf(form, sizeof(form), "drm/card%d/gt/gt", card);
        n = count_files(root, busid, form);
    }
    return n;
}

static void note_tiles(hwloc_topology_t topology, const char *root)
{
    const struct node_part tile = {.number = -1, .file = -1};
    hwloc_obj_t pci = NULL;
    char busid[16];

    while ((pci = hwloc_get_next_pcidev(topology, pci))) {
        const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
        const char *vendor =
            node_gpu_vendor(attr->class_id, attr->vendor_id, attr->device_id);

        if (!vendor || strcmp(vendor, "intel") != 0)
            continue;
        node_format_busid(attr->domain, attr->bus, attr->dev, attr->func,
                          busid);
        for (int n = count_tiles(root, busid); n > 0; n--)
            node_note_part(pci, &tile);
    }
}

/* Add what hwloc did not report. A topology that HWLOC_XMLFILE brought in from
 * elsewhere must not get this machine's links. */
static void complete(hwloc_topology_t topology)
{
    const char *snapshot = getenv("HWLOC_FSROOT");
    const char *root = snapshot ? snapshot : "";

    if (!snapshot && !hwloc_topology_is_thissystem(topology))
        return;
    note_nvidia_gpus(topology, root);
    note_port_speeds(topology, root);
    note_slingshot(topology, root);
    note_tiles(topology, root);
    node_note_kfd(topology, root);
    if (!snapshot)
        node_note_nvml(topology);
}

static hwloc_topology_t load_topology(unsigned long flags)
{
    /* All but the last start whole GPU runtimes, which takes seconds, and find
     * only what sysfs and NVML report too. The last is libpciaccess, which
     * reports nothing that sysfs does not, and leaks. */
    static const char *const unwanted[] = {"gl",   "opencl",    "cuda", "nvml",
                                           "rsmi", "levelzero", "pci"};
    hwloc_topology_t topology = node_create_topology();

    for (size_t i = 0; topology && i < sizeof(unwanted) / sizeof(unwanted[0]);
         i++)
        hwloc_topology_set_components(
            topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
    if (topology && (hwloc_topology_set_flags(topology, flags) ||
                     hwloc_topology_load(topology))) {
        hwloc_topology_destroy(topology);
        return NULL;
    }
    return topology;
}

static struct plait_node *create_node(int trust_env, unsigned long flags,
                                      struct plait_error *err)
{
    struct node_env *env = NULL;
    struct plait_node *node = NULL;
    hwloc_topology_t topology;

    if (!trust_env && !(env = node_env_hide())) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    topology = load_topology(flags);
    if (topology) {
        complete(topology);
        node = node_read_topology(topology);
    }
    if (!node)
        plait_errorf(err, "cannot read this machine's topology: %s",
                     strerror(errno));
    node_env_restore(env);
    return node;
}

struct plait_node *plait_node_create(int trust_env, struct plait_error *err)
{
    return create_node(trust_env, 0, err);
}

struct plait_node *node_create_whole(struct plait_error *err)
{
    return create_node(0, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED, err);
}

struct plait_node *plait_node_create_cached(const char *xml, size_t size,
                                            struct plait_error *err)
{
    struct node_env *env = node_env_hide();
    hwloc_topology_t topology = env ? node_create_topology() : NULL;
    struct plait_node *node = NULL;

    if (topology &&
        (hwloc_topology_set_flags(
             topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM |
                           HWLOC_TOPOLOGY_FLAG_THISSYSTEM_ALLOWED_RESOURCES) ||
         hwloc_topology_set_xmlbuffer(topology, xml, (int)size) ||
         hwloc_topology_load(topology))) {
        hwloc_topology_destroy(topology);
        topology = NULL;
    }
    if (topology)
        node = node_read_topology(topology);
    if (!node)
        plait_errorf(err, "cannot read the cached topology: %s",
                     strerror(errno));
    node_env_restore(env);
    return node;
}

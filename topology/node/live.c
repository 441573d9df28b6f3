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

/* The live machine: what hwloc finds, and what it does not report without the
 * vendors' plugins: link bandwidths and port speeds. */

#define KFD_NODES "/sys/class/kfd/kfd/topology/nodes"
#define KFD_XGMI 11
#define GPUS_MOST 64

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
    int rdma = osdev->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
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
        if (osdev->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ||
            osdev->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
            note_port_speed(osdev, root);
    }
}

/* The number after `name` in a KFD properties file, -1 if there is none. */
static long property(const char *root, const char *path, const char *name)
{
    FILE *file = open_under(root, path);
    long value, found = -1;
    char key[64];

    if (!file)
        return -1;
    while (fscanf(file, "%63s %ld", key, &value) == 2) {
        if (strcmp(key, name) == 0)
            found = value;
    }
    fclose(file);
    return found;
}

/* The PCI device of KFD node `id`, NULL if that is a processor. */
static hwloc_obj_t kfd_device(hwloc_topology_t topology, const char *root,
                              long id)
{
    char path[256];
    long location, domain;

    snprintf(path, sizeof(path), KFD_NODES "/%ld/properties", id);
    location = property(root, path, "location_id");
    domain = property(root, path, "domain");
    if (location <= 0)
        return NULL;
    return hwloc_get_pcidev_by_busid(
        topology, domain < 0 ? 0 : (unsigned)domain,
        (unsigned)location >> 8 & 0xff, (unsigned)location >> 3 & 0x1f,
        (unsigned)location & 7);
}

static int index_of(hwloc_obj_t *objs, int *n, hwloc_obj_t obj)
{
    int i;

    for (i = 0; i < *n; i++) {
        if (objs[i] == obj)
            return i;
    }
    if (!obj || *n == GPUS_MOST)
        return -1;
    objs[(*n)++] = obj;
    return i;
}

struct kfd {
    hwloc_obj_t objs[GPUS_MOST];
    hwloc_uint64_t mbytes[GPUS_MOST][GPUS_MOST];
    int n;
};

static void read_kfd_links(struct kfd *kfd, hwloc_topology_t topology,
                           const char *root, long id, hwloc_obj_t from)
{
    char path[256];
    long type;

    for (long link = 0;; link++) {
        long bandwidth;
        int a, b;

        snprintf(path, sizeof(path), KFD_NODES "/%ld/io_links/%ld/properties",
                 id, link);
        type = property(root, path, "type");
        if (type < 0)
            return;
        bandwidth = property(root, path, "max_bandwidth");
        if (type != KFD_XGMI || bandwidth <= 0)
            continue;
        a = index_of(kfd->objs, &kfd->n, from);
        b = index_of(
            kfd->objs, &kfd->n,
            kfd_device(topology, root, property(root, path, "node_to")));
        if (a >= 0 && b >= 0 && a != b)
            kfd->mbytes[a][b] = (hwloc_uint64_t)bandwidth;
    }
}

/* AMD's kernel driver lists the xGMI links of every GPU. */
static void note_xgmi(hwloc_topology_t topology, const char *root)
{
    struct kfd *kfd = calloc(1, sizeof(*kfd));
    hwloc_uint64_t *values;
    char path[256];

    for (long id = 0; kfd; id++) {
        hwloc_obj_t device;
        FILE *file;

        /* Those of GPUs outside of this process's cgroup are there, too, but
         * cannot be read. */
        snprintf(path, sizeof(path), KFD_NODES "/%ld/properties", id);
        file = open_under(root, path);
        if (!file)
            break;
        fclose(file);
        device = kfd_device(topology, root, id);
        if (device)
            read_kfd_links(kfd, topology, root, id, device);
    }
    values = kfd ? calloc((size_t)kfd->n * (size_t)kfd->n + 1, sizeof(*values))
                 : NULL;
    if (values && kfd->n > 0) {
        for (int i = 0; i < kfd->n; i++) {
            for (int k = 0; k < kfd->n; k++)
                values[i * kfd->n + k] = kfd->mbytes[i][k];
        }
        node_note_links(topology, "XGMIBandwidth", (unsigned)kfd->n, kfd->objs,
                        values);
    }
    free(values);
    free(kfd);
}

void node_note_links(hwloc_topology_t topology, const char *name, unsigned n,
                     hwloc_obj_t *objs, hwloc_uint64_t *values)
{
    hwloc_distances_add_handle_t handle = hwloc_distances_add_create(
        topology, name,
        HWLOC_DISTANCES_KIND_FROM_USER | HWLOC_DISTANCES_KIND_MEANS_BANDWIDTH,
        0);

    if (handle &&
        hwloc_distances_add_values(topology, handle, n, objs, values, 0) == 0)
        hwloc_distances_add_commit(topology, handle, 0);
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
    note_xgmi(topology, root);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* AMD's GPUs as the kernel's driver, KFD, lists them: ROCm numbers the GPUs in
 * the order of these nodes, which is not that of the PCI bus, and counts each
 * partition of an MI300 as one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/node/build.h"
#include "topology/node/hwloc.h"
#include "topology/node/parts.h"

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

struct properties {
    long long location, domain, simds, minor, unique;
};

/* -1 where there is no such file. What is not in it is -1. */
static int read_properties(const char *root, long id, struct properties *p)
{
    struct {
        const char *name;
        long long *at;
    } known[] = {{"location_id", &p->location},
                 {"domain", &p->domain},
                 {"simd_count", &p->simds},
                 {"drm_render_minor", &p->minor},
                 {"unique_id", &p->unique}};
    char path[256], key[64];
    unsigned long long value;
    FILE *file;

    memset(p, 0xff, sizeof(*p));
    snprintf(path, sizeof(path), KFD_NODES "/%ld/properties", id);
    file = open_under(root, path);
    if (!file)
        return -1;
    while (fscanf(file, "%63s %llu", key, &value) == 2) {
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            if (strcmp(key, known[i].name) == 0)
                *known[i].at = (long long)value;
    }
    fclose(file);
    return 0;
}

/* The PCI device of a KFD node, NULL if that is a processor. */
static hwloc_obj_t find_device(hwloc_topology_t topology,
                               const struct properties *p)
{
    unsigned location = (unsigned)p->location;

    if (p->location <= 0 || p->simds == 0)
        return NULL;
    /* The uppermost bits count the partitions of a device. */
    return hwloc_get_pcidev_by_busid(
        topology, p->domain < 0 ? 0 : (unsigned)p->domain, location >> 8 & 0xff,
        location >> 3 & 0x1f, location & 7);
}

struct kfd {
    hwloc_topology_t topology;
    const char *root;
    hwloc_obj_t objs[GPUS_MOST];
    hwloc_uint64_t mbytes[GPUS_MOST][GPUS_MOST];
    int n;
};

static int index_of(struct kfd *kfd, hwloc_obj_t obj)
{
    for (int i = 0; i < kfd->n; i++) {
        if (kfd->objs[i] == obj)
            return i;
    }
    if (!obj || kfd->n == GPUS_MOST)
        return -1;
    kfd->objs[kfd->n++] = obj;
    return kfd->n - 1;
}

/* A number after `name` in the properties of a link, -1 if there is none. */
static long link_property(const char *root, const char *path, const char *name)
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

static void read_links(struct kfd *kfd, long id, hwloc_obj_t from)
{
    char path[256];

    for (long link = 0;; link++) {
        struct properties to;
        long bandwidth, type;
        int a, b;

        snprintf(path, sizeof(path), KFD_NODES "/%ld/io_links/%ld/properties",
                 id, link);
        type = link_property(kfd->root, path, "type");
        if (type < 0)
            return;
        bandwidth = link_property(kfd->root, path, "max_bandwidth");
        if (type != KFD_XGMI || bandwidth <= 0 ||
            read_properties(kfd->root,
                            link_property(kfd->root, path, "node_to"), &to))
            continue;
        a = index_of(kfd, from);
        b = index_of(kfd, find_device(kfd->topology, &to));
        if (a >= 0 && b >= 0 && a != b)
            kfd->mbytes[a][b] = (hwloc_uint64_t)bandwidth;
    }
}

static void note_links(struct kfd *kfd)
{
    hwloc_uint64_t *values =
        calloc((size_t)kfd->n * (size_t)kfd->n + 1, sizeof(*values));

    if (values && kfd->n > 0) {
        for (int i = 0; i < kfd->n; i++) {
            for (int k = 0; k < kfd->n; k++)
                values[i * kfd->n + k] = kfd->mbytes[i][k];
        }
        node_note_links(kfd->topology, "XGMIBandwidth", (unsigned)kfd->n,
                        kfd->objs, values);
    }
    free(values);
}

void node_note_kfd(hwloc_topology_t topology, const char *root)
{
    struct kfd *kfd = calloc(1, sizeof(*kfd));
    struct properties p;
    int number = 0;

    if (!kfd)
        return;
    kfd->topology = topology;
    kfd->root = root;
    /* The nodes of GPUs outside of this process's cgroup are there, too, but
     * have no text: ROCm does not count them either. */
    for (long id = 0; read_properties(root, id, &p) == 0; id++) {
        struct node_part part = {.file = (int)p.minor};
        hwloc_obj_t device = find_device(topology, &p);

        if (p.location <= 0 || p.simds == 0)
            continue;
        part.number = number++;
        if (!device)
            continue;
        /* 0 or nothing where the driver knows none */
        if (p.unique != 0 && p.unique != -1)
            snprintf(part.uuid, sizeof(part.uuid), "GPU-%016llx",
                     (unsigned long long)p.unique);
        node_note_part(device, &part);
        read_links(kfd, id, device);
    }
    note_links(kfd);
    free(kfd);
}

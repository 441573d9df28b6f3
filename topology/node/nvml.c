/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topology/node/build.h"
#include "topology/node/hwloc.h"
#include "topology/node/parts.h"

/* NVIDIA's management library, loaded where it is installed: the names of
 * the GPUs and their NVLinks. Its ABI is declared here, so that building
 * needs no CUDA and running no driver. */

#define LINKS_MOST 72 /* 18 today */
#define GPUS_MOST 64
#define NAME_SIZE 96

typedef int (*nvml_void)(void);
typedef int (*nvml_count)(unsigned *n);
typedef int (*nvml_handle)(unsigned index, void **device);
typedef int (*nvml_string)(void *device, char *text, unsigned size);
typedef int (*nvml_mig_count)(void *device, unsigned *n);
typedef int (*nvml_mig_handle)(void *device, unsigned index, void **mig);
typedef int (*nvml_two)(void *device, int *major, int *minor);
typedef int (*nvml_link)(void *device, unsigned link, unsigned *value);

struct nvml_pci {
    char busid_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char busid[32];
};
typedef int (*nvml_pci_of)(void *device, struct nvml_pci *pci);
typedef int (*nvml_remote)(void *device, unsigned link, struct nvml_pci *pci);

enum { REMOTE_GPU, REMOTE_CPU, REMOTE_SWITCH };

struct nvml {
    void *library;
    nvml_void init, shutdown;
    nvml_count count;
    nvml_handle handle;
    nvml_pci_of pci;
    nvml_string name;
    nvml_two capability;
    nvml_link link_state, link_remote_type;
    nvml_remote link_remote;
    nvml_string uuid;
    nvml_mig_count mig_count;
    nvml_mig_handle mig_handle;
};

struct gpus {
    int n;
    hwloc_obj_t objs[GPUS_MOST];
    double to_switch[GPUS_MOST]; /* MB/s */
    double direct[GPUS_MOST][GPUS_MOST];
};

/* Drivers before 470 lack the first, before 450 those of MIG. Without the first
 * the bus id is used instead. */
static void find_newer(struct nvml *nvml)
{
    const struct {
        const char *name;
        void *at;
    } symbols[] = {
        {"nvmlDeviceGetNvLinkRemoteDeviceType", &nvml->link_remote_type},
        {"nvmlDeviceGetUUID", &nvml->uuid},
        {"nvmlDeviceGetMaxMigDeviceCount", &nvml->mig_count},
        {"nvmlDeviceGetMigDeviceHandleByIndex", &nvml->mig_handle},
    };

    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(nvml->library, symbols[i].name);

        memcpy(symbols[i].at, &symbol, sizeof(symbol));
    }
}

static int load_library(struct nvml *nvml)
{
    const struct {
        const char *name;
        void *at;
    } symbols[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlShutdown", &nvml->shutdown},
        {"nvmlDeviceGetCount_v2", &nvml->count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->handle},
        {"nvmlDeviceGetPciInfo_v3", &nvml->pci},
        {"nvmlDeviceGetName", &nvml->name},
        {"nvmlDeviceGetCudaComputeCapability", &nvml->capability},
        {"nvmlDeviceGetNvLinkState", &nvml->link_state},
        {"nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml->link_remote},
    };
    void *symbol;

    memset(nvml, 0, sizeof(*nvml));
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library)
        return -1;
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        symbol = dlsym(nvml->library, symbols[i].name);
        if (!symbol)
            return -1;
        memcpy(symbols[i].at, &symbol, sizeof(symbol));
    }
    find_newer(nvml);
    return 0;
}

/* NVML's count is that of the physical GPUs; MIG instances come below them. */
static hwloc_obj_t device_object(hwloc_topology_t topology,
                                 const struct nvml_pci *pci)
{
    return hwloc_get_pcidev_by_busid(topology, pci->domain, pci->bus,
                                     pci->device, 0);
}

static int find_gpu(const struct gpus *gpus, hwloc_obj_t obj)
{
    for (int i = 0; obj && i < gpus->n; i++) {
        if (gpus->objs[i] == obj)
            return i;
    }
    return -1;
}

static void read_links(const struct nvml *nvml, hwloc_topology_t topology,
                       void *device, int gpu, struct gpus *gpus)
{
    int major = 0, minor = 0;
    double mbytes;

    nvml->capability(device, &major, &minor);
    mbytes = node_nvlink_gbps(10 * major + minor) * 1000;
    for (unsigned link = 0; link < LINKS_MOST; link++) {
        unsigned active = 0, type = REMOTE_SWITCH;
        struct nvml_pci pci = {0};
        int other = -1;

        if (nvml->link_state(device, link, &active) || !active)
            continue;
        if (nvml->link_remote(device, link, &pci) == 0)
            other = find_gpu(gpus, device_object(topology, &pci));
        if (other >= 0)
            type = REMOTE_GPU;
        else if (nvml->link_remote_type)
            nvml->link_remote_type(device, link, &type);
        if (other >= 0 && other != gpu)
            gpus->direct[gpu][other] += mbytes;
        else if (type == REMOTE_SWITCH)
            gpus->to_switch[gpu] += mbytes;
    }
}

static void note_matrix(hwloc_topology_t topology, struct gpus *gpus)
{
    int n = gpus->n;
    hwloc_uint64_t *values = calloc((size_t)n * (size_t)n, sizeof(*values));
    double sum = 0;

    for (int i = 0; values && i < n; i++) {
        for (int k = 0; k < n; k++) {
            double shared = gpus->to_switch[i] < gpus->to_switch[k]
                                ? gpus->to_switch[i]
                                : gpus->to_switch[k];

            if (i != k)
                values[i * n + k] =
                    (hwloc_uint64_t)(gpus->direct[i][k] + shared);
            sum += (double)values[i * n + k];
        }
    }
    if (sum > 0)
        node_note_links(topology, "NVLinkBandwidth", (unsigned)n, gpus->objs,
                        values);
    free(values);
}

/* The GPU's UUID, or those of its MIG instances: a job is given these. NVML
 * counts the places for instances; not all have one. */
static void note_parts(const struct nvml *nvml, void *device, hwloc_obj_t obj)
{
    struct node_part part = {.number = -1, .file = -1};
    unsigned most = 0, n = 0;
    void *mig;

    if (!nvml->uuid)
        return;
    if (nvml->mig_count && nvml->mig_handle &&
        nvml->mig_count(device, &most) == 0) {
        for (unsigned i = 0; i < most && i < NODE_PARTS_MOST; i++) {
            if (nvml->mig_handle(device, i, &mig) ||
                nvml->uuid(mig, part.uuid, sizeof(part.uuid)))
                continue;
            node_note_part(obj, &part);
            n++;
        }
    }
    if (n == 0 && nvml->uuid(device, part.uuid, sizeof(part.uuid)) == 0)
        node_note_part(obj, &part);
}

static void ask(const struct nvml *nvml, hwloc_topology_t topology)
{
    struct gpus *gpus = calloc(1, sizeof(*gpus));
    void *devices[GPUS_MOST];
    unsigned count = 0;

    if (!gpus || nvml->count(&count)) {
        free(gpus);
        return;
    }
    for (unsigned i = 0; i < count && gpus->n < GPUS_MOST; i++) {
        char name[NAME_SIZE] = "";
        struct nvml_pci pci = {0};
        hwloc_obj_t obj;

        if (nvml->handle(i, &devices[gpus->n]) ||
            nvml->pci(devices[gpus->n], &pci) ||
            !(obj = device_object(topology, &pci)))
            continue;
        if (nvml->name(devices[gpus->n], name, sizeof(name)) == 0 && name[0])
            hwloc_obj_add_info(obj, NODE_INFO_MODEL, name);
        note_parts(nvml, devices[gpus->n], obj);
        gpus->objs[gpus->n++] = obj;
    }
    for (unsigned i = 0; i < (unsigned)gpus->n; i++)
        read_links(nvml, topology, devices[i], (int)i, gpus);
    if (gpus->n > 1)
        note_matrix(topology, gpus);
    free(gpus);
}

static bool has_nvidia(hwloc_topology_t topology)
{
    hwloc_obj_t pci = NULL;

    while ((pci = hwloc_get_next_pcidev(topology, pci))) {
        if (pci->attr->pcidev.vendor_id == 0x10de)
            return true;
    }
    return false;
}

void node_note_nvml(hwloc_topology_t topology)
{
    struct nvml nvml;

    if (!has_nvidia(topology))
        return;
    if (load_library(&nvml) == 0 && nvml.init() == 0) {
        ask(&nvml, topology);
        nvml.shutdown();
    }
    if (nvml.library)
        dlclose(nvml.library);
}

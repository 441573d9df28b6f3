/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An NVML with two GPUs at 05:00.0 and 06:00.0, for machines without GPUs.
 * FAKE_NVML=direct connects them by 4 links of an H100, FAKE_NVML=switch by 18
 * links each to a switch that has no address; with FAKE_NVML=broken it fails to
 * start; with FAKE_NVML=mig a GPU has MIG instances. */

struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char busid[32];
};

static int devices[2] = {5, 6};

static int is(const char *mode)
{
    const char *set = getenv("FAKE_NVML");

    return set && strcmp(set, mode) == 0;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *pci);
int nvmlDeviceGetName(void *device, char *name, unsigned size);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link,
                                        struct pci_info *pci);
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link,
                                        unsigned *type);

/* With FAKE_NVML=mig the second GPU has instances at the first and the third of
 * seven places. */
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size);
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *n);
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index,
                                        void **mig);

static int instances[7] = {10, 11, 12, 13, 14, 15, 16};

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
    int which = *(int *)device;

    snprintf(uuid, size, "%s-%d-of-the-fake", which < 10 ? "GPU" : "MIG",
             which);
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *n)
{
    *n = is("mig") && *(int *)device == 6 ? 7 : 0;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index,
                                        void **mig)
{
    (void)device;
    if (index != 0 && index != 2)
        return 6;
    *mig = &instances[index];
    return 0;
}

/* GPUs of a rack that NVLink joins, by FAKE_NVML_DOMAIN: ready, mixed (two
 * cliques), starting or failed; other: another rack; old: a driver that knows
 * the first form of the call alone. Not set: GPUs that join no other node. */
struct fabric_info {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};
struct fabric_info_old {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};
int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric_info *info);
int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric_info_old *info);

int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric_info_old *info)
{
    const char *set = getenv("FAKE_NVML_DOMAIN");
    int completed = set && strcmp(set, "starting") != 0;

    memset(info, 0, sizeof(*info));
    info->state = (unsigned char)(!set ? 0 : completed ? 3 : 2);
    if (completed)
        memset(info->cluster, strcmp(set, "other") == 0 ? 0xcd : 0xab,
               sizeof(info->cluster));
    info->status = set && strcmp(set, "failed") == 0 ? 999 : 0;
    info->clique =
        set && strcmp(set, "mixed") == 0 ? (unsigned)*(int *)device : 7;
    return 0;
}

int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric_info *info)
{
    const char *set = getenv("FAKE_NVML_DOMAIN");
    struct fabric_info_old old;

    if (info->version != ((unsigned)sizeof(*info) | 2u << 24) ||
        (set && strcmp(set, "old") == 0))
        return 25; /* another version is expected */
    nvmlDeviceGetGpuFabricInfo(device, &old);
    memcpy(info->cluster, old.cluster, sizeof(info->cluster));
    info->status = old.status;
    info->clique = old.clique;
    info->state = old.state;
    info->health = 0;
    return 0;
}

int nvmlInit_v2(void)
{
    return is("broken") ? 9 : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &devices[index];
    return 0;
}

static int fill(struct pci_info *pci, int bus)
{
    memset(pci, 0, sizeof(*pci));
    pci->bus = (unsigned)bus;
    snprintf(pci->busid, sizeof(pci->busid), "00000000:%02X:00.0", bus);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *pci)
{
    return fill(pci, *(int *)device);
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    snprintf(name, size, "NVIDIA H100 number %d", *(int *)device);
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    (void)device;
    *major = 9;
    *minor = 0;
    return 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active)
{
    (void)device;
    if (link >= 18)
        return 2;
    *active = is("switch") || link < 4;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link,
                                        struct pci_info *pci)
{
    (void)link;
    if (is("switch")) {
        fill(pci, 0xff);
        pci->domain = 0xfffffff;
        return 0;
    }
    return fill(pci, 5 + 6 - *(int *)device);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link,
                                        unsigned *type)
{
    (void)device;
    (void)link;
    *type = is("switch") ? 2 : 0;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An NVML with two GPUs at 05:00.0 and 06:00.0, for machines without GPUs.
 * FAKE_NVML=direct connects them by 4 links of an H100, FAKE_NVML=switch by 18
 * links each to a switch that has no address; with FAKE_NVML=broken it fails to
 * start; with FAKE_NVML=mig a GPU has MIG instances. FAKE_NVML_SICK lists what
 * is wrong with the GPU at 06:00.0, separated by commas: see is_sick(). */

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

/* Whether the GPU has the illness `what`. */
static int is_sick(void *device, const char *what)
{
    const char *set = getenv("FAKE_NVML_SICK");
    size_t n = strlen(what);

    while (set && *(int *)device == 6) {
        if (strncmp(set, what, n) == 0 && (!set[n] || set[n] == ','))
            return 1;
        set = strchr(set, ',');
        set += set != NULL;
    }
    return 0;
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

    while (set && strcmp(set, "hang") == 0)
        pause();

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
    /* In topo-live.sh names tell the two apart. */
    if (getenv("FAKE_NVML_SICK"))
        snprintf(name, size, "NVIDIA H100");
    else
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
    if (link >= 18)
        return 2;
    *active = is("switch") || link < 4;
    if (is_sick(device, "unlinked") || (is_sick(device, "links") && link >= 3))
        *active = 0;
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

/* ---- the health of a GPU ---- */

struct memory {
    unsigned long long total, free, used;
};
struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, rc;
    unsigned long long value;
};

int nvmlDeviceGetHandleByPciBusId_v2(const char *busid, void **device);
int nvmlDeviceGetTotalEccErrors(void *device, unsigned type, unsigned counter,
                                unsigned long long *count);
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected,
                              unsigned *uncorrected, unsigned *pending,
                              unsigned *failed);
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *pending);
int nvmlDeviceGetPerformanceState(void *device, unsigned *state);
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *generation);
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation);
int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz);
int nvmlDeviceGetApplicationsClock(void *device, unsigned type, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(void *device, unsigned type, unsigned *mhz);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device,
                                              unsigned long long *bits);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending);
int nvmlDeviceGetFieldValues(void *device, int n, struct field *fields);

int nvmlDeviceGetHandleByPciBusId_v2(const char *busid, void **device)
{
    int i = strcmp(busid, "0000:06:00.0") == 0;

    if (!i && strcmp(busid, "0000:05:00.0") != 0)
        return 6;
    *device = &devices[i];
    while (is_sick(*device, "hang"))
        pause();
    return is_sick(*device, "lost") ? 15 : is_sick(*device, "reset") ? 16 : 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, unsigned type, unsigned counter,
                                unsigned long long *count)
{
    *count =
        counter == 0 && is_sick(device, type ? "ecc" : "corrected") ? 7 : 0;
    return 0;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected,
                              unsigned *uncorrected, unsigned *pending,
                              unsigned *failed)
{
    *corrected = *uncorrected = 1;
    *pending = (unsigned)is_sick(device, "row");
    *failed = (unsigned)is_sick(device, "rowless");
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending)
{
    *now = *pending = (unsigned)is_sick(device, "mig");
    return 0;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *pending)
{
    *pending = (unsigned)is_sick(device, "page");
    return 0;
}

int nvmlDeviceGetPerformanceState(void *device, unsigned *state)
{
    *state = is_sick(device, "idle") ? 8 : 0;
    return 0;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *generation)
{
    *generation = is_sick(device, "pcie") ? 3 : 5;
    return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation)
{
    (void)device;
    *generation = 5;
    return 0;
}

int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz)
{
    *mhz = type == 1 && is_sick(device, "hot") ? 705 : 1980;
    return 0;
}

int nvmlDeviceGetApplicationsClock(void *device, unsigned type, unsigned *mhz)
{
    *mhz = type == 1 && is_sick(device, "clock") ? 1200 : 1980;
    return 0;
}

int nvmlDeviceGetMaxClockInfo(void *device, unsigned type, unsigned *mhz)
{
    (void)device;
    (void)type;
    *mhz = 1980;
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device,
                                              unsigned long long *bits)
{
    *bits = 1; /* it is idle */
    if (is_sick(device, "hot"))
        *bits = 0x40;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    memory->total = (is_sick(device, "small") ? 40ULL : 80ULL) << 30;
    memory->used = (is_sick(device, "used") ? 20ULL : 1ULL) << 30;
    memory->free = memory->total - memory->used;
    return 0;
}

int nvmlDeviceGetFieldValues(void *device, int n, struct field *fields)
{
    for (int i = 0; i < n; i++) {
        fields[i].rc = fields[i].id == 164 ? 0 : 3;
        fields[i].value =
            is_sick(device, "speed") && fields[i].scope == 2 ? 20000 : 26562;
    }
    return 0;
}

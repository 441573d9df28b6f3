/* SPDX-License-Identifier: Apache-2.0 */
/* What NVIDIA's management library says of GPUs: memory errors, NVLinks, PCIe,
 * clocks. GPUs of one kind in a machine are compared with each other, as the
 * library does not know how many NVLinks a board should have. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/node/health.h"

/* NVML's ABI is declared here, as in nvml.c. */
typedef int (*nvml_void)(void);
typedef int (*nvml_count)(unsigned *n);
typedef int (*nvml_index)(unsigned index, void **device);
typedef int (*nvml_find)(const char *busid, void **device);
typedef int (*nvml_string)(void *device, char *text, unsigned size);
typedef int (*nvml_number)(void *device, unsigned *value);
typedef int (*nvml_typed)(void *device, unsigned type, unsigned *value);
typedef int (*nvml_ecc)(void *device, unsigned type, unsigned counter,
                        unsigned long long *count);
typedef int (*nvml_rows)(void *device, unsigned *corrected,
                         unsigned *uncorrected, unsigned *pending,
                         unsigned *failed);
typedef int (*nvml_mode)(void *device, unsigned *now, unsigned *pending);
typedef int (*nvml_bits)(void *device, unsigned long long *bits);
struct nvml_memory {
    unsigned long long total, free, used;
};
typedef int (*nvml_memory_of)(void *device, struct nvml_memory *memory);
struct nvml_field {
    unsigned id, scope;
    long long timestamp, microseconds;
    int type, rc;
    union {
        unsigned number;
        unsigned long long number64;
        double real;
    } value;
};
typedef int (*nvml_fields)(void *device, int n, struct nvml_field *fields);

enum { RC_LOST = 15, RC_RESET = 16 };
enum { CORRECTED, UNCORRECTED };
enum { SINCE_LOADED };     /* the counters that a driver's start clears */
enum { CLOCK_SM = 1 };     /* of the processors */
enum { P_FULL = 0 };       /* the performance state of a GPU at full speed */
enum { LINK_SPEED = 164 }; /* the field of an NVLink's speed in MB/s */
enum { LINKS_MOST = 72, LINKED_LEAST = 3, NAME_SIZE = 96 };

/* Why clocks are low. */
static const struct {
    unsigned long long bit;
    enum plait_health_kind kind;
    const char *text;
} reasons[] = {
    {0x08, PLAIT_HEALTH_BAD, "the hardware slows it down, by heat or power"},
    {0x20, PLAIT_HEALTH_BAD, "the driver slows it down, as it is too hot"},
    {0x40, PLAIT_HEALTH_BAD, "the hardware slows it down, as it is too hot"},
    {0x80, PLAIT_HEALTH_BAD, "the power supply slows it down"},
    {0x04, PLAIT_HEALTH_NOTE, "it is at its limit of power"},
};

struct nvml {
    void *library;
    nvml_void init, shutdown;
    nvml_count count;
    nvml_index index;
    nvml_find find;
    /* Each of these may be NULL in older drivers. */
    nvml_string name;
    nvml_ecc ecc;
    nvml_rows rows;
    nvml_number retired, state, generation, generation_most;
    nvml_typed link_state, clock, clock_set, clock_most;
    nvml_mode mig;
    nvml_bits reasons;
    nvml_memory_of memory;
    nvml_fields fields;
};

/* What GPUs of a kind are compared by. */
struct figures {
    char name[NAME_SIZE];
    unsigned links, link_speed; /* those that are up, and the slowest's MB/s */
    unsigned clock;             /* MHz that it may run at; 0: not known */
    double memory;
    int alike, linked; /* of the best: GPUs of that name, those with links */
};

struct gpu {
    const char *busid;
    void *device;
    struct plait_health *health;
};

static bool load_library(struct nvml *nvml, const char *file)
{
    const struct {
        const char *name;
        void *at;
        bool optional;
    } symbols[] = {
        {"nvmlInit_v2", &nvml->init, false},
        {"nvmlShutdown", &nvml->shutdown, false},
        {"nvmlDeviceGetCount_v2", &nvml->count, false},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->index, false},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml->find, false},
        {"nvmlDeviceGetName", &nvml->name, true},
        {"nvmlDeviceGetTotalEccErrors", &nvml->ecc, true},
        {"nvmlDeviceGetRemappedRows", &nvml->rows, true},
        {"nvmlDeviceGetRetiredPagesPendingStatus", &nvml->retired, true},
        {"nvmlDeviceGetPerformanceState", &nvml->state, true},
        {"nvmlDeviceGetCurrPcieLinkGeneration", &nvml->generation, true},
        {"nvmlDeviceGetMaxPcieLinkGeneration", &nvml->generation_most, true},
        {"nvmlDeviceGetNvLinkState", &nvml->link_state, true},
        {"nvmlDeviceGetClockInfo", &nvml->clock, true},
        {"nvmlDeviceGetApplicationsClock", &nvml->clock_set, true},
        {"nvmlDeviceGetMaxClockInfo", &nvml->clock_most, true},
        {"nvmlDeviceGetCurrentClocksThrottleReasons", &nvml->reasons, true},
        {"nvmlDeviceGetMemoryInfo", &nvml->memory, true},
        {"nvmlDeviceGetMigMode", &nvml->mig, true},
        {"nvmlDeviceGetFieldValues", &nvml->fields, true},
    };

    memset(nvml, 0, sizeof(*nvml));
    nvml->library =
        dlopen(file ? file : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol =
            nvml->library ? dlsym(nvml->library, symbols[i].name) : NULL;

        if (!symbol && !symbols[i].optional)
            return false;
        memcpy(symbols[i].at, &symbol, sizeof(symbol));
    }
    return true;
}

#define SAY(gpu, kind, format, ...)                                        \
    plait_health_add((gpu)->health, kind, "GPU %s: " format, (gpu)->busid, \
                     __VA_ARGS__)

static void check_memory_errors(const struct nvml *nvml, const struct gpu *gpu)
{
    unsigned long long count = 0;
    unsigned fixed, lost, pending = 0, failed = 0;

    if (nvml->ecc &&
        nvml->ecc(gpu->device, UNCORRECTED, SINCE_LOADED, &count) == 0 && count)
        SAY(gpu, PLAIT_HEALTH_BAD,
            "%llu uncorrected memory errors since its driver was loaded",
            count);
    if (nvml->ecc &&
        nvml->ecc(gpu->device, CORRECTED, SINCE_LOADED, &count) == 0 && count)
        SAY(gpu, PLAIT_HEALTH_NOTE,
            "%llu corrected memory errors since its driver was loaded", count);
    if (nvml->rows &&
        nvml->rows(gpu->device, &fixed, &lost, &pending, &failed) == 0) {
        if (failed)
            SAY(gpu, PLAIT_HEALTH_BAD, "%s",
                "a broken row of memory could not be replaced");
        else if (pending)
            SAY(gpu, PLAIT_HEALTH_BAD, "%s",
                "a broken row of memory is replaced at the next reset");
    }
    pending = 0;
    if (nvml->retired && nvml->retired(gpu->device, &pending) == 0 && pending)
        SAY(gpu, PLAIT_HEALTH_BAD, "%s",
            "broken pages of memory are retired at the next reset");
}

/* An idle GPU of some kinds lets PCIe run slower, and is then not at full
 * speed. */
static void check_pcie(const struct nvml *nvml, const struct gpu *gpu)
{
    unsigned state = P_FULL + 1, now = 0, most = 0;

    if (nvml->state && nvml->generation && nvml->generation_most &&
        nvml->state(gpu->device, &state) == 0 && state == P_FULL &&
        nvml->generation(gpu->device, &now) == 0 &&
        nvml->generation_most(gpu->device, &most) == 0 && now && now < most)
        SAY(gpu, PLAIT_HEALTH_BAD,
            "PCIe runs at the speed of generation %u, not %u", now, most);
}

static void check_clocks(const struct nvml *nvml, const struct gpu *gpu)
{
    unsigned long long bits = 0;
    unsigned now = 0, most = 0;
    char speed[64] = "";

    if (!nvml->reasons || nvml->reasons(gpu->device, &bits))
        return;
    if (nvml->clock && nvml->clock_most &&
        nvml->clock(gpu->device, CLOCK_SM, &now) == 0 &&
        nvml->clock_most(gpu->device, CLOCK_SM, &most) == 0)
        snprintf(speed, sizeof(speed), ": %u of %u MHz", now, most);
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (bits & reasons[i].bit)
            SAY(gpu, reasons[i].kind, "%s%s", reasons[i].text, speed);
}

/* ---- what GPUs of a kind have in common ---- */

static unsigned link_speed(const struct nvml *nvml, void *device, unsigned link)
{
    struct nvml_field field = {.id = LINK_SPEED, .scope = link};

    return nvml->fields && nvml->fields(device, 1, &field) == 0 && !field.rc
               ? field.value.number
               : 0;
}

static void read_figures(const struct nvml *nvml, void *device,
                         struct figures *f)
{
    struct nvml_memory memory = {0};

    memset(f, 0, sizeof(*f));
    if (nvml->name)
        nvml->name(device, f->name, sizeof(f->name));
    for (unsigned link = 0; nvml->link_state && link < LINKS_MOST; link++) {
        unsigned up = 0, speed;

        if (nvml->link_state(device, link, &up) || !up)
            continue;
        speed = link_speed(nvml, device, link);
        if (!f->links++ || speed < f->link_speed)
            f->link_speed = speed;
    }
    if (nvml->clock_set && nvml->clock_set(device, CLOCK_SM, &f->clock))
        f->clock = 0;
    if (nvml->memory && nvml->memory(device, &memory) == 0)
        f->memory = (double)memory.total;
}

/* The best of each figure among the GPUs of that name. */
static void find_best(const struct nvml *nvml, const char *name,
                      struct figures *best)
{
    unsigned count = 0;

    nvml->count(&count);
    for (unsigned i = 0; i < count; i++) {
        struct figures f;
        void *device;

        if (nvml->index(i, &device))
            continue;
        read_figures(nvml, device, &f);
        if (strcmp(f.name, name) != 0)
            continue;
        best->alike++;
        best->linked += f.links > 0;
        best->links = f.links > best->links ? f.links : best->links;
        if (f.link_speed > best->link_speed)
            best->link_speed = f.link_speed;
        best->clock = f.clock > best->clock ? f.clock : best->clock;
        best->memory = f.memory > best->memory ? f.memory : best->memory;
    }
}

#define GIB (1024.0 * 1024.0 * 1024.0)
/* What the driver itself takes of a GPU's memory is less, as a share. */
#define USED_MOST 0.1
#define MEMORY_LEAST 0.95

/* Whether its memory may be in use by others' instances. It has no NVLinks
 * then. */
static bool has_instances(const struct nvml *nvml, void *device)
{
    unsigned now = 0, pending;

    return nvml->mig && nvml->mig(device, &now, &pending) == 0 && now;
}

/* Pairs of GPUs may be bridged, and the rest not: so only among many with links
 * one without is odd. */
static bool lacks_links(const struct figures *f, const struct figures *best)
{
    if (f->links == 0 &&
        (best->linked < LINKED_LEAST || 2 * best->linked <= best->alike))
        return false;
    return f->links < best->links;
}

static void check_others(const struct nvml *nvml, const struct gpu *gpu)
{
    struct figures f, best = {0};
    struct nvml_memory memory = {0};
    bool shared = has_instances(nvml, gpu->device);

    read_figures(nvml, gpu->device, &f);
    find_best(nvml, f.name, &best);
    if (!shared && lacks_links(&f, &best))
        SAY(gpu, PLAIT_HEALTH_BAD, "%u of %u NVLinks are up", f.links,
            best.links);
    else if (!shared && f.link_speed && f.link_speed < best.link_speed)
        SAY(gpu, PLAIT_HEALTH_BAD, "an NVLink runs at %u of %u MB/s",
            f.link_speed, best.link_speed);
    if (f.clock && f.clock < best.clock)
        SAY(gpu, PLAIT_HEALTH_BAD,
            "its clock is set to %u MHz, that of others to %u", f.clock,
            best.clock);
    if (f.memory < MEMORY_LEAST * best.memory)
        SAY(gpu, PLAIT_HEALTH_BAD, "it has %.1f GiB of memory, others %.1f",
            f.memory / GIB, best.memory / GIB);
    if (nvml->memory && !shared && nvml->memory(gpu->device, &memory) == 0 &&
        (double)memory.used > USED_MOST * (double)memory.total)
        SAY(gpu, PLAIT_HEALTH_BUSY, "%.1f of %.1f GiB of its memory are in use",
            (double)memory.used / GIB, (double)memory.total / GIB);
}

static void check_gpu(const struct nvml *nvml, struct gpu *gpu)
{
    int rc = nvml->find(gpu->busid, &gpu->device);

    if (rc == RC_LOST)
        SAY(gpu, PLAIT_HEALTH_BAD, "%s", "it does not answer on PCIe any more");
    else if (rc == RC_RESET)
        SAY(gpu, PLAIT_HEALTH_BAD, "%s", "it has to be reset");
    if (rc)
        return;
    check_memory_errors(nvml, gpu);
    check_pcie(nvml, gpu);
    check_clocks(nvml, gpu);
    check_others(nvml, gpu);
}

void node_health_nvml(const struct plait_health_of *of,
                      struct plait_health *health)
{
    struct nvml nvml;

    if (of->ngpus && load_library(&nvml, of->nvml) && nvml.init() == 0) {
        for (int i = 0; i < of->ngpus; i++)
            check_gpu(&nvml, &(struct gpu){of->gpus[i], NULL, health});
        nvml.shutdown();
    }
    /* Not unloaded: this process ends. */
}

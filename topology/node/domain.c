/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/node/domain.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/capture.h"
#include "topology/base/files.h"

#define CHANNELS "/dev/nvidia-caps-imex-channels"

/* NVML's ABI is declared here, as in nvml.c. */
enum { NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED };

struct fabric_info {
    uint32_t version;
    unsigned char cluster[16];
    int32_t status; /* once it is completed */
    uint32_t clique;
    unsigned char state;
    uint32_t health;
};
#define FABRIC_VERSION ((uint32_t)sizeof(struct fabric_info) | 2u << 24)

/* Drivers before 550 know this form alone. */
struct fabric_info_old {
    unsigned char cluster[16];
    int32_t status;
    uint32_t clique;
    unsigned char state;
};

typedef int (*nvml_void)(void);
typedef int (*nvml_count)(unsigned *n);
typedef int (*nvml_handle)(unsigned index, void **device);
typedef int (*nvml_fabric)(void *device, struct fabric_info *info);
typedef int (*nvml_fabric_old)(void *device, struct fabric_info_old *info);

struct domain_nvml {
    nvml_void init, shutdown;
    nvml_count count;
    nvml_handle handle;
    nvml_fabric fabric;
    nvml_fabric_old fabric_old;
};

static bool find_symbol(void *library, const char *name, void *at)
{
    void *symbol = dlsym(library, name);

    memcpy(at, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static bool load_symbols(void *library, struct domain_nvml *nvml)
{
    bool new =
        find_symbol(library, "nvmlDeviceGetGpuFabricInfoV", &nvml->fabric),
         old = find_symbol(library, "nvmlDeviceGetGpuFabricInfo",
                           &nvml->fabric_old);

    return (new || old) && find_symbol(library, "nvmlInit_v2", &nvml->init) &&
           find_symbol(library, "nvmlShutdown", &nvml->shutdown) &&
           find_symbol(library, "nvmlDeviceGetCount_v2", &nvml->count) &&
           find_symbol(library, "nvmlDeviceGetHandleByIndex_v2", &nvml->handle);
}

/* -1: this GPU or driver has none. */
static int ask_gpu(const struct domain_nvml *nvml, unsigned gpu,
                   struct fabric_info *info)
{
    struct fabric_info_old old = {{0}, 0, 0, NOT_SUPPORTED};
    void *device;

    memset(info, 0, sizeof(*info));
    info->version = FABRIC_VERSION;
    if (nvml->handle(gpu, &device))
        return -1;
    if (nvml->fabric && nvml->fabric(device, info) == 0)
        return 0;
    if (!nvml->fabric_old || nvml->fabric_old(device, &old))
        return -1;
    memcpy(info->cluster, old.cluster, sizeof(info->cluster));
    info->status = old.status;
    info->clique = old.clique;
    info->state = old.state;
    return 0;
}

static void format_name(const struct fabric_info *info, char *name, size_t size)
{
    size_t used = 0;

    for (int i = 0; i < 16; i++)
        used += (size_t)snprintf(name + used, size - used, "%02x",
                                 info->cluster[i]);
    snprintf(name + used, size - used, ".%u", (unsigned)info->clique);
}

/* NVSwitches within a node are a fabric too: of no cluster, whose UUID is 0. */
static enum plait_domain_state judge(const struct fabric_info *info)
{
    static const unsigned char none[16];

    if (info->state == NOT_SUPPORTED)
        return PLAIT_DOMAIN_NONE;
    if (info->state != COMPLETED)
        return PLAIT_DOMAIN_STARTING;
    if (info->status != 0)
        return PLAIT_DOMAIN_FAILED;
    return memcmp(info->cluster, none, sizeof(none)) == 0 ? PLAIT_DOMAIN_NONE
                                                          : PLAIT_DOMAIN_READY;
}

/* The worst of the GPUs' states, and the name if all have the same. */
static void ask(const struct domain_nvml *nvml, struct plait_domain *domain)
{
    unsigned count = 0;
    bool outside = false;

    nvml->count(&count);
    for (unsigned i = 0; i < count; i++) {
        struct fabric_info info;
        enum plait_domain_state state;
        char name[sizeof(domain->name)] = "";

        state = ask_gpu(nvml, i, &info) < 0 ? PLAIT_DOMAIN_NONE : judge(&info);
        if (state == PLAIT_DOMAIN_READY)
            format_name(&info, name, sizeof(name));
        outside |= state == PLAIT_DOMAIN_NONE;
        if (state == PLAIT_DOMAIN_NONE)
            continue;
        if (domain->state == PLAIT_DOMAIN_NONE ||
            (domain->state == PLAIT_DOMAIN_READY && state != domain->state)) {
            domain->state = state;
            snprintf(domain->name, sizeof(domain->name), "%s", name);
        } else if (domain->state == PLAIT_DOMAIN_READY &&
                   strcmp(domain->name, name) != 0) {
            domain->state = PLAIT_DOMAIN_MIXED;
        }
    }
    if (domain->state == PLAIT_DOMAIN_READY && outside)
        domain->state = PLAIT_DOMAIN_MIXED;
    if (domain->state != PLAIT_DOMAIN_READY)
        domain->name[0] = '\0';
}

static bool has_channel(void)
{
    DIR *folder = opendir(CHANNELS);
    struct dirent *entry;
    bool found = false;

    while (folder && !found && (entry = readdir(folder)))
        found = strncmp(entry->d_name, "channel", 7) == 0;
    if (folder)
        closedir(folder);
    return found;
}

void plait_domain_find(struct plait_domain *domain)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct domain_nvml nvml;

    memset(domain, 0, sizeof(*domain));
    domain->imex = has_channel();
    if (library && load_symbols(library, &nvml) && nvml.init() == 0) {
        ask(&nvml, domain);
        nvml.shutdown();
    }
    if (library)
        dlclose(library);
}

static void find_in_child(void *arg, int fd)
{
    struct plait_domain domain;

    (void)arg;
    plait_domain_find(&domain);
    plait_files_write(fd, (const char *)&domain, sizeof(domain));
}

int plait_domain_ask(int seconds, struct plait_domain *domain)
{
    size_t size;
    char *text = plait_capture_call(find_in_child, NULL, seconds, &size);
    bool whole = text && size == sizeof(*domain);

    if (whole)
        memcpy(domain, text, sizeof(*domain));
    else if (text)
        errno = EIO; /* it has crashed */
    free(text);
    return whole ? 0 : -1;
}

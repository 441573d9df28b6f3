/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/node/energy.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PACKAGES_MOST = 16, PATH_SIZE = 512 };

/* NVML's ABI is declared here, as in nvml.c. */
typedef int (*nvml_void)(void);
typedef int (*nvml_find)(const char *busid, void **device);
typedef int (*nvml_joules)(void *device, unsigned long long *millijoules);

struct package {
    char path[PATH_SIZE];
    double wrap, last, sum; /* microjoules */
};

struct plait_energy {
    void *library; /* NULL: processors */
    nvml_void shutdown;
    nvml_joules joules;
    void *device;
    double first; /* the GPU's counter at the start, in joules */
    int npackages;
    struct package packages[PACKAGES_MOST];
};

static int find_symbol(void *library, const char *name, void *at)
{
    void *symbol = dlsym(library, name);

    if (symbol)
        memcpy(at, &symbol, sizeof(symbol));
    return symbol ? 0 : -1;
}

/* Joules of the whole board since the driver was loaded. */
static double read_gpu(const struct plait_energy *energy)
{
    unsigned long long millijoules;

    return energy->joules(energy->device, &millijoules) == 0
               ? (double)millijoules / 1e3
               : NAN;
}

static int open_gpu(struct plait_energy *energy, const char *busid)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    nvml_void init;
    nvml_find find;

    if (!library)
        return -1;
    if (find_symbol(library, "nvmlInit_v2", &init) < 0 ||
        find_symbol(library, "nvmlShutdown", &energy->shutdown) < 0 ||
        find_symbol(library, "nvmlDeviceGetHandleByPciBusId_v2", &find) < 0 ||
        find_symbol(library, "nvmlDeviceGetTotalEnergyConsumption",
                    &energy->joules) < 0 ||
        init() != 0) {
        dlclose(library);
        return -1;
    }
    energy->library = library;
    if (find(busid, &energy->device) != 0)
        return -1;
    energy->first = read_gpu(energy);
    return isnan(energy->first) ? -1 : 0;
}

static double read_number(const char *folder, const char *name)
{
    char path[PATH_SIZE + 32];
    double value = NAN;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "re");
    if (!file)
        return NAN;
    if (fscanf(file, "%lf", &value) != 1)
        value = NAN;
    fclose(file);
    return value;
}

/* Packages are intel-rapl:0, :1, ..., also those of AMD's processors; the zones
 * below them are part of them. */
static int open_processors(struct plait_energy *energy, const char *rapl)
{
    for (int i = 0; i < PACKAGES_MOST; i++) {
        struct package *package = &energy->packages[i];

        snprintf(package->path, sizeof(package->path), "%s/intel-rapl:%d", rapl,
                 i);
        package->last = read_number(package->path, "energy_uj");
        package->wrap = read_number(package->path, "max_energy_range_uj");
        if (isnan(package->last) || isnan(package->wrap))
            break;
        energy->npackages++;
    }
    return energy->npackages ? 0 : -1;
}

static double read_processors(struct plait_energy *energy)
{
    double sum = 0;

    for (int i = 0; i < energy->npackages; i++) {
        struct package *package = &energy->packages[i];
        double now = read_number(package->path, "energy_uj");

        if (isnan(now))
            return NAN;
        package->sum += now - package->last;
        if (now < package->last)
            package->sum += package->wrap;
        package->last = now;
        sum += package->sum;
    }
    return sum / 1e6;
}

struct plait_energy *plait_energy_create(const char *busid, const char *rapl)
{
    struct plait_energy *energy = calloc(1, sizeof(*energy));

    if (energy &&
        (*busid ? open_gpu(energy, busid) : open_processors(energy, rapl)) == 0)
        return energy;
    plait_energy_destroy(energy);
    return NULL;
}

void plait_energy_destroy(struct plait_energy *energy)
{
    int saved = errno;

    if (!energy)
        return;
    if (energy->library) {
        energy->shutdown();
        dlclose(energy->library);
    }
    free(energy);
    errno = saved;
}

double plait_energy_read(struct plait_energy *energy)
{
    return energy->library ? read_gpu(energy) - energy->first
                           : read_processors(energy);
}

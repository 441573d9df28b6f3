/* SPDX-License-Identifier: Apache-2.0 */
/* A driver without a GPU that accepts every kernel: libcuda.so.1 for
 * test_cudnn_plans. cuDNN compiles attention's kernels and has a driver load
 * them before it accepts a plan. Nothing runs. The toolkit's own stub refuses
 * to load kernels. */
#include <stddef.h>
#include <string.h>

enum { FINE = 0, NO_DRIVER = 34, NOT_FOUND = 500 };

/* What all handles point at. */
static int something;

/* As declared in cuda.h, which takes ints for its enumerations. */
int cuGetProcAddress(const char *name, void **function, int version,
                     unsigned long long flags);
int cuGetProcAddress_v2(const char *name, void **function, int version,
                        unsigned long long flags, int *status);
int cuInit(unsigned flags);
int cuGetExportTable(const void **table, const void *id);
int cuGetErrorString(int error, const char **text);
int cuGetErrorName(int error, const char **text);
int cuLibraryLoadData(void **library);
int cuLibraryGetKernel(void **kernel);
int cuKernelGetAttribute(int *value);
int cuOccupancyMaxPotentialClusterSize(int *size);
int cuCtxGetCurrent(void **context);
int cuCtxGetLimit(size_t *value);

/* The runtime finds no GPU, and NVRTC finds none behind its public
 * functions. */
int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DRIVER;
}

int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return NO_DRIVER;
}

int cuGetProcAddress_v2(const char *name, void **function, int version,
                        unsigned long long flags, int *status)
{
    (void)name;
    (void)version;
    (void)flags;
    *function = NULL;
    if (status != NULL)
        *status = 1;
    return NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **function, int version,
                     unsigned long long flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "an error of the stub";
    return FINE;
}

int cuGetErrorName(int error, const char **text)
{
    return cuGetErrorString(error, text);
}

int cuLibraryLoadData(void **library)
{
    *library = &something;
    return FINE;
}

int cuLibraryGetKernel(void **kernel)
{
    *kernel = &something;
    return FINE;
}

int cuKernelGetAttribute(int *value)
{
    *value = 128;
    return FINE;
}

int cuOccupancyMaxPotentialClusterSize(int *size)
{
    *size = 8;
    return FINE;
}

int cuCtxGetCurrent(void **context)
{
    *context = &something;
    return FINE;
}

int cuCtxGetLimit(size_t *value)
{
    *value = 1024;
    return FINE;
}

/* Any other function: cuDNN looks for all of these names. */
int stub_nothing(void);
int stub_nothing(void)
{
    return FINE;
}

#define NOTHING __attribute__((alias("stub_nothing")))
int cuDriverGetVersion(void) NOTHING;
int cuDeviceGet(void) NOTHING;
int cuDeviceGetCount(void) NOTHING;
int cuCtxPopCurrent(void) NOTHING;
int cuCtxPushCurrent(void) NOTHING;
int cuKernelSetAttribute(void) NOTHING;
int cuLaunchCooperativeKernel(void) NOTHING;
int cuLaunchKernel(void) NOTHING;
int cuLaunchKernelEx(void) NOTHING;
int cuLibraryLoadFromFile(void) NOTHING;
int cuLibraryUnload(void) NOTHING;
int cuLinkAddData(void) NOTHING;
int cuLinkComplete(void) NOTHING;
int cuLinkCreate(void) NOTHING;
int cuLinkDestroy(void) NOTHING;
int cuStreamGetCtx(void) NOTHING;

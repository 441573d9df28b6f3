/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN is loaded when it is first needed, so that the module also works on a
 * machine without it. This file defines the functions that cuDNN's headers
 * declare: each calls the library's function of the same name. */
#include "config.h"

#ifdef HAVE_CUDNN

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "kernels/cuda/cudnn.h"

static struct {
    pthread_once_t once;
    int loaded;
    char why[200];
} lib = {.once = PTHREAD_ONCE_INIT};

static struct {
    __typeof__(&cudnnGetVersion) version;
    __typeof__(&cudnnGetErrorString) error_string;
    __typeof__(&cudnnCreate) create;
    __typeof__(&cudnnDestroy) destroy;
    __typeof__(&cudnnSetStream) set_stream;
    __typeof__(&cudnnBackendCreateDescriptor) make;
    __typeof__(&cudnnBackendDestroyDescriptor) unmake;
    __typeof__(&cudnnBackendFinalize) finalize;
    __typeof__(&cudnnBackendSetAttribute) set;
    __typeof__(&cudnnBackendGetAttribute) get;
    __typeof__(&cudnnBackendExecute) execute;
} calls;

/* In the order of the members of `calls`, which are all pointers. */
static const char *const names[] = {"cudnnGetVersion",
                                    "cudnnGetErrorString",
                                    "cudnnCreate",
                                    "cudnnDestroy",
                                    "cudnnSetStream",
                                    "cudnnBackendCreateDescriptor",
                                    "cudnnBackendDestroyDescriptor",
                                    "cudnnBackendFinalize",
                                    "cudnnBackendSetAttribute",
                                    "cudnnBackendGetAttribute",
                                    "cudnnBackendExecute"};
enum { NNAMES = sizeof(names) / sizeof(*names) };

_Static_assert(sizeof(calls) == NNAMES * sizeof(void *), "a name for each");

int cudnn_load(const char *file, char *why, size_t size)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void **call = (void **)&calls;

    if (handle == NULL) {
        snprintf(why, size, "%s", dlerror());
        return -1;
    }
    for (int i = 0; i < NNAMES; i++) {
        call[i] = dlsym(handle, names[i]);
        if (call[i] == NULL) {
            snprintf(why, size, "%s has no %s", file, names[i]);
            dlclose(handle);
            return -1;
        }
    }
    return 0;
}

static void load_once(void)
{
    char file[32];

    snprintf(file, sizeof(file), "libcudnn.so.%d", CUDNN_MAJOR);
    lib.loaded = cudnn_load(file, lib.why, sizeof(lib.why)) == 0;
}

const char *cudnn_missing(void)
{
    pthread_once(&lib.once, load_once);
    return lib.loaded ? NULL : lib.why;
}

/* -- what the headers declare ---------------------------------------------- */

size_t cudnnGetVersion(void)
{
    return cudnn_missing() == NULL ? calls.version() : 0;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    const char *missing = cudnn_missing();

    return missing == NULL ? calls.error_string(status) : missing;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    return cudnn_missing() == NULL ? calls.create(handle)
                                   : CUDNN_STATUS_NOT_INITIALIZED;
}

/* The functions below need no check: those above provide their arguments. */

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    return calls.destroy(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    return calls.set_stream(handle, stream);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *d)
{
    return cudnn_missing() == NULL ? calls.make(type, d)
                                   : CUDNN_STATUS_NOT_INITIALIZED;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    return calls.unmake(d);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    return calls.finalize(d);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t n, const void *values)
{
    return calls.set(d, name, type, n, values);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t most, int64_t *n, void *values)
{
    return calls.get(d, name, type, most, n, values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                  cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    return calls.execute(handle, plan, pack);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated CUDA runtime, with the figures of an H100. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine.h"
#include "runtime.h"

/* Larger areas are set to 0 by taking fresh pages. */
#define FRESH ((size_t)1 << 20)

static __thread cudaError_t last;

/* EMULATED_FAULT=FILE: once that file exists, every call fails; if it holds a
 * number, from the first copy of at least so many bytes to the host on. */
static void look_for_fault(size_t to_host)
{
    const char *path = getenv("EMULATED_FAULT");
    size_t least = 0;
    FILE *file =
        path != NULL && emu_faulted() == NULL ? fopen(path, "r") : NULL;

    if (file == NULL)
        return;
    if (fscanf(file, "%zu", &least) != 1)
        least = 0;
    fclose(file);
    if (to_host >= least)
        emu_fault("an illegal address, for which %s asks", path);
}

cudaError_t emu_result(cudaError_t status)
{
    look_for_fault(0);
    if (emu_faulted() != NULL)
        status = cudaErrorLaunchFailure;
    if (status != cudaSuccess)
        last = status;
    return status;
}

const char *cudaGetErrorString(cudaError_t error)
{
    if (error == cudaErrorLaunchFailure && emu_faulted() != NULL)
        return emu_faulted();
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorSystemNotReady:
        return "system not yet initialized";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    default:
        return "an error of the emulated runtime";
    }
}

cudaError_t cudaGetLastError(void)
{
    emu_count(__func__);
    cudaError_t status = emu_result(last);

    last = cudaSuccess;
    return status;
}

cudaError_t cudaPeekAtLastError(void)
{
    return emu_result(last);
}

/* -- the device
 * ---------------------------------------------------------------- */

/* EMULATED_GPU is "none", "broken" or "old", or the GPU works. */
static bool gpu_is(const char *what)
{
    const char *is = getenv("EMULATED_GPU");

    return is != NULL && strcmp(is, what) == 0;
}

/* EMULATED_OFF=FILE: once that file exists, the GPU whose number it holds has
 * fallen off the bus for processes that begin then. -1: none has. */
static int find_off(void)
{
    static int off = -2;
    const char *path = getenv("EMULATED_OFF");
    FILE *file = off == -2 && path != NULL ? fopen(path, "r") : NULL;

    if (off == -2)
        off = -1;
    if (file == NULL)
        return off;
    if (fscanf(file, "%d", &off) != 1)
        off = -1;
    fclose(file);
    return off;
}

/* The machine's number of this process's GPU `index`, or -1. EMULATED_GPUS says
 * how many there are (1), CUDA_VISIBLE_DEVICES which of them are visible. Each
 * process has its own memory, even on the same GPU. */
static int gpu_number(int index)
{
    const char *there = getenv("EMULATED_GPUS");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int n = there != NULL ? atoi(there) : 1, number = index;

    if (visible != NULL) {
        for (int i = 0; i < index && visible != NULL; i++) {
            visible = strchr(visible, ',');
            visible += visible != NULL;
        }
        if (visible == NULL || *visible < '0' || *visible > '9')
            return -1;
        number = atoi(visible);
    }
    if (find_off() >= 0 && number >= find_off())
        number++;
    return number < n ? number : -1;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    for (*count = 0; gpu_number(*count) >= 0;)
        ++*count;
    return emu_result(gpu_is("none") || *count == 0 ? cudaErrorNoDevice
                      : gpu_is("broken")            ? cudaErrorSystemNotReady
                                                    : cudaSuccess);
}

cudaError_t emu_kernel_attributes(struct cudaFuncAttributes *attributes)
{
    attributes->maxDynamicSharedSizeBytes = EMU_SHARED_PLAIN;
    return emu_result(gpu_is("old") ? cudaErrorNoKernelImageForDevice
                                    : cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
    emu_count(__func__);
    return emu_result(gpu_number(device) >= 0 ? cudaSuccess
                                              : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
                                   int device)
{
    (void)device;
    switch (attribute) {
    case cudaDevAttrClockRate:
        *value = 1980000;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = EMU_SMS;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = EMU_SHARED_MOST;
        break;
    default:
        return emu_result(cudaErrorInvalidValue);
    }
    return emu_result(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    (void)device;
    memset(prop, 0, sizeof(*prop));
    snprintf(prop->name, sizeof(prop->name), "emulated GPU");
    prop->major = 9;
    prop->multiProcessorCount = EMU_SMS;
    prop->totalGlobalMem = (size_t)16 << 30;
    return emu_result(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *busid, int size, int device)
{
    snprintf(busid, (size_t)size, "0000:%02X:00.0", 7 + gpu_number(device));
    return emu_result(cudaSuccess);
}

/* EMULATED_DRIVER: the version to return. */
cudaError_t cudaDriverGetVersion(int *version)
{
    const char *is = getenv("EMULATED_DRIVER");

    *version = is != NULL ? atoi(is) : 0;
    return emu_result(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 0;
    return emu_result(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return emu_result(cudaSuccess);
}

/* -- memory
 * ------------------------------------------------------------------------ */

static cudaError_t new_memory(void **ptr, size_t bytes, bool pinned,
                              const char *call)
{
    void *p = NULL;

    emu_count(call);
    emu_lock();
    if (emu_check_recording(call))
        p = emu_memory_new(bytes, pinned);
    emu_unlock();
    if (p != NULL)
        *ptr = p;
    return emu_result(p != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}

static cudaError_t free_memory(void *ptr, bool pinned, const char *call)
{
    const struct emu_memory *m;

    emu_count(call);
    if (ptr == NULL)
        return emu_result(cudaSuccess);
    emu_lock();
    m = emu_memory_at((uintptr_t)ptr);
    if (!emu_check_recording(call) || (m != NULL && !emu_check_unused(m, call)))
        m = NULL;
    else if (emu_memory_free(ptr, pinned) < 0)
        emu_fault("%s: %p is no memory that it could give back, or no longer",
                  call, ptr);
    emu_unlock();
    return emu_result(cudaSuccess);
}

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    return new_memory(ptr, bytes, false, __func__);
}

cudaError_t cudaFree(void *ptr)
{
    return free_memory(ptr, false, __func__);
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    (void)flags;
    return new_memory(ptr, bytes, true, __func__);
}

cudaError_t cudaFreeHost(void *ptr)
{
    return free_memory(ptr, true, __func__);
}

/* -- copies
 * ----------------------------------------------------------------------------
 */

struct copy {
    char *dst;
    const char *src; /* NULL: set all bytes to `value` */
    size_t dst_pitch, src_pitch, width, height;
    int value;
};

static bool is_pinned(const void *p)
{
    const struct emu_memory *m = emu_memory_at((uintptr_t)p);

    return m != NULL && m->pinned;
}

/* Host memory that is not pinned: the call returns only when the copy, and all
 * work before it on the stream, is complete. */
static bool is_hosts(const void *p)
{
    return p != NULL && emu_memory_at((uintptr_t)p) == NULL;
}

/* Like memset(); large zeroed areas of the device take fresh pages, which cost
 * nothing. */
static void set_bytes(char *dst, int value, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t head = (page - (uintptr_t)dst % page) % page, whole;

    if (value != 0 || n < FRESH || is_pinned(dst)) {
        memset(dst, value, n);
        return;
    }
    whole = (n - head) / page * page;
    memset(dst, 0, head);
    if (madvise(dst + head, whole, MADV_DONTNEED) < 0)
        memset(dst + head, 0, whole);
    memset(dst + head + whole, 0, n - head - whole);
}

static void copy_line(char *dst, const char *src, const struct copy *c)
{
    emu_touch(dst, c->width, EMU_WRITE);
    if (src != NULL)
        emu_touch(src, c->width, EMU_READ);
    if (is_pinned(dst))
        emu_flight_open(dst, c->width);
    if (is_pinned(src))
        emu_flight_open(src, c->width);
    if (src != NULL)
        memmove(dst, src, c->width);
    else
        set_bytes(dst, c->value, c->width);
    emu_memory_written(dst, c->width);
    if (is_pinned(dst))
        emu_flight_start(dst, c->width, true);
    if (is_pinned(src))
        emu_flight_start(src, c->width, false);
}

static void do_copy(void *arg, bool backwards)
{
    const struct copy *c = arg;

    (void)backwards;
    for (size_t i = 0; i < c->height; i++)
        copy_line(c->dst + i * c->dst_pitch,
                  c->src != NULL ? c->src + i * c->src_pitch : NULL, c);
    if (is_hosts(c->dst) || is_hosts(c->src))
        emu_host_waits(&emu_current.clock);
}

/* The copy's side on the device must be device memory, its other side must
 * not. */
static bool check_side(const void *p, size_t pitch, size_t width, size_t height,
                       bool device, const char *what)
{
    const struct emu_memory *m = emu_memory_at((uintptr_t)p);

    if (width == 0 || height == 0)
        return true;
    if (device)
        return emu_memory_check(p, (height - 1) * pitch + width, what);
    if (m != NULL && !m->pinned) {
        emu_fault("%s: memory of the device where the host's is due", what);
        return false;
    }
    return m == NULL || emu_memory_check(p, (height - 1) * pitch + width, what);
}

static cudaError_t start_copy(const struct copy *c, bool from_device,
                              bool to_device, cudaStream_t stream)
{
    struct copy *kept = malloc(sizeof(*kept));
    cudaError_t status;

    if (kept == NULL)
        return emu_result(cudaErrorMemoryAllocation);
    *kept = *c;
    emu_lock();
    if (check_side(c->dst, c->dst_pitch, c->width, c->height, to_device,
                   "the copy's target") &&
        (c->src == NULL || check_side(c->src, c->src_pitch, c->width, c->height,
                                      from_device, "the copy's source"))) {
        status = emu_do(stream,
                        c->src != NULL ? "cudaMemcpyAsync" : "cudaMemsetAsync",
                        do_copy, free, kept);
    } else {
        free(kept);
        status = emu_result(cudaErrorInvalidValue);
    }
    emu_unlock();
    return status;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes,
                            cudaStream_t stream)
{
    struct copy c = {.dst = dst, .width = bytes, .height = 1, .value = value};

    emu_count(__func__);
    return start_copy(&c, false, true, stream);
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    return cudaMemsetAsync(dst, value, bytes, NULL);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return cudaMemcpy2DAsync(dst, bytes, src, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
                              size_t src_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct copy c = {.dst = dst,
                     .src = src,
                     .dst_pitch = dst_pitch,
                     .src_pitch = src_pitch,
                     .width = width,
                     .height = height};

    emu_count("cudaMemcpyAsync");
    look_for_fault(kind == cudaMemcpyDeviceToHost ? width * height : 0);
    if (width > dst_pitch || width > src_pitch)
        return emu_result(cudaErrorInvalidValue);
    if (width == 0 || height == 0)
        return emu_result(cudaSuccess);
    return start_copy(
        &c, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice,
        kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
        stream);
}

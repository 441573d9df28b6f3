/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as a plait_device: streams, memory, copies and events, and how an error
 * of CUDA's becomes the queue's. */
#include <errno.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

struct cuda_block {
    struct cuda_block *next;
    void *ptr;
    size_t bytes;
    void (*release)(void *ptr);
};

/* Scratch memory grows by doubling. Older pieces are kept: a captured graph may
 * still use them. */
struct cuda_scratch {
    struct cuda_scratch *older;
    void *ptr;
    size_t bytes;
};

struct plait_event {
    struct plait_device *dev;
    cudaEvent_t event;
};

int cuda_check(struct plait_queue *q, const char *op, cudaError_t status)
{
    if (status == cudaSuccess)
        return 0;
    if (q->head.failed == 0)
        q->status = status;
    return plait_queue_fail(&q->head,
                            status == cudaErrorMemoryAllocation ? ENOMEM : EIO,
                            "%s: %s", op, cudaGetErrorString(status));
}

int cuda_enter(struct plait_queue *q)
{
    if (q->head.failed != 0) {
        errno = q->head.failed;
        return -1;
    }
    return cuda_check(q, "cudaSetDevice", cudaSetDevice(q->dev->index));
}

int cuda_enter_host(struct plait_queue *q, const char *op)
{
    if (cuda_enter(q) != 0)
        return -1;
    if (q->recording)
        return plait_queue_fail(&q->head, EBUSY,
                                "%s: cannot be part of a graph", op);
    return 0;
}

int cuda_waits(void)
{
    const char *sync = getenv("PLAIT_CUDA_SYNC");

    return sync != NULL && strcmp(sync, "1") == 0;
}

int cuda_leave(struct plait_queue *q, const char *op)
{
    if (q->head.failed != 0) {
        errno = q->head.failed;
        return -1;
    }
    if (cuda_check(q, op, cudaGetLastError()) != 0)
        return -1;
    /* waiting here names the right op in an error message */
    return q->dev->wait ? cuda_check(q, op, cudaStreamSynchronize(q->stream))
                        : 0;
}

/* -- device ----------------------------------------------------------- */

static int device_read(struct plait_device *dev)
{
    int smem = 0, major = 0, minor = 0;

    if (cudaSetDevice(dev->index) != cudaSuccess ||
        cudaDeviceGetAttribute(&dev->sms, cudaDevAttrMultiProcessorCount,
                               dev->index) != cudaSuccess ||
        cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                               dev->index) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                               dev->index) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
                               dev->index) != cudaSuccess) {
        errno = ENODEV;
        return -1;
    }
    if (!cuda_has_code()) {
        errno = ENOEXEC;
        return -1;
    }
    dev->smem_max = (size_t)smem;
    dev->capability = 10 * major + minor;
    if (cublasLtCreate(&dev->blas) != CUBLAS_STATUS_SUCCESS) {
        errno = ENOMEM;
        return -1;
    }
    return 0;
}

static struct plait_device *device_create(int index, int threads)
{
    struct plait_device *dev = calloc(1, sizeof(*dev));

    (void)threads;
    if (dev == NULL)
        return NULL;
    dev->index = index;
    dev->wait = cuda_waits();
    if (device_read(dev) != 0) {
        cudaGetLastError();
        free(dev);
        return NULL;
    }
    pthread_mutex_init(&dev->lock, NULL);
    return dev;
}

static void device_destroy(struct plait_device *dev)
{
    int saved = errno;

    if (dev == NULL)
        return;
    cudaSetDevice(dev->index);
    cuda_matmul_forget(dev);
    cuda_tune_forget(dev);
    cuda_pinned_forget(dev);
    cuda_cudnn_forget(dev);
    cublasLtDestroy(dev->blas);
    while (dev->blocks != NULL) {
        struct cuda_block *block = dev->blocks;

        dev->blocks = block->next;
        block->release(block->ptr);
        free(block);
    }
    pthread_mutex_destroy(&dev->lock);
    free(dev);
    errno = saved;
}

static int gpu_facts(int index, struct plait_gpu_facts *facts)
{
    struct cudaDeviceProp prop;
    char busid[32] = "";
    int count = 0;

    memset(facts, 0, sizeof(*facts));
    if (cudaGetDeviceCount(&count) != cudaSuccess || index >= count ||
        cudaGetDeviceProperties(&prop, index) != cudaSuccess ||
        cudaDeviceGetPCIBusId(busid, sizeof(busid), index) != cudaSuccess ||
        cudaDriverGetVersion(&facts->driver) != cudaSuccess ||
        cudaRuntimeGetVersion(&facts->api) != cudaSuccess) {
        cudaGetLastError();
        errno = ENODEV;
        return -1;
    }
    snprintf(facts->name, sizeof(facts->name), "%.95s", prop.name);
    snprintf(facts->busid, sizeof(facts->busid), "%.15s", busid);
    facts->capability = 10 * prop.major + prop.minor;
    facts->processors = prop.multiProcessorCount;
    facts->memory = prop.totalGlobalMem;
    cuda_describe_attention(facts->attention, sizeof(facts->attention));
    return 0;
}

static void allow_tf32(struct plait_device *dev, int allow)
{
    dev->tf32 = allow;
}

/* -- memory ----------------------------------------------------------- */

/* Waits, because the queues' streams do not wait for the default stream. */
static int zero(void *ptr, size_t bytes)
{
    if (cudaMemset(ptr, 0, bytes) == cudaSuccess &&
        cudaStreamSynchronize(NULL) == cudaSuccess)
        return 0;
    cudaGetLastError();
    errno = EIO;
    return -1;
}

static int device_adopt(struct plait_device *dev, void *ptr, size_t bytes,
                        void (*release)(void *ptr))
{
    struct cuda_block *block = malloc(sizeof(*block));

    if (block == NULL)
        return -1;
    if (cudaSetDevice(dev->index) != cudaSuccess || zero(ptr, bytes) != 0) {
        free(block);
        return -1;
    }
    block->ptr = ptr;
    block->bytes = bytes;
    block->release = release;
    pthread_mutex_lock(&dev->lock);
    block->next = dev->blocks;
    dev->blocks = block;
    dev->now += bytes;
    if (dev->now > dev->peak)
        dev->peak = dev->now;
    pthread_mutex_unlock(&dev->lock);
    return 0;
}

static void release_own(void *ptr)
{
    cudaFree(ptr);
}

void *cuda_alloc(struct plait_device *dev, size_t bytes)
{
    void *ptr = NULL;

    if (cudaSetDevice(dev->index) == cudaSuccess &&
        cudaMalloc(&ptr, bytes > 0 ? bytes : 1) == cudaSuccess) {
        if (device_adopt(dev, ptr, bytes, release_own) == 0)
            return ptr;
        cudaFree(ptr);
    }
    cudaGetLastError();
    errno = ENOMEM;
    return NULL;
}

void cuda_free(struct plait_device *dev, void *ptr)
{
    struct cuda_block **link, *block;
    int saved = errno;

    if (ptr == NULL)
        return;
    pthread_mutex_lock(&dev->lock);
    link = &dev->blocks;
    while (*link != NULL && (*link)->ptr != ptr)
        link = &(*link)->next;
    block = *link;
    if (block != NULL) {
        *link = block->next;
        dev->now -= block->bytes;
    }
    pthread_mutex_unlock(&dev->lock);
    if (block != NULL) {
        cudaSetDevice(dev->index);
        cudaDeviceSynchronize(); /* work may still use it */
        block->release(ptr);
        free(block);
    }
    errno = saved;
}

static void device_memory(struct plait_device *dev, size_t *now, size_t *peak)
{
    pthread_mutex_lock(&dev->lock);
    if (now != NULL)
        *now = dev->now;
    if (peak != NULL)
        *peak = dev->peak;
    pthread_mutex_unlock(&dev->lock);
}

int cuda_allow_shared(struct plait_queue *q, const char *op, const void *kernel,
                      size_t bytes)
{
    if (bytes > q->dev->smem_max)
        return plait_queue_fail(
            &q->head, ENOTSUP,
            "%s needs %zu bytes of shared memory, the GPU has %zu", op, bytes,
            q->dev->smem_max);
    if (bytes <= 48 << 10) /* every kernel may use this much */
        return 0;
    return cuda_check(
        q, op,
        cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

#define SCRATCH_DOUBLED ((size_t)256 << 20)
#define SCRATCH_STEP ((size_t)64 << 20)

void *cuda_scratch(struct plait_queue *q, size_t bytes)
{
    struct cuda_scratch *s = q->scratch;

    if (s != NULL && s->bytes >= bytes)
        return s->ptr;
    s = malloc(sizeof(*s));
    if (s == NULL) {
        plait_queue_fail(&q->head, ENOMEM, "scratch: out of host memory");
        return NULL;
    }
    /* Older pieces stay until the queue ends, so that few should be made; but
     * doubling a large one would take much that nobody uses. */
    s->bytes = (size_t)32 << 20;
    while (s->bytes < bytes && s->bytes < SCRATCH_DOUBLED)
        s->bytes *= 2;
    if (s->bytes < bytes)
        s->bytes = (bytes + SCRATCH_STEP - 1) / SCRATCH_STEP * SCRATCH_STEP;
    if (cuda_check(q, "scratch memory", cudaMalloc(&s->ptr, s->bytes)) != 0) {
        cudaGetLastError();
        free(s);
        return NULL;
    }
    s->older = q->scratch;
    q->scratch = s;
    return s->ptr;
}

/* -- queues ----------------------------------------------------------- */

static void queue_destroy(struct plait_queue *q)
{
    int saved = errno;

    if (q == NULL)
        return;
    cudaSetDevice(q->dev->index);
    if (q->stream != NULL)
        cudaStreamSynchronize(q->stream);
    while (q->scratch != NULL) {
        struct cuda_scratch *s = q->scratch;

        q->scratch = s->older;
        cudaFree(s->ptr);
        free(s);
    }
    for (int i = 0; i < 2; i++) {
        if (q->stage[i].host != NULL)
            cudaFreeHost(q->stage[i].host);
        if (q->stage[i].done != NULL)
            cudaEventDestroy(q->stage[i].done);
    }
    if (q->stream != NULL)
        cudaStreamDestroy(q->stream);
    free(q);
    errno = saved;
}

static struct plait_queue *queue_create(struct plait_device *dev, int priority)
{
    struct plait_queue *q = calloc(1, sizeof(*q));
    int least = 0, greatest = 0;

    if (q == NULL)
        return NULL;
    q->dev = dev;
    /* CUDA counts the other way: the highest priority is the smallest
     * number. */
    if (cudaSetDevice(dev->index) == cudaSuccess &&
        cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess) {
        int p = least - priority;

        p = p > least ? least : p < greatest ? greatest : p;
        if (cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking,
                                         p) == cudaSuccess)
            return q;
    }
    cudaGetLastError();
    q->stream = NULL;
    queue_destroy(q);
    errno = ENOMEM;
    return NULL;
}

static void *queue_native(struct plait_queue *q)
{
    return q->stream;
}

static int queue_sync(struct plait_queue *q)
{
    if (cuda_enter_host(q, "queue_sync") != 0)
        return -1;
    return cuda_check(q, "queue_sync", cudaStreamSynchronize(q->stream));
}

/* -- events ----------------------------------------------------------- */

static struct plait_event *event_create(struct plait_device *dev, int timed)
{
    struct plait_event *ev = calloc(1, sizeof(*ev));

    if (ev == NULL)
        return NULL;
    ev->dev = dev;
    if (cudaSetDevice(dev->index) != cudaSuccess ||
        cudaEventCreateWithFlags(&ev->event, timed ? cudaEventDefault
                                                   : cudaEventDisableTiming) !=
            cudaSuccess) {
        cudaGetLastError();
        free(ev);
        errno = ENOMEM;
        return NULL;
    }
    return ev;
}

static void event_destroy(struct plait_event *ev)
{
    int saved = errno;

    if (ev == NULL)
        return;
    cudaSetDevice(ev->dev->index);
    cudaEventDestroy(ev->event);
    free(ev);
    errno = saved;
}

static int event_record(struct plait_event *ev, struct plait_queue *q)
{
    if (cuda_enter(q) != 0)
        return -1;
    return cuda_check(q, "event_record", cudaEventRecord(ev->event, q->stream));
}

static int event_wait(struct plait_event *ev, struct plait_queue *q)
{
    if (cuda_enter(q) != 0)
        return -1;
    return cuda_check(q, "event_wait",
                      cudaStreamWaitEvent(q->stream, ev->event, 0));
}

static int event_sync(struct plait_event *ev, struct plait_queue *q)
{
    if (cuda_enter_host(q, "event_sync") != 0)
        return -1;
    return cuda_check(q, "event_sync", cudaEventSynchronize(ev->event));
}

static double event_elapsed(struct plait_event *from, struct plait_event *to)
{
    float ms = 0;

    if (cudaSetDevice(to->dev->index) != cudaSuccess ||
        cudaEventSynchronize(to->event) != cudaSuccess ||
        cudaEventElapsedTime(&ms, from->event, to->event) != cudaSuccess) {
        cudaGetLastError();
        return -1;
    }
    return ms * 1e-3;
}

static void range_begin(const char *name)
{
    nvtxRangePushA(name);
}

static void range_end(void)
{
    nvtxRangePop();
}

void cuda_device_ops(struct plait_ops *ops)
{
    ops->gpu_facts = gpu_facts;
    ops->device_create = device_create;
    ops->device_destroy = device_destroy;
    ops->allow_tf32 = allow_tf32;
    ops->alloc = cuda_alloc;
    ops->free = cuda_free;
    ops->adopt = device_adopt;
    ops->memory = device_memory;
    ops->queue_create = queue_create;
    ops->queue_destroy = queue_destroy;
    ops->queue_native = queue_native;
    ops->queue_sync = queue_sync;
    ops->event_create = event_create;
    ops->event_destroy = event_destroy;
    ops->event_record = event_record;
    ops->event_wait = event_wait;
    ops->event_sync = event_sync;
    ops->event_elapsed = event_elapsed;
    ops->range_begin = range_begin;
    ops->range_end = range_end;
}

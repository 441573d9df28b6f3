/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned host memory, and asynchronous copies to it and from it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

struct cuda_pinned {
    struct cuda_pinned *next;
    void *ptr;
    size_t bytes;
};

static void *pinned_alloc(struct plait_device *dev, size_t bytes)
{
    struct cuda_pinned *p = malloc(sizeof(*p));

    if (p == NULL)
        return NULL;
    if (cudaSetDevice(dev->index) != cudaSuccess ||
        cudaHostAlloc(&p->ptr, bytes > 0 ? bytes : 1, cudaHostAllocDefault) !=
            cudaSuccess) {
        cudaGetLastError();
        free(p);
        errno = ENOMEM;
        return NULL;
    }
    memset(p->ptr, 0, bytes);
    p->bytes = bytes;
    pthread_mutex_lock(&dev->lock);
    p->next = dev->pinned;
    dev->pinned = p;
    dev->pinned_now += bytes;
    if (dev->pinned_now > dev->pinned_peak)
        dev->pinned_peak = dev->pinned_now;
    pthread_mutex_unlock(&dev->lock);
    return p->ptr;
}

static void pinned_free(struct plait_device *dev, void *ptr)
{
    struct cuda_pinned **link, *p;
    int saved = errno;

    if (ptr == NULL)
        return;
    pthread_mutex_lock(&dev->lock);
    link = &dev->pinned;
    while (*link != NULL && (*link)->ptr != ptr)
        link = &(*link)->next;
    p = *link;
    if (p != NULL) {
        *link = p->next;
        dev->pinned_now -= p->bytes;
    }
    pthread_mutex_unlock(&dev->lock);
    if (p != NULL) {
        cudaSetDevice(dev->index);
        cudaDeviceSynchronize(); /* copies may still use it */
        cudaFreeHost(ptr);
        free(p);
    }
    errno = saved;
}

void cuda_pinned_forget(struct plait_device *dev)
{
    while (dev->pinned != NULL)
        pinned_free(dev, dev->pinned->ptr);
}

static void pinned_memory(struct plait_device *dev, size_t *now, size_t *peak)
{
    pthread_mutex_lock(&dev->lock);
    if (now != NULL)
        *now = dev->pinned_now;
    if (peak != NULL)
        *peak = dev->pinned_peak;
    pthread_mutex_unlock(&dev->lock);
}

static int copy_out(struct plait_queue *q, void *pinned, const void *src,
                    size_t bytes)
{
    if (cuda_enter(q) != 0)
        return -1;
    return cuda_check(
        q, "copy_out",
        cudaMemcpyAsync(pinned, src, bytes, cudaMemcpyDeviceToHost, q->stream));
}

static int copy_in(struct plait_queue *q, void *dst, const void *pinned,
                   size_t bytes)
{
    if (cuda_enter(q) != 0)
        return -1;
    return cuda_check(
        q, "copy_in",
        cudaMemcpyAsync(dst, pinned, bytes, cudaMemcpyHostToDevice, q->stream));
}

void cuda_pinned_ops(struct plait_ops *ops)
{
    ops->pinned_alloc = pinned_alloc;
    ops->pinned_free = pinned_free;
    ops->pinned_memory = pinned_memory;
    ops->copy_out = copy_out;
    ops->copy_in = copy_in;
}

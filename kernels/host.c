/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/moments.h"

#define HUGE_PAGE ((size_t)2 << 20)

/* Header in front of every allocation: free() needs the size. */
struct block {
    size_t bytes;  /* as asked for */
    size_t mapped; /* length of the mapping, 0: from the heap */
    char pad[64 - 2 * sizeof(size_t)];
};

struct plait_event {
    struct timespec at;
};

struct plait_device *host_device_create(int index, int threads)
{
    struct plait_device *dev;

    (void)index;
    if (threads < 0) {
        errno = EINVAL;
        return NULL;
    }
    dev = calloc(1, sizeof(*dev));
    if (dev != NULL)
        dev->threads = threads > 0 ? threads : omp_get_max_threads();
    return dev;
}

void host_device_destroy(struct plait_device *dev)
{
    int saved_errno = errno;

    free(dev);
    errno = saved_errno;
}

/* Maps whole huge pages. The kernel zeroes a page when it is first touched, and
 * places it on the NUMA node of the thread that does so: the one that computes
 * on it. */
static struct block *map_block(size_t bytes)
{
    size_t length = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    size_t head, tail;
    struct block *b;
    char *p;

    p = mmap(NULL, length + HUGE_PAGE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    head = -(uintptr_t)p & (HUGE_PAGE - 1);
    tail = HUGE_PAGE - head;
    if (head > 0)
        munmap(p, head);
    if (tail > 0)
        munmap(p + head + length, tail);
    /* Only advice: without huge pages small ones work too. */
    (void)madvise(p + head, length, MADV_HUGEPAGE);
    b = (struct block *)(void *)(p + head);
    b->mapped = length;
    return b;
}

static struct block *heap_block(size_t bytes)
{
    struct block *b = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (b != NULL)
        memset(b, 0, (bytes + 63) / 64 * 64);
    return b;
}

void *host_block_alloc(size_t bytes)
{
    struct block *b = NULL;

    if (bytes < HUGE_PAGE)
        b = heap_block(bytes + sizeof(*b));
    else if (bytes < SIZE_MAX / 2)
        b = map_block(bytes + sizeof(*b));
    if (b == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    b->bytes = bytes;
    return b + 1;
}

void host_block_free(void *ptr)
{
    int saved_errno = errno;
    struct block *b = ptr;

    if (ptr == NULL)
        return;
    b--;
    if (b->mapped > 0)
        munmap(b, b->mapped);
    else
        free(b);
    errno = saved_errno;
}

/* A block that the counters *now and *peak include. */
static void *counted_alloc(size_t bytes, size_t *now, size_t *peak)
{
    void *ptr = host_block_alloc(bytes);
    size_t sum, most;

    if (ptr == NULL)
        return NULL;
    sum = __atomic_add_fetch(now, bytes, __ATOMIC_RELAXED);
    most = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (most < sum &&
           !__atomic_compare_exchange_n(peak, &most, sum, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        continue;
    return ptr;
}

static void counted_free(void *ptr, size_t *now)
{
    const struct block *b = ptr;

    if (ptr == NULL)
        return;
    __atomic_sub_fetch(now, b[-1].bytes, __ATOMIC_RELAXED);
    host_block_free(ptr);
}

void *host_alloc(struct plait_device *dev, size_t bytes)
{
    return counted_alloc(bytes, &dev->now, &dev->peak);
}

void host_free(struct plait_device *dev, void *ptr)
{
    counted_free(ptr, &dev->now);
}

void host_memory(struct plait_device *dev, size_t *now, size_t *peak)
{
    if (now != NULL)
        *now = __atomic_load_n(&dev->now, __ATOMIC_RELAXED);
    if (peak != NULL)
        *peak = __atomic_load_n(&dev->peak, __ATOMIC_RELAXED);
}

void *host_pinned_alloc(struct plait_device *dev, size_t bytes)
{
    return counted_alloc(bytes, &dev->pinned_now, &dev->pinned_peak);
}

void host_pinned_free(struct plait_device *dev, void *ptr)
{
    counted_free(ptr, &dev->pinned_now);
}

void host_pinned_memory(struct plait_device *dev, size_t *now, size_t *peak)
{
    if (now != NULL)
        *now = __atomic_load_n(&dev->pinned_now, __ATOMIC_RELAXED);
    if (peak != NULL)
        *peak = __atomic_load_n(&dev->pinned_peak, __ATOMIC_RELAXED);
}

struct plait_queue *host_queue_create(struct plait_device *dev, int priority)
{
    struct plait_queue *q = calloc(1, sizeof(*q));

    (void)priority;
    if (q != NULL)
        q->dev = dev;
    return q;
}

void host_queue_destroy(struct plait_queue *q)
{
    int saved_errno = errno;

    free(q);
    errno = saved_errno;
}

void *host_queue_native(struct plait_queue *q)
{
    (void)q;
    return NULL;
}

int host_queue_sync(struct plait_queue *q)
{
    if (q->head.failed != 0) {
        errno = q->head.failed;
        return -1;
    }
    return 0;
}

struct plait_event *host_event_create(struct plait_device *dev, int timed)
{
    (void)dev;
    (void)timed;
    return calloc(1, sizeof(struct plait_event));
}

void host_event_destroy(struct plait_event *ev)
{
    int saved_errno = errno;

    free(ev);
    errno = saved_errno;
}

int host_event_record(struct plait_event *ev, struct plait_queue *q)
{
    (void)q;
    return clock_gettime(CLOCK_MONOTONIC, &ev->at);
}

int host_event_wait(struct plait_event *ev, struct plait_queue *q)
{
    (void)ev;
    (void)q;
    return 0;
}

int host_event_sync(struct plait_event *ev, struct plait_queue *q)
{
    (void)ev;
    (void)q;
    return 0;
}

double host_event_elapsed(struct plait_event *from, struct plait_event *to)
{
    return (double)(to->at.tv_sec - from->at.tv_sec) +
           1e-9 * (double)(to->at.tv_nsec - from->at.tv_nsec);
}

struct plait_weight *host_weight_create(struct plait_device *dev,
                                        const struct plait_weight_data *d)
{
    struct plait_weight *w = malloc(sizeof(*w));

    (void)dev;
    if (w != NULL)
        *w = (struct plait_weight){d->type, d->O, d->C, d->data};
    return w;
}

void host_weight_destroy(struct plait_weight *w)
{
    int saved_errno = errno;

    free(w);
    errno = saved_errno;
}

void host_weight_changed(struct plait_weight *w, const void *data)
{
    w->data = data;
}

int host_copy(struct plait_queue *q, void *dst, const void *src, size_t bytes)
{
    (void)q;
    if (bytes > 0 && dst != src)
        memmove(dst, src, bytes);
    return 0;
}

int host_fill_zero(struct plait_queue *q, void *dst, size_t bytes)
{
    (void)q;
    if (bytes > 0)
        memset(dst, 0, bytes);
    return 0;
}

int host_copy_2d(struct plait_queue *q, const struct plait_copy_2d *c)
{
    size_t size = plait_dtype_size(c->type);
    const char *from = c->src;
    char *to = c->dst;

    (void)q;
    assert(c->dst_stride >= c->cols && c->src_stride >= c->cols);
    for (size_t i = 0; i < c->rows; i++)
        memcpy(to + i * c->dst_stride * size, from + i * c->src_stride * size,
               c->cols * size);
    return 0;
}

int host_has_fp8(struct plait_device *dev)
{
    (void)dev;
    return 1;
}

int host_clip_scale(struct plait_queue *q, const struct plait_clip *c)
{
    double n = sqrt(*c->sum_squares) * c->factor;

    (void)q;
    *c->norm = (float)n;
    if (!isfinite(n))
        *c->scale = NAN;
    else if (c->clip > 0)
        *c->scale = (float)(fmin(1, c->clip / (n + 1e-6)) * c->factor);
    else
        *c->scale = (float)c->factor;
    return 0;
}

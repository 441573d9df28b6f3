/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_HOST_H
#define PLAIT_KERNELS_HOST_H

#include "kernels/kernels.h"
#include "kernels/queue.h"

/* Device, memory, queues and events of the two implementations that compute on
 * the CPU, ref and cpu. An op is complete when it returns, so that a queue only
 * keeps the first failure. */

struct plait_device {
    int threads;
    size_t now, peak; /* bytes, updated atomically */
    size_t pinned_now, pinned_peak;
};

struct cpu_queue;

struct plait_queue {
    struct plait_queue_head head;
    struct plait_device *dev;
    struct cpu_queue *cpu; /* for cpu/; NULL in ref */
};

/* A weight handle. Nothing is packed: the products read `data` itself. */
struct plait_weight {
    enum plait_dtype type;
    size_t O, C;
    const void *data;
};

struct plait_device *host_device_create(int index, int threads);
void host_device_destroy(struct plait_device *dev);
/* Zeroed, aligned to 64 bytes, in huge pages if large; not counted as device
 * memory. NULL with ENOMEM. Freeing keeps errno. */
void *host_block_alloc(size_t bytes);
void host_block_free(void *ptr);
void *host_alloc(struct plait_device *dev, size_t bytes);
void host_free(struct plait_device *dev, void *ptr);
void host_memory(struct plait_device *dev, size_t *now, size_t *peak);
/* Ordinary memory, but counted as pinned. */
void *host_pinned_alloc(struct plait_device *dev, size_t bytes);
void host_pinned_free(struct plait_device *dev, void *ptr);
void host_pinned_memory(struct plait_device *dev, size_t *now, size_t *peak);
struct plait_queue *host_queue_create(struct plait_device *dev, int priority);
void host_queue_destroy(struct plait_queue *q);
void *host_queue_native(struct plait_queue *q);
int host_queue_sync(struct plait_queue *q);
struct plait_event *host_event_create(struct plait_device *dev, int timed);
void host_event_destroy(struct plait_event *ev);
int host_event_record(struct plait_event *ev, struct plait_queue *q);
int host_event_wait(struct plait_event *ev, struct plait_queue *q);
int host_event_sync(struct plait_event *ev, struct plait_queue *q);
double host_event_elapsed(struct plait_event *from, struct plait_event *to);
struct plait_weight *host_weight_create(struct plait_device *dev,
                                        const struct plait_weight_data *d);
void host_weight_destroy(struct plait_weight *w);
void host_weight_changed(struct plait_weight *w, const void *data);
int host_copy(struct plait_queue *q, void *dst, const void *src, size_t bytes);
int host_fill_zero(struct plait_queue *q, void *dst, size_t bytes);
int host_copy_2d(struct plait_queue *q, const struct plait_copy_2d *c);
int host_has_fp8(struct plait_device *dev); /* always 1: emulated */
/* grouped.c */
int host_grouped_forward(struct plait_queue *q, const struct plait_groups *g,
                         const struct plait_linear *l);
int host_grouped_backward_input(struct plait_queue *q,
                                const struct plait_groups *g,
                                const struct plait_linear_dinp *l);
int host_grouped_backward_weight(struct plait_queue *q,
                                 const struct plait_groups *g,
                                 const struct plait_linear_dw *l);
int host_clip_scale(struct plait_queue *q, const struct plait_clip *c);

#endif

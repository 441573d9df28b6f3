/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of the CPU has no commands: operations run when they are called. It
 * has the threads' working memory, which grows and is kept. */
#include <stdlib.h>

#include "kernels/cpu/conv.h"

struct plait_queue *cpu_queue_create(struct plait_device *dev, int priority)
{
    struct plait_queue *q = host_queue_create(dev, priority);

    if (q == NULL)
        return NULL;
    q->cpu = calloc(1, sizeof(*q->cpu));
    if (q->cpu == NULL)
        goto error;
    q->cpu->products = cpu_products_create();
    if (q->cpu->products == NULL)
        goto error;
    return q;
error:
    cpu_queue_destroy(q);
    return NULL;
}

void cpu_queue_destroy(struct plait_queue *q)
{
    int saved_errno = errno;

    if (q == NULL)
        return;
    if (q->cpu != NULL) {
        for (int i = 0; i < CPU_NSCRATCH; i++)
            host_block_free(q->cpu->scratch[i].ptr);
        cpu_products_destroy(q->cpu->products);
        cpu_convs_destroy(q->cpu->convs);
        free(q->cpu);
    }
    host_queue_destroy(q);
    errno = saved_errno;
}

void *cpu_scratch(struct plait_queue *q, enum cpu_scratch_use use, size_t bytes)
{
    void *ptr = q->cpu->scratch[use].ptr;

    if (bytes == 0)
        bytes = 1; /* NULL would mean that there is no memory */
    if (bytes <= q->cpu->scratch[use].bytes)
        return ptr;
    host_block_free(ptr);
    q->cpu->scratch[use].bytes = 0;
    q->cpu->scratch[use].ptr = ptr = host_block_alloc(bytes);
    if (ptr == NULL) {
        plait_queue_fail(&q->head, ENOMEM,
                         "out of memory: %zu bytes of working memory", bytes);
        return NULL;
    }
    q->cpu->scratch[use].bytes = bytes;
    return ptr;
}

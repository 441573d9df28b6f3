/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: inside the device, and from and to the host's ordinary memory. */
#include <string.h>

#include "kernels/cuda/cuda.h"

/* The GPU can copy asynchronously only from and to pinned memory. Host copies
 * use two pinned buffers of this size: while the GPU fills or empties one, the
 * host works on the other. */
#define STAGE_BYTES ((size_t)4 << 20)

/* The next pinned buffer, after its last copy is done; NULL: the queue has
 * failed. */
static struct cuda_stage *stage_next(struct plait_queue *q)
{
    struct cuda_stage *s = &q->stage[q->next_stage];

    if (s->host == NULL) {
        if (cuda_check(q, "pinned memory",
                       cudaHostAlloc(&s->host, STAGE_BYTES,
                                     cudaHostAllocDefault)) != 0)
            return NULL;
    }
    if (s->done == NULL) {
        if (cuda_check(q, "pinned memory",
                       cudaEventCreateWithFlags(&s->done,
                                                cudaEventDisableTiming)) != 0)
            return NULL;
    }
    if (cuda_check(q, "host copy", cudaEventSynchronize(s->done)) != 0)
        return NULL;
    q->next_stage ^= 1;
    return s;
}

static int copy_async(struct plait_queue *q, struct cuda_stage *s, void *dst,
                      const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    if (cuda_check(q, "host copy",
                   cudaMemcpyAsync(dst, src, bytes, kind, q->stream)) != 0)
        return -1;
    return cuda_check(q, "host copy", cudaEventRecord(s->done, q->stream));
}

static int to_device(struct plait_queue *q, void *dst, const void *host,
                     size_t bytes)
{
    if (cuda_enter_host(q, "to_device") != 0)
        return -1;
    for (size_t at = 0; at < bytes; at += STAGE_BYTES) {
        size_t n = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
        struct cuda_stage *s = stage_next(q);

        if (s == NULL)
            return -1;
        memcpy(s->host, (const char *)host + at, n);
        if (copy_async(q, s, (char *)dst + at, s->host, n,
                       cudaMemcpyHostToDevice) != 0)
            return -1;
    }
    return 0;
}

/* While the host copies one buffer to the caller, the GPU fills the other. */
static int to_host(struct plait_queue *q, void *host, const void *src,
                   size_t bytes)
{
    struct cuda_stage *last = NULL;
    size_t last_at = 0, last_n = 0;

    if (cuda_enter_host(q, "to_host") != 0)
        return -1;
    for (size_t at = 0; at < bytes || last != NULL; at += STAGE_BYTES) {
        struct cuda_stage *s = NULL;
        size_t n = 0;

        if (at < bytes) {
            n = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
            s = stage_next(q);
            if (s == NULL || copy_async(q, s, s->host, (const char *)src + at,
                                        n, cudaMemcpyDeviceToHost) != 0)
                return -1;
        }
        if (last != NULL) {
            if (cuda_check(q, "to_host", cudaEventSynchronize(last->done)) != 0)
                return -1;
            memcpy((char *)host + last_at, last->host, last_n);
        }
        last = s;
        last_at = at;
        last_n = n;
    }
    return 0;
}

static int copy(struct plait_queue *q, void *dst, const void *src, size_t bytes)
{
    if (cuda_enter(q) != 0)
        return -1;
    return cuda_check(
        q, "copy",
        cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, q->stream));
}

static int fill_zero(struct plait_queue *q, void *dst, size_t bytes)
{
    if (cuda_enter(q) != 0)
        return -1;
    return cuda_check(q, "fill_zero",
                      cudaMemsetAsync(dst, 0, bytes, q->stream));
}

static int copy_2d(struct plait_queue *q, const struct plait_copy_2d *c)
{
    size_t size = plait_dtype_size(c->type);

    if (cuda_enter(q) != 0)
        return -1;
    if (c->rows == 0 || c->cols == 0)
        return 0;
    return cuda_check(q, "copy_2d",
                      cudaMemcpy2DAsync(c->dst, c->dst_stride * size, c->src,
                                        c->src_stride * size, c->cols * size,
                                        c->rows, cudaMemcpyDeviceToDevice,
                                        q->stream));
}

void cuda_transfer_ops(struct plait_ops *ops)
{
    ops->copy = copy;
    ops->to_device = to_device;
    ops->to_host = to_host;
    ops->fill_zero = fill_zero;
    ops->copy_2d = copy_2d;
}

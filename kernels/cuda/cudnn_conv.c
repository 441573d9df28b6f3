/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by cuDNN. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "kernels/cuda/image.h"

#ifdef HAVE_CUDNN

#include "kernels/cuda/cudnn.h"

static const char *const names[] = {
    [CUDA_CONV_FORWARD] = "forward",
    [CUDA_CONV_INPUT] = "gradient of the image",
    [CUDA_CONV_WEIGHT] = "gradient of the weight",
};

static void refuse(struct plait_queue *q, const struct build *b)
{
    const struct conv_shape *s = &b->p->key.conv;
    const struct plait_conv *c = &s->c;

    plait_queue_note(&q->head,
                     "cuDNN has no %s convolution for %zu images of %zu x %zu "
                     "x %zu, %zu kernels of %d x %d, stride %d: %s: %s",
                     names[s->pass], c->N, c->C, c->H, c->W, c->O, c->kernel,
                     c->kernel, c->stride, b->what,
                     cudnnGetErrorString(b->status));
}

static const struct plan_kind kind = {cudnn_state_conv, refuse};

static struct key key_of(const struct plait_queue *q, enum cuda_conv_pass pass,
                         const struct plait_conv *c, uintptr_t addresses)
{
    struct key key;

    memset(&key, 0, sizeof(key));
    key.subject = OF_CONVOLUTION;
    key.conv.pass = pass;
    key.conv.c.N = c->N;
    key.conv.c.H = c->H;
    key.conv.c.W = c->W;
    key.conv.c.C = c->C;
    key.conv.c.O = c->O;
    key.conv.c.kernel = c->kernel;
    key.conv.c.stride = c->stride;
    key.conv.c.pad = c->pad;
    key.conv.tf32 = q->dev->tf32 != 0;
    key.conv.alignment = addresses % 16 == 0 ? 16 : 4;
    return key;
}

/* The device's lock is held. *sum: the weight's gradient in scratch memory,
 * which the caller must add to the old one; unchanged if it was stored
 * directly. */
static int run_plan(struct plait_queue *q, enum cuda_conv_pass pass,
                    const struct plait_conv *c, void *memory[CONV_IDS],
                    int accumulate, float **sum)
{
    static const int64_t ids[CONV_IDS] = {ID_IMAGE, ID_WEIGHT, ID_RESULT};
    size_t weights = c->O * plait_conv_patch(c), room;
    uintptr_t addresses = (uintptr_t)memory[ID_IMAGE] |
                          (uintptr_t)memory[ID_RESULT] |
                          (accumulate ? 0 : (uintptr_t)memory[ID_WEIGHT]);
    struct key key = key_of(q, pass, c, addresses);
    struct plan *p = cudnn_plan_for(q, &key, &kind);
    cudnnStatus_t status;
    char *scratch;

    if (p == NULL)
        return -1;
    if (p->plan == NULL)
        return 0;
    room = ((size_t)p->workspace + 255) / 256 * 256;
    scratch =
        cuda_scratch(q, room + (accumulate ? weights * sizeof(float) : 0));
    if (scratch == NULL)
        return -1;
    if (accumulate)
        memory[ID_WEIGHT] = *sum = (float *)(scratch + room);
    status = cudnn_execute(q, p, CONV_IDS, ids, memory, scratch);
    if (status != CUDNN_STATUS_SUCCESS)
        return plait_queue_fail(&q->head, EIO, "convolution by cuDNN: %s",
                                cudnnGetErrorString(status));
    return 1;
}

/* The library takes all arrays without const, also those it only reads. */
static void *plain(const float *p)
{
    return (void *)(uintptr_t)p;
}

int cuda_cudnn_conv(struct plait_queue *q, enum cuda_conv_pass pass,
                    const struct plait_conv *c,
                    const struct plait_conv_arrays *a)
{
    void *memory[CONV_IDS] = {
        [ID_IMAGE] = pass == CUDA_CONV_INPUT ? a->dinp : plain(a->inp),
        [ID_WEIGHT] = pass == CUDA_CONV_WEIGHT ? a->dw : plain(a->w),
        [ID_RESULT] = pass == CUDA_CONV_FORWARD ? a->out : plain(a->dout)};
    int accumulate = pass == CUDA_CONV_WEIGHT && a->accumulate;
    int rc = cuda_cudnn_chosen(q, "PLAIT_CONVOLUTION");
    float *sum = NULL;

    if (rc <= 0)
        return rc;
    pthread_mutex_lock(&q->dev->lock);
    rc = run_plan(q, pass, c, memory, accumulate, &sum);
    pthread_mutex_unlock(&q->dev->lock);
    if (rc > 0 && sum != NULL)
        cuda_sum_rows(q, a->dw, NULL, sum, 1, c->O * plait_conv_patch(c));
    return rc;
}

#else

int cuda_cudnn_conv(struct plait_queue *q, enum cuda_conv_pass pass,
                    const struct plait_conv *c,
                    const struct plait_conv_arrays *a)
{
    (void)pass;
    (void)c;
    (void)a;
    return cuda_cudnn_chosen(q, "PLAIT_CONVOLUTION");
}

#endif

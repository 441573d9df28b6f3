/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's plans, and its refusals to plan, are kept by key. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

#ifdef HAVE_CUDNN

#include "kernels/cuda/cudnn.h"

struct cuda_cudnn {
    cudnnHandle_t handle;
    struct plan *plans;
};

/* -- plans ----------------------------------------------------------------- */

static void plan_free(struct plan *p)
{
    while (p->nmade > 0)
        cudnnBackendDestroyDescriptor(p->made[--p->nmade]);
    free(p);
}

/* Creates cuDNN's handle at the first call. 0, or -1: the queue has failed. */
static int open_cudnn(struct plait_queue *q)
{
    struct cuda_cudnn *c = q->dev->cudnn;
    cudnnStatus_t s;

    if (c != NULL)
        return 0;
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return plait_queue_fail(&q->head, ENOMEM, "cuDNN: out of host memory");
    s = cudnnCreate(&c->handle);
    if (s != CUDNN_STATUS_SUCCESS) {
        free(c);
        return plait_queue_fail(&q->head, EIO, "cuDNN: %s",
                                cudnnGetErrorString(s));
    }
    q->dev->cudnn = c;
    return 0;
}

struct plan *cudnn_plan_for(struct plait_queue *q, const struct key *key,
                            const struct plan_kind *kind)
{
    struct build b = {.next_id = NIDS,
                      .alignment = 16,
                      .notes = ALL_NOTES,
                      .most_workspace = INT64_MAX};
    struct cuda_cudnn *c;
    struct plan *p;

    if (open_cudnn(q) != 0)
        return NULL;
    c = q->dev->cudnn;
    for (p = c->plans; p != NULL; p = p->next)
        if (memcmp(&p->key, key, sizeof(*key)) == 0)
            return p;
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        plait_queue_fail(&q->head, ENOMEM, "cuDNN: out of host memory");
        return NULL;
    }
    memcpy(&p->key, key, sizeof(*key));
    b.p = p;
    b.handle = c->handle;
    kind->state(&b);
    cudnn_choose(&b);
    if (p->plan == NULL)
        kind->refuse(q, &b);
    p->next = c->plans;
    c->plans = p;
    return p;
}

/* -- running --------------------------------------------------------------- */

cudnnStatus_t cudnn_execute(struct plait_queue *q, const struct plan *p,
                            int64_t n, const int64_t *ids, void **memory,
                            void *workspace)
{
    cudnnHandle_t handle = q->dev->cudnn->handle;
    cudnnStatus_t s = cudnnSetStream(handle, q->stream);
    desc d = NULL;

    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                                         &d);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                     CUDNN_TYPE_VOID_PTR, n, memory);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                     CUDNN_TYPE_INT64, n, ids);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                     CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(d);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendExecute(handle, p->plan, d);
    if (d != NULL)
        cudnnBackendDestroyDescriptor(d);
    return s;
}

void cuda_cudnn_forget(struct plait_device *dev)
{
    struct cuda_cudnn *c = dev->cudnn;

    if (c == NULL)
        return;
    while (c->plans != NULL) {
        struct plan *p = c->plans;

        c->plans = p->next;
        plan_free(p);
    }
    cudnnDestroy(c->handle);
    free(c);
    dev->cudnn = NULL;
}

#else

const char *cudnn_missing(void)
{
    return "configured without cuDNN";
}

void cuda_cudnn_forget(struct plait_device *dev)
{
    (void)dev;
}

#endif

/* Whether an environment variable leaves its subject to cuDNN. */
int cuda_cudnn_chosen(struct plait_queue *q, const char *variable)
{
    const char *choice = getenv(variable);

    if (choice == NULL || *choice == '\0')
        return cudnn_missing() == NULL;
    if (strcmp(choice, "own") == 0)
        return 0;
    if (strcmp(choice, "cudnn") != 0)
        return plait_queue_fail(&q->head, EINVAL,
                                "%s='%s': must be own or cudnn", variable,
                                choice);
    if (cudnn_missing() == NULL)
        return 1;
    return plait_queue_fail(&q->head, ENOTSUP, "%s=cudnn: %s", variable,
                            cudnn_missing());
}

void cuda_describe_attention(char *text, size_t size)
{
    const char *choice = getenv("PLAIT_ATTENTION");
    bool own = choice != NULL && strcmp(choice, "own") == 0;
    const char *why = own ? NULL : cudnn_missing();

#ifdef HAVE_CUDNN
    size_t version = why == NULL ? cudnnGetVersion() : 0;

    if (!own && why == NULL)
        why = cudnn_refused(&(struct shape){.backward = false}, version);
    if (!own && why == NULL) {
        snprintf(text, size, "cuDNN %zu.%zu.%zu", version / 10000,
                 version / 100 % 100, version % 100);
        return;
    }
#endif
    snprintf(text, size, "own kernels%s%s%s", why != NULL ? " (" : "",
             why != NULL ? why : "", why != NULL ? ")" : "");
}

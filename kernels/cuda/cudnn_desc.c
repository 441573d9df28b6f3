/* SPDX-License-Identifier: Apache-2.0 */
/* Stating something to cuDNN's backend, step by step. */
#include "config.h"

#ifdef HAVE_CUDNN

#include "kernels/cuda/cudnn.h"

void cudnn_check(struct build *b, const char *what, cudnnStatus_t status)
{
    if (b->status != CUDNN_STATUS_SUCCESS || status == CUDNN_STATUS_SUCCESS)
        return;
    b->status = status;
    b->what = what;
}

desc cudnn_make(struct build *b, const char *what,
                cudnnBackendDescriptorType_t type)
{
    desc d = NULL;

    if (b->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (b->p->nmade == DESCRIPTORS) {
        cudnn_check(b, what, CUDNN_STATUS_INTERNAL_ERROR);
        return NULL;
    }
    cudnn_check(b, what, cudnnBackendCreateDescriptor(type, &d));
    if (d != NULL)
        b->p->made[b->p->nmade++] = d;
    return d;
}

void cudnn_set(struct build *b, const char *what, desc d,
               cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        cudnn_check(b, what, cudnnBackendSetAttribute(d, name, type, n, value));
}

void cudnn_set_desc(struct build *b, const char *what, desc d,
                    cudnnBackendAttributeName_t name, desc value)
{
    cudnn_set(b, what, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

desc cudnn_finish(struct build *b, const char *what, desc d)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        cudnn_check(b, what, cudnnBackendFinalize(d));
    return d;
}

desc cudnn_tensor(struct build *b, const struct tensor *t)
{
    const char *what = "tensor";
    int64_t alignment = t->by_value ? 4 : b->alignment;
    desc d = cudnn_make(b, what, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    cudnn_set(b, what, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
              &t->type);
    cudnn_set(b, what, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
              t->size);
    cudnn_set(b, what, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4,
              t->stride);
    cudnn_set(b, what, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1,
              &t->id);
    cudnn_set(b, what, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
              &alignment);
    cudnn_set(b, what, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
              &t->is_virtual);
    cudnn_set(b, what, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
              &t->by_value);
    return cudnn_finish(b, what, d);
}

void cudnn_add(struct build *b, const char *what, desc d)
{
    cudnn_finish(b, what, d);
    if (b->status != CUDNN_STATUS_SUCCESS)
        return;
    if (b->nops == OPERATIONS)
        cudnn_check(b, what, CUDNN_STATUS_INTERNAL_ERROR);
    else
        b->ops[b->nops++] = d;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_CUDNN_H
#define PLAIT_KERNELS_CUDA_CUDNN_H

#include <cudnn.h>

#include "kernels/cuda/cuda.h"

/* What cudnn.c (plans) and cudnn_graph.c (what they compute) share. */

typedef cudnnBackendDescriptor_t desc;

/* More than the descriptors of one plan, and than its operations. */
#define DESCRIPTORS 192
#define OPERATIONS 32

/* What a plan is made for. */
struct shape {
    bool backward;
    bool zeroed; /* the gradients go where they belong, else dense, beside */
    enum plait_dtype type;
    int batch, len, q_heads, kv_heads, head_dim;
    size_t q_stride, kv_stride;
};

/* The tensors that are memory, by their cuDNN ids, those of the forward
 * first; SCALE, MASKED and ONE are single numbers on the host. DELTA are the
 * row sums of dout * out, DQ_SUM is dQ in fp32. */
enum {
    ID_Q,
    ID_K,
    ID_V,
    ID_OUT,
    ID_LSE,
    ID_SCALE,
    ID_MASKED,
    FORWARD_IDS,
    ID_ONE = FORWARD_IDS,
    ID_DOUT,
    ID_DELTA,
    ID_DQ_SUM,
    ID_DQ,
    ID_DK,
    ID_DV,
    NIDS
};

/* plan NULL: cuDNN has none for this shape. */
struct plan {
    struct plan *next;
    struct shape shape;
    desc made[DESCRIPTORS]; /* all of the plan, in the order they were made */
    int nmade;
    desc plan;
    int64_t workspace; /* bytes */
};

/* A plan in the making. After the first failure nothing more is done. */
struct build {
    struct plan *p;
    cudnnStatus_t status;
    const char *what; /* failed */
    desc ops[OPERATIONS];
    int nops;
    int64_t next_id; /* of tensors that are no memory */
    const struct shape *s;
};

/* Attention, forward or backward, of b->s as cuDNN's operations. */
desc cudnn_attention(struct build *b, cudnnHandle_t handle);

/* The steps of stating something to cuDNN; `what` names it where one fails.
 * The plan owns what is made. */
void cudnn_check(struct build *b, const char *what, cudnnStatus_t status);
desc cudnn_make(struct build *b, const char *what,
                cudnnBackendDescriptorType_t type);
void cudnn_set(struct build *b, const char *what, desc d,
               cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t n, const void *value);
void cudnn_set_desc(struct build *b, const char *what, desc d,
                    cudnnBackendAttributeName_t name, desc value);
desc cudnn_finish(struct build *b, const char *what, desc d);

#endif

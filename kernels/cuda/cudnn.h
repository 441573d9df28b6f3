/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_CUDNN_H
#define PLAIT_KERNELS_CUDA_CUDNN_H

#include <cudnn.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/image.h"

/* What the files about cuDNN share: cudnn_lib.c (the library), cudnn_desc.c
 * (descriptors), cudnn_graph.c and cudnn_conv_graph.c (what a plan computes),
 * cudnn_choose.c (its engine), cudnn_plan.c (plans that are kept), cudnn.c
 * and cudnn_conv.c (attention and convolutions by them). */

typedef cudnnBackendDescriptor_t desc;

/* More than the descriptors of one plan, and than its operations. */
#define DESCRIPTORS 256
#define OPERATIONS 32

#define ALL_NOTES UINT32_MAX

/* What attention's plan is made for. */
struct shape {
    bool backward;
    bool overwrite; /* the gradients go where they belong, else dense, beside */
    enum plait_dtype type;
    int batch, len, q_heads, kv_heads, head_dim;
    size_t q_stride, kv_stride;
};

/* And a convolution's. */
struct conv_shape {
    enum cuda_conv_pass pass;
    struct plait_conv c;
    bool tf32;
    int alignment; /* of all its memory */
};

/* Compared as bytes: what is not set is 0. */
struct key {
    enum { OF_ATTENTION, OF_CONVOLUTION } subject;
    struct shape attention;
    struct conv_shape conv;
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

/* Of a convolution: what it reads and writes, or the gradients of these. */
enum { ID_IMAGE, ID_WEIGHT, ID_RESULT, CONV_IDS };

/* plan NULL: cuDNN has none for this shape. */
struct plan {
    struct plan *next;
    struct key key;
    desc made[DESCRIPTORS]; /* all of the plan, in the order they were made */
    int nmade;
    desc plan;
    int64_t workspace; /* bytes */
};

/* A plan in the making. After the first failure nothing more is done. */
struct build {
    struct plan *p;
    cudnnHandle_t handle; /* of the GPU; or NULL, and one that is described,
                             which newer versions of cuDNN also plan for */
    struct {
        desc properties;
        cudnnBackendAttributeName_t of_heuristics, of_plan;
    } device;
    cudnnStatus_t status;
    const char *what; /* failed */
    desc ops[OPERATIONS];
    int nops;
    int64_t next_id;        /* of tensors that are no memory */
    int64_t alignment;      /* of those that are, bytes */
    uint32_t notes;         /* numerical notes an engine may have, a bit each */
    int64_t most_workspace; /* bytes */
    bool fallback;          /* any engine will do */
    const struct shape *s;  /* of attention */
};

/* What plans of one subject have in common. */
struct plan_kind {
    void (*state)(struct build *b); /* the operations, and limits */
    void (*refuse)(struct plait_queue *q, const struct build *b); /* a note */
};

/* The plan for a key, made if need be; NULL: the queue has failed. The
 * device's lock is held, here and below. */
struct plan *cudnn_plan_for(struct plait_queue *q, const struct key *key,
                            const struct plan_kind *kind);
cudnnStatus_t cudnn_execute(struct plait_queue *q, const struct plan *p,
                            int64_t n, const int64_t *ids, void **memory,
                            void *workspace);

/* The library of that name; -1 and why. */
int cudnn_load(const char *file, char *why, size_t size);

/* What a version is known not to do right of attention; NULL: nothing. */
const char *cudnn_refused(const struct shape *s, size_t version);

/* A plan for the operations that are stated, if there is one. */
void cudnn_choose(struct build *b);

/* The operations of b->p->key. */
void cudnn_state_attention(struct build *b);
void cudnn_state_conv(struct build *b);

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
desc cudnn_tensor(struct build *b, int64_t id, cudnnDataType_t type,
                  const int64_t size[4], const int64_t stride[4],
                  bool is_virtual, bool by_value);
/* Finishes an operation, which becomes one of the plan's. */
void cudnn_add(struct build *b, const char *what, desc d);

#endif

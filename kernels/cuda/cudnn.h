/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_CUDNN_H
#define PLAIT_KERNELS_CUDA_CUDNN_H

#include <cudnn.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/image.h"

/* Shared by the files about cuDNN: cudnn_lib.c (the library), cudnn_desc.c
 * (descriptors), cudnn_graph.c and cudnn_conv_graph.c (what a plan computes),
 * cudnn_choose.c (its engine), cudnn_plan.c (kept plans), cudnn.c and
 * cudnn_conv.c (attention and convolutions with them). */

typedef cudnnBackendDescriptor_t desc;

/* Limits that no plan reaches: its descriptors, and its operations. */
#define DESCRIPTORS 256
#define OPERATIONS 32

#define ALL_NOTES UINT32_MAX

/* What an attention plan depends on. */
struct shape {
    bool backward;
    bool unmasked;  /* each query sees all keys */
    int window;     /* keys that it sees at most, with its own; 0: all before */
    bool overwrite; /* gradients are stored directly as a says; else dense, in
                     * scratch memory */
    enum plait_dtype type;
    int batch, len, q_heads, kv_heads, head_dim;
    size_t q_stride, kv_stride;
};

/* What a convolution plan depends on. */
struct conv_shape {
    enum cuda_conv_pass pass;
    struct plait_conv c;
    bool tf32;
    int alignment; /* bytes, of all its pointers */
};

/* The key of a plan. Compared as bytes: unused members are 0. */
struct key {
    enum { OF_ATTENTION, OF_CONVOLUTION } subject;
    struct shape attention;
    struct conv_shape conv;
};

/* Tensors in memory, by their cuDNN ids, those of the forward first. SCALE,
 * MASKED, WINDOW (an integer) and ONE are single numbers on the host. DELTA:
 * the row sums of dout * out; DQ_SUM: dQ in fp32. */
enum {
    ID_Q,
    ID_K,
    ID_V,
    ID_OUT,
    ID_LSE,
    ID_SCALE,
    ID_MASKED,
    ID_WINDOW,
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

/* A convolution's tensors, or the gradients of them. */
enum { ID_IMAGE, ID_WEIGHT, ID_RESULT, CONV_IDS };

/* plan NULL: cuDNN has none for this shape. */
struct plan {
    struct plan *next;
    struct key key;
    desc made[DESCRIPTORS]; /* all descriptors of the plan, in order of
                             * creation */
    int nmade;
    desc plan;
    int64_t workspace; /* bytes */
};

/* A plan that is being built. After the first failure, later calls do
 * nothing. */
struct build {
    struct plan *p;
    cudnnHandle_t handle; /* of the GPU; NULL: of a described device, which
                           * newer versions of cuDNN can plan for, too */
    struct {
        desc properties;
        cudnnBackendAttributeName_t of_heuristics, of_plan;
    } device;
    cudnnStatus_t status;
    const char *what; /* what failed */
    desc ops[OPERATIONS];
    int nops;
    int64_t next_id;        /* for virtual tensors */
    int64_t alignment;      /* of tensors in memory, bytes */
    uint32_t notes;         /* bit set of the numerical notes an engine may
                             * have */
    int64_t most_workspace; /* bytes */
    bool fallback;          /* also try the engines of cuDNN's fallback list */
    const struct shape *s;  /* attention's */
};

/* What differs between the subjects of plans. */
struct plan_kind {
    void (*state)(struct build *b); /* states the operations, sets limits */
    void (*refuse)(struct plait_queue *q, const struct build *b); /* a remark */
};

/* The plan for a key, built if there is none yet; NULL: the queue has failed.
 * Here and below the caller holds the device's lock. */
struct plan *cudnn_plan_for(struct plait_queue *q, const struct key *key,
                            const struct plan_kind *kind);
cudnnStatus_t cudnn_execute(struct plait_queue *q, const struct plan *p,
                            int64_t n, const int64_t *ids, void **memory,
                            void *workspace);

/* Loads the library of that name; 0, or -1 with the reason in why. */
int cudnn_load(const char *file, char *why, size_t size);

/* Why this version of cuDNN is not used for the shape; NULL: it is. */
const char *cudnn_refused(const struct shape *s, size_t version);

/* Finds a plan for the stated operations, if there is one. */
void cudnn_choose(struct build *b);

/* State the operations of b->p->key. */
void cudnn_state_attention(struct build *b);
void cudnn_state_conv(struct build *b);

/* The steps of describing something to cuDNN; `what` names it if one fails. The
 * plan owns what is created. */
void cudnn_check(struct build *b, const char *what, cudnnStatus_t status);
desc cudnn_make(struct build *b, const char *what,
                cudnnBackendDescriptorType_t type);
void cudnn_set(struct build *b, const char *what, desc d,
               cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t n, const void *value);
void cudnn_set_desc(struct build *b, const char *what, desc d,
                    cudnnBackendAttributeName_t name, desc value);
desc cudnn_finish(struct build *b, const char *what, desc d);

/* A tensor of the plan: in memory, or one that stays inside the kernel
 * (is_virtual), or a single number on the host (by_value). */
struct tensor {
    int64_t id;
    cudnnDataType_t type;
    int64_t size[4], stride[4]; /* in elements */
    bool is_virtual, by_value;
};
desc cudnn_tensor(struct build *b, const struct tensor *t);

/* Finishes an operation and adds it to the plan's. */
void cudnn_add(struct build *b, const char *what, desc d);

#endif

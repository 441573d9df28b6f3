/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_IMAGE_H
#define PLAIT_RUNTIME_MODEL_IMAGE_H

#include "kernels/image.h"
#include "runtime/model/internal.h"
#include "topology/job/image_shape.h"

/* Image models (the families mlp and resnet); only for the image_*.c files.
 *
 * Blocks are a resnet's stem, the residual blocks or an mlp's hidden layers,
 * and the head. Each has one region, so that block i has region i. Everything
 * is fp32, images channels last: N images of a micro-batch, [N, H, W, C]. */

#define PLAIT_NORM_MOMENTUM 0.1 /* of the newest statistics, as in PyTorch */

/* A convolution and its batch norm. */
struct plait_unit {
    struct plait_conv conv; /* of one image */
    size_t weight;          /* offsets in the region */
    size_t beta;            /* gamma follows it, as in the sums of the norm */
    size_t running;         /* mean, then variance */
    int product;
};

struct plait_image_block {
    enum plait_image_kind kind;
    bool first; /* of the model: its input needs no gradient */
    int nunits; /* in the chain */
    struct plait_unit unit[PLAIT_IMAGE_UNITS];
    bool projected; /* the shortcut is a convolution and its norm */
    bool pooled;
    struct plait_conv pool;     /* of one image */
    struct plait_matrix matrix; /* of a dense layer and of the head */
    size_t bias;
    size_t rows;    /* rows of an image that the head averages */
    size_t in, out; /* numbers of one image */
};

/* What a unit's backward needs. */
struct plait_unit_kept {
    float *pre;   /* convolved */
    float *post;  /* normalised, activated */
    float *stats; /* [2, groups, C] */
};

struct plait_image_kept {
    const float *x; /* input */
    struct plait_unit_kept unit[PLAIT_IMAGE_UNITS];
    float *out;
};

/* A micro-batch in flight on one chunk. */
struct plait_image_slot {
    size_t N;
    float loss_scale;
    const float *weights; /* as in plait_batch */
    int index, total;     /* as in plait_batch */
    float *input;         /* of the chunk's first block */
    int32_t *labels;
    struct plait_image_kept *kept; /* [blocks of the chunk] */
    float *dhead;
};

struct plait_image_state {
    struct plait_image_block *block; /* [nblocks of the state] */
    size_t boundary;                 /* elements between any two stages */
    double macs; /* multiplications of one image, of the whole model */
    /* After plait_model_reserve(): */
    size_t N;
    struct plait_image_slot *slots; /* [chunks][nslots of the state] */
    float *grad, *pre, *spare;      /* [N, numbers of the largest tensor] */
    float *sums;                    /* [groups, 2, C] */
    float *all;                     /* [dp, 2, C]; only with norm sync */
    float *pooled, *dpooled;        /* [N, C] of the head */
    float *logits;                  /* [N, classes] */
};

/* A block being computed, and what its functions need. */
struct plait_image_work {
    struct plait_model *model;
    const struct plait_ops *ops;
    struct plait_queue *q;
    struct plait_image_state *s;
    struct plait_image_slot *slot;
    int region; /* of the block */
    bool train;
};

static inline float *plait_image_weight(const struct plait_image_work *w,
                                        size_t offset)
{
    return (float *)w->model->regions[w->region].weight + offset;
}

static inline float *plait_image_grad(const struct plait_image_work *w,
                                      size_t offset)
{
    return w->model->regions[w->region].grad + offset;
}

/* image_layout.c: as plait_model_layout(). */
int plait_image_layout(struct plait_model *model);

/* image_arena.c */
int plait_image_reserve(struct plait_model *model, int slots, int micro_batch,
                        struct plait_error *err);
void plait_image_release(struct plait_model *model);

/* image_unit.c: from x to kept->post; residual NULL: none. */
int plait_unit_forward(const struct plait_image_work *w,
                       const struct plait_unit *unit,
                       const struct plait_unit_kept *kept, const float *x,
                       const float *residual, bool relu);
/* What a unit's backward reads and writes besides the gradients of the
 * weights. */
struct plait_unit_backward {
    const float *x;    /* of the forward */
    const float *dout; /* not the state's `pre` */
    float *dx;         /* out; NULL: not wanted; may be dout, not `pre` */
    float *dresidual;  /* out; NULL: there was no residual */
    bool relu;         /* as in the forward */
};
int plait_unit_backward(const struct plait_image_work *w,
                        const struct plait_unit *unit,
                        const struct plait_unit_kept *kept,
                        const struct plait_unit_backward *g);

/* image_block.c */
int plait_image_block_forward(const struct plait_image_work *w,
                              const struct plait_image_block *b,
                              const struct plait_image_kept *kept);
/* Replaces the gradient of the output by that of the input, in the state's
 * `grad`. */
int plait_image_block_backward(const struct plait_image_work *w,
                               const struct plait_image_block *b,
                               const struct plait_image_kept *kept);
/* The loss of x and, with `train`, the whole backward, to slot->dhead. */
int plait_image_head(const struct plait_image_work *w,
                     const struct plait_image_block *b, const float *x,
                     double *loss);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_IMAGE_SHAPE_H
#define PLAIT_TOPOLOGY_JOB_IMAGE_SHAPE_H

#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The blocks of an image model, one after the other. This is the only place
 * that knows how many there are, how wide they are and what each consists of.
 * The runtime visits the blocks of its rank and gives them tensors
 * (runtime/model/image_layout.c); the estimate walks along them to add up bytes
 * and multiplications (topology/predict/estimate_image.c). A block that is
 * changed here therefore changes in both.
 *
 * The resnets are those of He et al., arXiv 1512.03385: of 6 n + 2 layers as in
 * section 4.2, and of 50 as in table 1. If a block changes the shape, its
 * shortcut is a convolution (option B).
 *
 * Numbers are of one image. They are whole, and double because products of them
 * are counted of models that no machine could hold. */

#define PLAIT_IMAGE_UNITS 4
#define PLAIT_IMAGE_SHORTCUT 3 /* the last unit is the shortcut's */

enum plait_image_kind {
    PLAIT_IMAGE_STEM,
    PLAIT_IMAGE_RESIDUAL,
    PLAIT_IMAGE_DENSE,
    PLAIT_IMAGE_HEAD
};

/* A convolution with its norm, or a pooling; kernel 0: there is none. Padded
 * with zeros of half the kernel's width. */
struct plait_image_unit {
    double H, W, C; /* of the input */
    int kernel, stride;
    double rows, channels, patch; /* of the output; weights per channel */
};

struct plait_image_piece {
    enum plait_image_kind kind;
    int layer;  /* -1: the stem, `layers`: the head */
    bool first; /* of the model */
    double in, out;
    int units; /* in the chain */
    struct plait_image_unit unit[PLAIT_IMAGE_UNITS];
    struct plait_image_unit pool; /* after the chain */
    double matrix[2]; /* rows and columns of a dense layer and of the head */
    bool keeps_out;   /* the output is kept beside what the units keep */
};

struct plait_image_walk {
    const struct plait_model_config *c;
    double H, W, C;
    int layer; /* the next one */
};

void plait_image_walk_start(struct plait_image_walk *walk,
                            const struct plait_model_config *config);
/* false: there are no more pieces. */
bool plait_image_walk_next(struct plait_image_walk *walk,
                           struct plait_image_piece *piece);

/* Calls `visit` for each piece of pipeline rank `rank` of `pp`, in the order of
 * the forward pass, with the rank's chunk that it belongs to. */
typedef void plait_image_piece_fn(const struct plait_image_piece *piece,
                                  int chunk, void *arg);
void plait_image_visit(const struct plait_job_config *config, int pp, int rank,
                       plait_image_piece_fn *visit, void *arg);

double plait_image_piece_parameters(const struct plait_image_piece *piece);
/* Multiplications of a forward pass. */
double plait_image_piece_macs(const struct plait_image_piece *piece);

/* The same of the whole model; and the running statistics of its norms. */
double plait_image_statistics(const struct plait_model_config *config);
double plait_image_parameters(const struct plait_model_config *config);
double plait_image_macs(const struct plait_model_config *config);
/* The most numbers of an image that one pipeline stage sends to the next. */
double plait_image_boundary(const struct plait_model_config *config);

#ifdef __cplusplus
}
#endif
#endif

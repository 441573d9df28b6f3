/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_IMAGE_SHAPE_H
#define PLAIT_TOPOLOGY_JOB_IMAGE_SHAPE_H

#include "topology/job/job_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the blocks of an image model are made of, for estimates: sizes alone, as
 * runtime/model/image_layout.c lays them out (tests/unit/test_memory.c checks
 * that both agree). Numbers are of one image. */

#define PLAIT_IMAGE_UNITS 4

enum plait_image_place {
    PLAIT_IMAGE_AT_STEM,
    PLAIT_IMAGE_AT_LAYER,
    PLAIT_IMAGE_AT_HEAD
};

/* A convolution with its norm; channels 0: there is none. */
struct plait_image_unit {
    double rows, channels, patch; /* of the output; weights per channel */
};

struct plait_image_piece {
    enum plait_image_place place;
    int layer;
    double in, out;
    int units;                                       /* in the chain */
    struct plait_image_unit unit[PLAIT_IMAGE_UNITS]; /* the last: shortcut */
    double matrix[2]; /* rows and columns of a dense layer and of the head */
    bool keeps_out;   /* the output is kept beside what the units keep */
};

struct plait_image_walk {
    const struct plait_model_config *c;
    double H, W, C;
    int layer; /* the next one; -1: the stem, `layers`: the head */
};

void plait_image_walk_start(struct plait_image_walk *walk,
                            const struct plait_model_config *config);
/* false: there are no more pieces. */
bool plait_image_walk_next(struct plait_image_walk *walk,
                           struct plait_image_piece *piece);

double plait_image_piece_parameters(const struct plait_image_piece *piece);
/* Multiplications of a forward pass. */
double plait_image_piece_macs(const struct plait_image_piece *piece);

/* The same of the whole model. */
double plait_image_parameters(const struct plait_model_config *config);
double plait_image_macs(const struct plait_model_config *config);
/* The most numbers of an image that one pipeline stage sends to the next. */
double plait_image_boundary(const struct plait_model_config *config);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_ESTIMATE_WORK_H
#define PLAIT_TOPOLOGY_PREDICT_ESTIMATE_WORK_H

#include "topology/predict/estimate_shape.h"

/* Seconds that a GPU computes for one micro-batch: for a layer, one pass of
 * three (a forward and two of backward, which are taken to be equal), and for
 * the head all three. */
/* Attention's forward in units of such a pass: fused, forward takes 2 products
 * and backward 5. */
#define PLAIT_ATTENTION_FORWARD (3 / 3.5)

struct plait_work_times {
    double products;    /* linears */
    double attention;   /* scores */
    double elementwise; /* norms, residuals, activations, rounding to fp8 */
    double cheap;       /* of those, norms and activations */
    double launch;
    double deferred; /* share of a pass over weights that zb-h1 can put off */
    double head;     /* all three passes, with the loss */
    double update;   /* the optimizer, once a step */
};

void plait_work_set(const struct plait_shape *shape,
                    struct plait_work_times *times);

/* Seconds in which a layer's forward makes MLA's queries, keys and values from
 * their latents; 0 without MLA. */
double plait_work_latent_up(const struct plait_shape *shape);
/* Weights of the matrices that make a layer's latents, which each tp rank has
 * whole. */
double plait_work_latents(const struct plait_model_config *model);
/* Experts on this GPU. */
double plait_work_experts(const struct plait_shape *shape);
/* Weights of the pipeline rank that has most. */
double plait_work_fullest_weights(const struct plait_shape *shape);
/* Bytes of a weight that the optimizer itself reads and writes: its gradient
 * (4), its states twice, its master twice (8), or the weight of bf16 that has
 * none once (2). AdamW's in fp32 (28) stand for optimizers that work on whole
 * matrices, and for other frameworks, whose records were fitted so. */
double plait_work_moved(const struct plait_shape *shape);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_ESTIMATE_WORK_H
#define PLAIT_TOPOLOGY_PREDICT_ESTIMATE_WORK_H

#include "topology/predict/estimate_shape.h"

/* What a GPU computes for one micro-batch, in seconds: of a layer, a pass (a
 * forward and two of backward, which are taken to be equal), and of the head
 * the whole. */
/* Of attention's passes (fused: 2 products and 5), forward is this much. */
#define PLAIT_ATTENTION_FORWARD (3 / 3.5)

struct plait_work_times {
    double products;    /* linears */
    double attention;   /* scores */
    double elementwise; /* norms, residuals, activations, rounding to fp8 */
    double launch;
    double head;   /* all three passes, with the loss */
    double update; /* the optimizer, once a step */
};

void plait_work_set(const struct plait_shape *shape,
                    struct plait_work_times *times);

/* Seconds of a layer's forward through what makes MLA's queries, keys and
 * values from their latents; 0 without MLA. */
double plait_work_latent_up(const struct plait_shape *shape);
/* Experts on this GPU. */
double plait_work_experts(const struct plait_shape *shape);
/* Weights of a layer's linears on this GPU, all of its experts' included. */
double plait_work_linear_weights(const struct plait_shape *shape);
/* Elements of the fuller end of the pipeline. */
double plait_work_fullest_weights(const struct plait_shape *shape);

#endif

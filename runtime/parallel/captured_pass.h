/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_CAPTURED_PASS_H
#define PLAIT_RUNTIME_PARALLEL_CAPTURED_PASS_H

#include "runtime/mesh/graph_capture.h"
#include "runtime/model/model.h"

/* Forward and backward of a micro-batch of a model without pipeline stages,
 * replayed from a captured graph. Starts zeroed. */
struct plait_captured_pass {
    struct plait_graph_capture capture;
    /* What the captured work uses: */
    struct plait_model *model;
    struct plait_batch batch; /* already on the device */
    double *loss;
    int microbatch;
    bool reduces; /* gradients are reduced in the pass */
};

/* *loss gets the summed token losses added. The pass is captured again if
 * loss, the loss scale or `masked` change: the graph holds them. */
int plait_captured_pass_run(struct plait_captured_pass *pass,
                            struct plait_model *model, int microbatch,
                            bool reduces, const struct plait_batch *batch,
                            double *loss);
/* Drops the graph. */
void plait_captured_pass_reset(struct plait_captured_pass *pass,
                               const struct plait_mesh *mesh);

#endif

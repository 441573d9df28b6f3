/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_CAPTURED_PASS_H
#define PLAIT_RUNTIME_PARALLEL_CAPTURED_PASS_H

#include "runtime/mesh/graph_capture.h"
#include "runtime/model/model.h"
#include "topology/job/schedule.h"

/* What a micro-batch has computed at a chunk, and where: all that the graph of
 * it depends on. Micro-batches for which it is the same share one. */
struct plait_pass {
    bool forward, backward; /* backward: as `half` says, after the forward */
    enum plait_action_kind half;
    bool reduces; /* gradients are reduced in the pass */
    int chunk, slot;
    const void *in, *dout; /* as of plait_model_forward() and backward() */
    void *out, *din;
};

/* Backward, or the half of it that the pass says. */
int plait_pass_backward(struct plait_model *model,
                        const struct plait_pass *pass, int microbatch);

struct plait_captured_pass;

/* Passes that are replayed from captured graphs. Starts zeroed. */
struct plait_captured_passes {
    int n;
    struct plait_captured_pass *pass;
};

/* *loss gets the summed token losses added. The pass is captured again if
 * loss, the loss scale or `masked` change: the graph holds them. */
int plait_captured_passes_run(struct plait_captured_passes *passes,
                              struct plait_model *model,
                              const struct plait_pass *pass, int microbatch,
                              const struct plait_batch *batch, double *loss);
/* Drops the graphs; then it is as at the start. */
void plait_captured_passes_clear(struct plait_captured_passes *passes,
                                 const struct plait_mesh *mesh);

#endif

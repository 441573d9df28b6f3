/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_CAPTURED_PASS_H
#define PLAIT_RUNTIME_PARALLEL_CAPTURED_PASS_H

#include "runtime/mesh/graph_capture.h"
#include "runtime/model/model.h"
#include "topology/job/schedule.h"

/* A pass of one micro-batch through a chunk: what is computed, and in which
 * buffers. A graph depends on nothing else, so micro-batches with an equal pass
 * share one.
 *
 * With ZeRO 2 and 3 the head's forward leaves its gradient in a buffer of the
 * region, which its backward reduces. Both graphs have the buffer's address,
 * and a replay does not tell the host of it. So a pass that leaves a gradient
 * there must be queued, recorded and replayed exactly when its backward is: the
 * caller gives both the same buffers, and no other pass comes between them. */
struct plait_pass {
    bool forward, backward; /* backward: the half that `half` says, after the
                               forward if both are set */
    enum plait_action_kind half;
    bool reduces; /* gradients are reduced during the pass */
    int chunk, slot;
    const void *in, *dout; /* as in struct plait_forward and backward */
    void *out, *din;
};

/* Runs forward, and keeps what backward needs. */
int plait_pass_forward(struct plait_model *model, const struct plait_pass *pass,
                       const struct plait_batch *batch, double *loss);
/* Runs backward, or the half of it that the pass says. */
int plait_pass_backward(struct plait_model *model,
                        const struct plait_pass *pass, int microbatch);

struct plait_captured_pass;

/* Passes that are replayed from captured graphs. Starts zeroed. */
struct plait_captured_passes {
    int n;
    struct plait_captured_pass *pass;
};

/* Runs the pass; from the second time on, from its graph. *loss (device): the
 * sum of the token losses is added to it. Captures again where loss or the loss
 * scale have changed, as these are part of the graph. */
int plait_captured_passes_run(struct plait_captured_passes *passes,
                              struct plait_model *model,
                              const struct plait_pass *pass, int microbatch,
                              const struct plait_batch *batch, double *loss);
/* Destroys the graphs and sets *passes to zero. */
void plait_captured_passes_clear(struct plait_captured_passes *passes,
                                 const struct plait_mesh *mesh);

#endif

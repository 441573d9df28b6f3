/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/parallel/captured_pass.h"

#include <stdio.h>

#include "runtime/comm/trace.h"

/* Leaves no transfer under way and no weights prefetched: a replay must not
 * depend on what the host does next. */
static int queue_pass(void *arg)
{
    struct plait_captured_pass *p = arg;
    struct plait_model *model = p->model;

    plait_model_expect(model, 0, true);
    if (plait_model_forward(model, 0, 0, &p->batch, NULL, NULL, p->loss, true) <
        0)
        return -1;
    plait_model_expect(model, -1, false);
    if (plait_model_backward(model, 0, 0, p->microbatch, NULL, NULL) < 0)
        return -1;
    return p->reduces ? model->hooks.settle(model->hooks.arg) : 0;
}

/* Where gradients are not reduced in the pass, their owner is told after it:
 * a replay has no effect on the host. */
static int run_pass(struct plait_captured_pass *p)
{
    struct plait_model *model = p->model;
    plait_region_fn ready = model->hooks.grad_ready;
    int rc, i;

    if (p->reduces)
        return plait_graph_capture_run(&p->capture, model->mesh, queue_pass, p);
    model->hooks.grad_ready = NULL;
    rc = plait_graph_capture_run(&p->capture, model->mesh, queue_pass, p);
    model->hooks.grad_ready = ready;
    for (i = model->nregions - 1; i >= 0 && rc == 0; i--)
        rc = ready(model->hooks.arg, &model->regions[i], p->microbatch);
    return rc;
}

int plait_captured_pass_run(struct plait_captured_pass *p,
                            struct plait_model *model, int microbatch,
                            bool reduces, const struct plait_batch *batch,
                            double *loss)
{
    struct plait_mesh *mesh = model->mesh;
    double start = plait_trace_now();
    char name[64];
    int rc;

    p->model = model;
    p->microbatch = microbatch;
    p->reduces = reduces;
    if (p->batch.loss_scale != batch->loss_scale ||
        p->batch.masked != batch->masked || p->loss != loss)
        plait_graph_capture_reset(&p->capture, mesh);
    if (plait_model_load(model, 0, 0, batch) < 0)
        return -1;
    p->batch = *batch;
    p->batch.tokens = p->batch.targets = p->batch.starts = NULL;
    p->loss = loss;
    plait_range_begin(mesh->ops, "forward and backward");
    rc = run_pass(p);
    plait_range_end(mesh->ops);
    if (rc < 0 || !mesh->trace)
        return rc;
    snprintf(name, sizeof(name), "forward and backward %d", microbatch);
    plait_trace_span(mesh->trace, "compute", name, start);
    return 0;
}

void plait_captured_pass_reset(struct plait_captured_pass *p,
                               const struct plait_mesh *mesh)
{
    plait_graph_capture_reset(&p->capture, mesh);
}

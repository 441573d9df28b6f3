/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/parallel/captured_pass.h"

#include <stdlib.h>

/* A micro-batch's pass queues hundreds of operations, and with small ones the
 * host takes longer to queue them than the device to compute them. So the
 * second time that an equal pass is made, its operations are recorded as a
 * graph of the device, and from then on one call replays them
 * (runtime/mesh/graph_capture.h).
 *
 * A graph repeats the same operations on the same addresses with the same
 * numbers. What may differ from one micro-batch to the next must therefore be
 * in memory of the device before the replay: plait_captured_passes_run() loads
 * the tokens into the slot, and the graph reads them there. What is part of a
 * graph and may still change, which are the loss scale and the address of the
 * loss, makes it useless, and it is recorded again.
 *
 * A replay runs nothing on the host. The hooks that the model calls during a
 * pass (acquire, release, prefetch, grad_ready) therefore act when the pass is
 * recorded and not when it is replayed. So a pass has to leave the host's state
 * as it found it: queue_pass() ends with no transfer under way and nothing
 * prefetched. What grad_ready counts is another matter. Where the pass does not
 * reduce gradients, run_pass() calls it after the replay; where it does, it is
 * the last pass of the step, and plait_gradsync_begin() sets the counts back.
 * keep_state() and restore_state() undo the hooks' work if recording fails and
 * the pass has to be made after all.
 *
 * All ranks of a group that transfers during the pass must replay, record or
 * queue it alike; plait_graph_capture_run() sees to that. */

struct plait_captured_pass {
    struct plait_graph_capture capture;
    struct plait_pass pass;
    /* What the captured work uses besides the pass: */
    struct plait_model *model;
    struct plait_batch batch; /* already on the device */
    double *loss;
    int microbatch;
};

int plait_pass_forward(struct plait_model *model, const struct plait_pass *pass,
                       const struct plait_batch *batch, double *loss)
{
    return plait_model_forward(model,
                               &(struct plait_forward){.chunk = pass->chunk,
                                                       .slot = pass->slot,
                                                       .batch = batch,
                                                       .in = pass->in,
                                                       .out = pass->out,
                                                       .loss = loss,
                                                       .train = true});
}

int plait_pass_backward(struct plait_model *model,
                        const struct plait_pass *pass, int microbatch)
{
    struct plait_backward b = {.chunk = pass->chunk,
                               .slot = pass->slot,
                               .microbatch = microbatch,
                               .dout = pass->dout,
                               .din = pass->din};

    if (pass->half == PLAIT_BACKWARD_WEIGHT)
        return plait_model_backward_weight(model, &b);
    if (pass->half == PLAIT_BACKWARD_INPUT)
        return plait_model_backward_input(model, &b);
    return plait_model_backward(model, &b);
}

/* Ends with no transfer under way and no weights prefetched: a replay must not
 * depend on what the host does next. */
static int queue_pass(void *arg)
{
    struct plait_captured_pass *p = arg;
    const struct plait_pass *pass = &p->pass;
    struct plait_model *model = p->model;

    if (pass->forward) {
        plait_model_expect(model, pass->backward ? pass->chunk : -1, true);
        if (plait_pass_forward(model, pass, &p->batch, p->loss) < 0)
            return -1;
    }
    if (!pass->backward)
        return 0;
    plait_model_expect(model, -1, false);
    if (plait_pass_backward(model, pass, p->microbatch) < 0)
        return -1;
    return pass->reduces ? model->hooks.settle(model->hooks.arg) : 0;
}

static void keep_state(void *arg)
{
    const struct plait_model_hooks *hooks =
        &((struct plait_captured_pass *)arg)->model->hooks;

    if (hooks->keep)
        hooks->keep(hooks->arg);
}

static void restore_state(void *arg)
{
    const struct plait_model_hooks *hooks =
        &((struct plait_captured_pass *)arg)->model->hooks;

    if (hooks->restore)
        hooks->restore(hooks->arg);
}

/* A replay calls nothing on the host. So where the pass does not reduce
 * gradients, grad_ready is called after it for the regions of the chunk. */
static int run_pass(struct plait_captured_pass *p)
{
    struct plait_model *model = p->model;
    plait_region_fn ready = model->hooks.grad_ready;
    int rc;

    if (p->pass.reduces)
        return plait_graph_capture_run(&p->capture, model->mesh, queue_pass, p);
    model->hooks.grad_ready = NULL;
    rc = plait_graph_capture_run(&p->capture, model->mesh, queue_pass, p);
    model->hooks.grad_ready = ready;
    if (!p->pass.backward || p->pass.half == PLAIT_BACKWARD_INPUT)
        return rc;
    for (int i = model->nregions - 1; i >= 0 && rc == 0; i--)
        if (model->regions[i].chunk == p->pass.chunk)
            rc = ready(model->hooks.arg, &model->regions[i], p->microbatch);
    return rc;
}

/* While weights that the optimizer has updated are under way to this rank, the
 * pass is queued: it waits for each region where it first uses it, but a graph,
 * which cannot wait for what it has not started, for all of them before. */
static int run_or_queue(struct plait_captured_pass *p)
{
    const struct plait_model_hooks *hooks = &p->model->hooks;
    struct plait_graphs *graphs = &p->model->mesh->graphs;
    bool held = graphs->held;
    int rc;

    graphs->held = held || (hooks->awaits && hooks->awaits(hooks->arg));
    rc = run_pass(p);
    graphs->held = held;
    return rc;
}

static bool is_same(const struct plait_pass *a, const struct plait_pass *b)
{
    return a->forward == b->forward && a->backward == b->backward &&
           a->half == b->half && a->reduces == b->reduces &&
           a->chunk == b->chunk && a->slot == b->slot && a->in == b->in &&
           a->dout == b->dout && a->out == b->out && a->din == b->din;
}

/* Finds the pass, or adds it. NULL: out of memory. */
static struct plait_captured_pass *find_pass(struct plait_captured_passes *all,
                                             const struct plait_pass *pass)
{
    struct plait_captured_pass *p;

    for (int i = 0; i < all->n; i++)
        if (is_same(&all->pass[i].pass, pass))
            return &all->pass[i];
    p = realloc(all->pass, (all->n + 1) * sizeof(*p));
    if (!p)
        return NULL;
    all->pass = p;
    p += all->n++;
    *p = (struct plait_captured_pass){
        .capture = {.keep = keep_state, .restore = restore_state},
        .pass = *pass};
    return p;
}

int plait_captured_passes_run(struct plait_captured_passes *passes,
                              struct plait_model *model,
                              const struct plait_pass *pass, int microbatch,
                              const struct plait_batch *batch, double *loss)
{
    struct plait_captured_pass *p = find_pass(passes, pass);

    if (!p)
        return -1;
    if (p->batch.loss_scale != batch->loss_scale || p->loss != loss)
        plait_graph_capture_reset(&p->capture, model->mesh);
    if (pass->forward &&
        plait_model_load(model, pass->chunk, pass->slot, batch) < 0)
        return -1;
    p->model = model;
    p->microbatch = microbatch;
    p->batch = *batch;
    p->batch.tokens = p->batch.targets = p->batch.starts = NULL;
    p->loss = loss;
    return run_or_queue(p);
}

void plait_captured_passes_clear(struct plait_captured_passes *passes,
                                 const struct plait_mesh *mesh)
{
    for (int i = 0; i < passes->n; i++)
        plait_graph_capture_reset(&passes->pass[i].capture, mesh);
    free(passes->pass);
    *passes = (struct plait_captured_passes){.n = 0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/pipeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/comm/tags.h"
#include "runtime/parallel/captured_pass.h"
#include "runtime/parallel/slots.h"
#include "runtime/trace/activity.h"

/* The tensors that a chunk receives (in, dout) and sends (out, din) at its
 * boundaries. */
enum port { PORT_IN, PORT_OUT, PORT_DOUT, PORT_DIN, NPORTS };

/* Sends of a port that may be under way while the next is computed. */
#define SENDS 4

/* A boundary tensor and its transfer. */
struct buffer {
    void *data;
    struct plait_request *req;
};

/* The buffers of a port, for all chunks. The model needs an input only during
 * its pass, so far fewer than the micro-batches in flight are enough. */
struct buffers {
    struct plait_slots slots; /* n 0: this port is not used */
    struct buffer *buffer;    /* [slots.n] */
};

struct plait_pipeline {
    struct plait_model *model;
    struct plait_schedule *schedule;
    int stages; /* of the whole pipeline, chunks included */
    int microbatches;
    struct plait_slots slots; /* of the model: for all chunks together; in an
                               * image model, for each */
    struct buffers port[NPORTS];
    size_t boundary; /* elements of a buffer */
    struct plait_captured_passes captured;
};

static int stage_of(const struct plait_pipeline *pipe, int chunk)
{
    return chunk * pipe->schedule->stages + pipe->schedule->rank;
}

static bool has_port(const struct plait_pipeline *pipe, int chunk,
                     enum port port)
{
    int stage = stage_of(pipe, chunk);

    if (port == PORT_IN || port == PORT_DIN)
        return stage > 0;
    return stage < pipe->stages - 1;
}

/* -- messages ------------------------------------------------------------ */

/* NULL at the ends of the pipeline. */
static struct buffer *buffer_of(struct plait_pipeline *pipe, int chunk,
                                enum port port, int microbatch)
{
    const struct buffers *b = &pipe->port[port];

    if (!has_port(pipe, chunk, port))
        return NULL;
    return &b->buffer[b->slots.of[chunk * pipe->microbatches + microbatch]];
}

static void *data_of(struct buffer *buffer)
{
    return buffer ? buffer->data : NULL;
}

static int post_message(struct plait_pipeline *pipe, struct buffer *buffer,
                        int chunk, enum port port, int microbatch)
{
    struct plait_comm *comm = pipe->model->mesh->group[PLAIT_GROUP_PP];
    int p = pipe->schedule->stages, stage = stage_of(pipe, chunk);
    bool before = port == PORT_IN || port == PORT_DIN;
    bool backward = port == PORT_DOUT || port == PORT_DIN;
    int peer = (before ? stage - 1 : stage + 1) % p;
    int tag = plait_tag_boundary(pipe->stages, before ? stage - 1 : stage,
                                 backward, microbatch);
    struct plait_queue *q = pipe->model->mesh->q;
    const struct plait_buffers b = {buffer->data, buffer->data, pipe->boundary,
                                    pipe->model->type};

    if (port == PORT_IN || port == PORT_DOUT)
        return plait_comm_recv(comm, &b, peer, tag, q, &buffer->req);
    return plait_comm_send(comm, &b, peer, tag, q, &buffer->req);
}

static int wait_buffer(struct plait_pipeline *pipe, struct buffer *buffer)
{
    return buffer ? plait_comm_wait(&buffer->req, pipe->model->mesh->q) : 0;
}

/* -- actions ------------------------------------------------------------- */

/* Wait for the message that the pass reads, and for the last send from the
 * buffer that it writes, which may still be under way. */
static int wait_ports(struct plait_pipeline *pipe, int chunk, int microbatch,
                      enum port read, enum port written)
{
    if (wait_buffer(pipe, buffer_of(pipe, chunk, read, microbatch)) < 0)
        return -1;
    return wait_buffer(pipe, buffer_of(pipe, chunk, written, microbatch));
}

/* Whether gradients are reduced in this micro-batch: with ZeRO 2 and 3 in every
 * one, else in the last of a step, if other ranks share the weights. */
static bool reduces(const struct plait_pipeline *pipe, int microbatch)
{
    const int *size = pipe->model->mesh->layout.size;

    if (pipe->model->config->parallel.zero > 1)
        return true;
    return size[PLAIT_DP] * size[PLAIT_CP] > 1 &&
           microbatch == pipe->microbatches - 1;
}

/* Whether a pass of the chunk's forward leaves a gradient in a buffer that its
 * backward reduces: with ZeRO 2 and 3 the head's. Recorded work has the
 * buffer's address, so both must be made alike (captured_pass.h). */
static bool leaves_gradient(const struct plait_pipeline *pipe, int chunk)
{
    return pipe->model->config->parallel.zero > 1 &&
           !has_port(pipe, chunk, PORT_OUT);
}

/* The pass that begins with action `a`. With `joined` it includes the next
 * action, which is its backward. */
static struct plait_pass pass_of(struct plait_pipeline *pipe,
                                 const struct plait_action *a, bool joined)
{
    int c = a->chunk, m = a->microbatch;
    struct plait_pass pass = {
        .forward = a->kind == PLAIT_FORWARD,
        .chunk = c,
        .slot = pipe->slots.of[c * pipe->microbatches + m],
    };

    pass.backward = joined || !pass.forward;
    pass.half = joined ? PLAIT_BACKWARD : a->kind;
    if (pass.backward)
        pass.reduces = pass.half != PLAIT_BACKWARD_INPUT && reduces(pipe, m);
    if (pass.forward || leaves_gradient(pipe, c)) {
        pass.in = data_of(buffer_of(pipe, c, PORT_IN, m));
        pass.out = data_of(buffer_of(pipe, c, PORT_OUT, m));
    }
    if ((pass.backward && pass.half != PLAIT_BACKWARD_WEIGHT) ||
        leaves_gradient(pipe, c)) {
        pass.dout = data_of(buffer_of(pipe, c, PORT_DOUT, m));
        pass.din = data_of(buffer_of(pipe, c, PORT_DIN, m));
    }
    return pass;
}

static int run_pass(struct plait_pipeline *pipe, const struct plait_pass *pass,
                    bool captured, int microbatch,
                    const struct plait_batch *batch, double *loss)
{
    int chunk = pass->chunk;

    if (pass->forward &&
        wait_ports(pipe, chunk, microbatch, PORT_IN, PORT_OUT) < 0)
        return -1;
    if (pass->backward && pass->half != PLAIT_BACKWARD_WEIGHT &&
        wait_ports(pipe, chunk, microbatch, PORT_DOUT, PORT_DIN) < 0)
        return -1;
    if (captured)
        return plait_captured_passes_run(&pipe->captured, pipe->model, pass,
                                         microbatch, batch, loss);
    if (pass->forward)
        return plait_pass_forward(pipe->model, pass, batch, loss);
    return plait_pass_backward(pipe->model, pass, microbatch);
}

/* The port of a message; NPORTS for any other action. */
static enum port port_of(enum plait_action_kind kind)
{
    switch (kind) {
    case PLAIT_SEND_FORWARD:
        return PORT_OUT;
    case PLAIT_RECV_FORWARD:
        return PORT_IN;
    case PLAIT_SEND_BACKWARD:
        return PORT_DIN;
    case PLAIT_RECV_BACKWARD:
        return PORT_DOUT;
    default:
        return NPORTS;
    }
}

static bool is_message(const struct plait_action *a)
{
    return port_of(a->kind) < NPORTS;
}

static int run_message(struct plait_pipeline *pipe,
                       const struct plait_action *a)
{
    static const struct plait_doing message = {.range = "pipeline"};
    enum port port = port_of(a->kind);
    struct plait_activity activity =
        plait_activity_begin(&pipe->model->mesh->listeners, &message);
    int rc;

    rc = post_message(pipe, buffer_of(pipe, a->chunk, port, a->microbatch),
                      a->chunk, port, a->microbatch);
    plait_activity_drop(&activity);
    return rc;
}

static int run_compute(struct plait_pipeline *pipe,
                       const struct plait_action *a,
                       const struct plait_pass *pass, bool captured,
                       const struct plait_batch *batch, double *loss)
{
    static const char *const names[PLAIT_NACTIONS] = {
        [PLAIT_FORWARD] = "forward",
        [PLAIT_BACKWARD] = "backward",
        [PLAIT_BACKWARD_INPUT] = "input gradient",
        [PLAIT_BACKWARD_WEIGHT] = "weight gradient",
    };
    const struct plait_mesh *mesh = pipe->model->mesh;
    bool both = pass->forward && pass->backward;
    const char *what = both ? "forward and backward" : names[a->kind];
    char name[64] = "";
    const struct plait_doing doing = {
        .phase = pass->forward ? PLAIT_PHASE_FORWARD : PLAIT_PHASE_BACKWARD,
        .track = "compute",
        .name = name,
        .range = what,
    };
    struct plait_activity activity;
    int rc;

    if (mesh->listeners.trace)
        snprintf(name, sizeof(name), "%s %d.%d", what, a->chunk, a->microbatch);
    activity = plait_activity_begin(&mesh->listeners, &doing);
    rc = run_pass(pipe, pass, captured, a->microbatch, &batch[a->microbatch],
                  loss);
    if (rc < 0)
        plait_activity_drop(&activity);
    else
        plait_activity_end(&activity);
    return rc;
}

/* Tell the model what it will compute next, after action `i`. */
static void expect_next(struct plait_pipeline *pipe, int i)
{
    const struct plait_schedule *s = pipe->schedule;

    do
        i++;
    while (i < s->nactions && is_message(&s->actions[i]));
    if (i < s->nactions)
        plait_model_expect(pipe->model, s->actions[i].chunk,
                           s->actions[i].kind != PLAIT_FORWARD);
    else
        plait_model_expect(pipe->model, -1, false);
}

/* Wait until all sends have left their buffers. */
static int wait_sends(struct plait_pipeline *pipe)
{
    for (int port = 0; port < NPORTS; port++)
        for (int i = 0; i < pipe->port[port].slots.n; i++)
            if (wait_buffer(pipe, &pipe->port[port].buffer[i]) < 0)
                return -1;
    return 0;
}

/* -- a step -------------------------------------------------------------- */

/* Whether action i is a forward whose backward is the next action. */
static bool is_joined(const struct plait_pipeline *pipe, int i)
{
    const struct plait_action *a = &pipe->schedule->actions[i];

    return a->kind == PLAIT_FORWARD && i + 1 < pipe->schedule->nactions &&
           a[1].kind == PLAIT_BACKWARD && a[1].chunk == a->chunk &&
           a[1].microbatch == a->microbatch;
}

/* Compute what action `i` starts. Returns the number of actions done, or -1.
 * With captured passes the model must not prefetch weights, so it is not told
 * what comes next. */
static int compute(struct plait_pipeline *pipe, int i,
                   const struct plait_batch *batch, double *loss)
{
    const struct plait_graphs *g = &pipe->model->mesh->graphs;
    const struct plait_action *a = &pipe->schedule->actions[i];
    struct plait_pass pass = pass_of(pipe, a, g->passes && is_joined(pipe, i));
    bool captured =
        g->passes &&
        (g->last || !(pass.reduces || leaves_gradient(pipe, pass.chunk)));

    if (!captured)
        pass = pass_of(pipe, a, false);
    if (!g->passes)
        expect_next(pipe, i);
    if (run_compute(pipe, a, &pass, captured, batch, loss) < 0)
        return -1;
    return pass.forward + pass.backward;
}

int plait_pipeline_train(struct plait_pipeline *pipe,
                         const struct plait_batch *batch, double *loss)
{
    struct plait_comm *comm = pipe->model->mesh->group[PLAIT_GROUP_PP];
    const struct plait_action *a = pipe->schedule->actions;
    int n = pipe->schedule->nactions, made;

    for (int i = 0; i < n; i += made) {
        made = is_message(&a[i]) ? run_message(pipe, &a[i]) + 1
                                 : compute(pipe, i, batch, loss);
        if (made < 1)
            return -1;
        /* Start consecutive messages as one group. */
        if (is_message(&a[i]) && (i + 1 == n || !is_message(&a[i + 1])) &&
            plait_comm_progress(comm) < 0)
            return -1;
    }
    return wait_sends(pipe);
}

/* Forward of one chunk of one micro-batch, with its messages. Only one is under
 * way at a time, so the first buffer of each port is enough. */
static int eval_chunk(struct plait_pipeline *pipe, int chunk, int microbatch,
                      const struct plait_batch *batch, double *loss)
{
    struct plait_forward f = {.chunk = chunk, .batch = batch, .loss = loss};
    struct buffer *in = NULL, *out = NULL;

    if (has_port(pipe, chunk, PORT_IN)) {
        in = &pipe->port[PORT_IN].buffer[0];
        if (post_message(pipe, in, chunk, PORT_IN, microbatch) < 0)
            return -1;
    }
    if (has_port(pipe, chunk, PORT_OUT))
        out = &pipe->port[PORT_OUT].buffer[0];
    f.in = data_of(in);
    f.out = data_of(out);
    if (wait_buffer(pipe, in) < 0 || wait_buffer(pipe, out) < 0 ||
        plait_model_forward(pipe->model, &f) < 0)
        return -1;
    return out ? post_message(pipe, out, chunk, PORT_OUT, microbatch) : 0;
}

int plait_pipeline_eval(struct plait_pipeline *pipe,
                        const struct plait_batch *batch, int n, double *loss)
{
    for (int i = 0; i < n; i++)
        for (int chunk = 0; chunk < pipe->model->chunks; chunk++)
            if (eval_chunk(pipe, chunk, i, &batch[i], loss) < 0)
                return -1;
    return wait_sends(pipe);
}

/* -- life ---------------------------------------------------------------- */

static int assign_slots(struct plait_pipeline *pipe)
{
    const struct plait_schedule *schedule = pipe->schedule;
    size_t n = (size_t)schedule->chunks * pipe->microbatches;
    struct plait_slot_use in = {.first = PLAIT_RECV_FORWARD,
                                .last = PLAIT_FORWARD,
                                .other = PLAIT_FORWARD,
                                .shared = true};
    struct plait_slot_use dout = {.first = PLAIT_RECV_BACKWARD,
                                  .last = PLAIT_BACKWARD,
                                  .other = PLAIT_BACKWARD_INPUT,
                                  .shared = true};
    struct plait_slot_use model = {.first = PLAIT_FORWARD,
                                   .last = PLAIT_BACKWARD,
                                   .other = PLAIT_BACKWARD_WEIGHT};

    /* Chunks of an image model differ too much in size to share memory. */
    model.shared = !plait_is_image_model(&pipe->model->config->model);
    pipe->slots.of = calloc(n, sizeof(*pipe->slots.of));
    if (!pipe->slots.of)
        return -1;
    for (int port = 0; port < NPORTS; port++) {
        pipe->port[port].slots.of = calloc(n, sizeof(int));
        if (!pipe->port[port].slots.of)
            return -1;
    }
    if (plait_slots_assign(schedule, &in, &pipe->port[PORT_IN].slots) < 0 ||
        plait_slots_assign(schedule, &dout, &pipe->port[PORT_DOUT].slots) < 0 ||
        plait_slots_assign(schedule, &model, &pipe->slots) < 0)
        return -1;
    plait_slots_follow(schedule, PLAIT_SEND_FORWARD, &pipe->slots, SENDS,
                       &pipe->port[PORT_OUT].slots);
    plait_slots_follow(schedule, PLAIT_SEND_BACKWARD, &pipe->slots, SENDS,
                       &pipe->port[PORT_DIN].slots);
    return 0;
}

static int make_buffers(struct plait_pipeline *pipe)
{
    struct plait_mesh *mesh = pipe->model->mesh;
    size_t bytes = pipe->boundary * plait_dtype_size(pipe->model->type);

    for (int port = 0; port < NPORTS; port++) {
        struct buffers *b = &pipe->port[port];

        b->buffer = calloc(b->slots.n + 1, sizeof(*b->buffer));
        if (!b->buffer)
            return -1;
        for (int i = 0; i < b->slots.n; i++) {
            b->buffer[i].data = mesh->ops->alloc(mesh->dev, bytes);
            if (!b->buffer[i].data)
                return -1;
        }
    }
    return 0;
}

struct plait_pipeline *plait_pipeline_create(struct plait_model *model,
                                             int microbatches, int micro_batch,
                                             struct plait_error *err)
{
    const struct plait_parallel_config *c = &model->config->parallel;
    struct plait_pipeline *pipe = calloc(1, sizeof(*pipe));
    int p = model->mesh->layout.size[PLAIT_PP];

    if (!pipe)
        goto no_memory;
    pipe->model = model;
    pipe->microbatches = microbatches;
    pipe->stages = p * model->chunks;
    pipe->boundary = plait_model_boundary(model, micro_batch);
    pipe->schedule = plait_schedule_create(
        &(struct plait_schedule_form){c->schedule, p, model->chunks,
                                      microbatches},
        model->mesh->coord.at[PLAIT_PP], err);
    if (!pipe->schedule)
        goto error;
    if (assign_slots(pipe) < 0)
        goto no_memory;
    if (plait_model_reserve(model, pipe->slots.n, micro_batch, err) < 0)
        goto error;
    if (make_buffers(pipe) < 0)
        goto no_memory;
    return pipe;

no_memory:
    plait_errorf(err, "out of memory for the pipeline's buffers");
    errno = ENOMEM;
error:
    plait_pipeline_destroy(pipe);
    return NULL;
}

void plait_pipeline_destroy(struct plait_pipeline *pipe)
{
    struct plait_mesh *mesh;
    int saved = errno;

    if (!pipe)
        return;
    mesh = pipe->model->mesh;
    plait_captured_passes_clear(&pipe->captured, mesh);
    for (int port = 0; port < NPORTS; port++) {
        struct buffers *b = &pipe->port[port];

        for (int i = 0; b->buffer && i < b->slots.n; i++)
            mesh->ops->free(mesh->dev, b->buffer[i].data);
        free(b->buffer);
        free(b->slots.of);
    }
    free(pipe->slots.of);
    plait_schedule_destroy(pipe->schedule);
    free(pipe);
    errno = saved;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/pipeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/comm/trace.h"
#include "runtime/parallel/replay.h"

/* What crosses a stage's ends. */
enum port { PORT_IN, PORT_OUT, PORT_DOUT, PORT_DIN, NPORTS };

/* Messages that may still be on their way out of a port while the next one is
 * computed. */
#define SENDS 4

/* A boundary tensor and its transfer. */
struct buffer {
    void *data;
    struct plait_request *req;
};

/* The buffers of a port, for all chunks. The model keeps no input beyond its
 * pass, so there are far fewer than micro-batches in flight. */
struct buffers {
    int n; /* 0 where nothing crosses here */
    struct buffer *buffer;
    int *of; /* [chunks][microbatches] which one a message uses */
};

/* Forward and backward of a micro-batch, to be recorded: what they get. */
struct recorded {
    struct plait_replay replay;
    struct plait_model *model;
    struct plait_batch batch; /* already on the device */
    double *loss;
    int microbatch;
    bool travel; /* gradients travel meanwhile */
};

struct plait_pipeline {
    struct plait_model *model;
    struct plait_schedule *schedule;
    int stages; /* of the whole pipeline, chunks included */
    int microbatches;
    int nslots;   /* per chunk */
    int *slot_of; /* [chunks][microbatches] */
    struct buffers port[NPORTS];
    size_t boundary;            /* elements of a buffer */
    struct recorded pass, last; /* last: where gradients travel in the last
                                   micro-batch of a step alone */
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

/* Names a message by the stage boundary it crosses, which way, and whose it
 * is. */
static int tag_of(const struct plait_pipeline *pipe, int boundary,
                  bool backward, int microbatch)
{
    return (microbatch * pipe->stages + boundary) * 2 + backward;
}

/* NULL at the ends of the pipeline. */
static struct buffer *buffer_of(struct plait_pipeline *pipe, int chunk,
                                enum port port, int microbatch)
{
    const struct buffers *b = &pipe->port[port];

    if (!has_port(pipe, chunk, port))
        return NULL;
    return &b->buffer[b->of[chunk * pipe->microbatches + microbatch]];
}

static void *data_of(struct buffer *buffer)
{
    return buffer ? buffer->data : NULL;
}

static int post(struct plait_pipeline *pipe, struct buffer *buffer, int chunk,
                enum port port, int microbatch)
{
    struct plait_comm *comm = pipe->model->par->group[PLAIT_GROUP_PP];
    int p = pipe->schedule->stages, stage = stage_of(pipe, chunk);
    bool before = port == PORT_IN || port == PORT_DIN;
    bool backward = port == PORT_DOUT || port == PORT_DIN;
    int peer = (before ? stage - 1 : stage + 1) % p;
    int tag = tag_of(pipe, before ? stage - 1 : stage, backward, microbatch);
    struct plait_queue *q = pipe->model->par->q;
    enum plait_dtype type = pipe->model->type;

    if (port == PORT_IN || port == PORT_DOUT)
        return plait_comm_recv(comm, buffer->data, pipe->boundary, type, peer,
                               tag, q, &buffer->req);
    return plait_comm_send(comm, buffer->data, pipe->boundary, type, peer, tag,
                           q, &buffer->req);
}

static int wait_buffer(struct plait_pipeline *pipe, struct buffer *buffer)
{
    return buffer ? plait_comm_wait(&buffer->req, pipe->model->par->q) : 0;
}

/* -- actions ------------------------------------------------------------- */

static int forward(struct plait_pipeline *pipe, struct buffer *in,
                   struct buffer *out, int chunk, int slot,
                   const struct plait_batch *batch, double *loss, bool train)
{
    /* The message before in this buffer may still be on its way out. */
    if (wait_buffer(pipe, in) < 0 || wait_buffer(pipe, out) < 0)
        return -1;
    return plait_model_forward(pipe->model, chunk, slot, batch, data_of(in),
                               data_of(out), loss, train);
}

static int backward(struct plait_pipeline *pipe, int slot,
                    const struct plait_action *a)
{
    struct plait_model *model = pipe->model;
    struct buffer *dout, *din;

    if (a->kind == PLAIT_BACKWARD_WEIGHT)
        return plait_model_backward_weight(model, a->chunk, slot,
                                           a->microbatch);
    dout = buffer_of(pipe, a->chunk, PORT_DOUT, a->microbatch);
    din = buffer_of(pipe, a->chunk, PORT_DIN, a->microbatch);
    if (wait_buffer(pipe, dout) < 0 || wait_buffer(pipe, din) < 0)
        return -1;
    if (a->kind == PLAIT_BACKWARD)
        return plait_model_backward(model, a->chunk, slot, a->microbatch,
                                    data_of(dout), data_of(din));
    return plait_model_backward_input(model, a->chunk, slot, a->microbatch,
                                      data_of(dout), data_of(din));
}

/* The port of a message, NPORTS of anything else. */
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

static int do_action(struct plait_pipeline *pipe, const struct plait_action *a,
                     const struct plait_batch *batch, double *loss)
{
    int slot = pipe->slot_of[a->chunk * pipe->microbatches + a->microbatch];
    enum port port = port_of(a->kind);

    if (port < NPORTS)
        return post(pipe, buffer_of(pipe, a->chunk, port, a->microbatch),
                    a->chunk, port, a->microbatch);
    if (a->kind == PLAIT_FORWARD)
        return forward(pipe, buffer_of(pipe, a->chunk, PORT_IN, a->microbatch),
                       buffer_of(pipe, a->chunk, PORT_OUT, a->microbatch),
                       a->chunk, slot, &batch[a->microbatch], loss, true);
    return backward(pipe, slot, a);
}

static bool is_message(const struct plait_action *a)
{
    return port_of(a->kind) < NPORTS;
}

static int act(struct plait_pipeline *pipe, const struct plait_action *a,
               const struct plait_batch *batch, double *loss)
{
    static const char *const names[PLAIT_NACTIONS] = {
        [PLAIT_FORWARD] = "forward",
        [PLAIT_BACKWARD] = "backward",
        [PLAIT_BACKWARD_INPUT] = "input gradient",
        [PLAIT_BACKWARD_WEIGHT] = "weight gradient",
    };
    const struct plait_parallel *par = pipe->model->par;
    struct plait_trace *trace = par->trace;
    double start = plait_trace_now();
    char name[64];
    int rc;

    plait_range_begin(par->ops, is_message(a) ? "pipeline" : names[a->kind]);
    rc = do_action(pipe, a, batch, loss);
    plait_range_end(par->ops);
    if (rc < 0)
        return -1;
    if (!trace || is_message(a))
        return 0;
    snprintf(name, sizeof(name), "%s %d.%d", names[a->kind], a->chunk,
             a->microbatch);
    plait_trace_span(trace, "compute", name, start);
    return 0;
}

/* Tell the model what it will compute after action `i`. */
static void announce(struct plait_pipeline *pipe, int i)
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

/* What was sent has left its buffers. */
static int drain(struct plait_pipeline *pipe)
{
    int i, port;

    for (port = 0; port < NPORTS; port++)
        for (i = 0; i < pipe->port[port].n; i++)
            if (wait_buffer(pipe, &pipe->port[port].buffer[i]) < 0)
                return -1;
    return 0;
}

/* -- recorded ------------------------------------------------------------ */

/* It ends with nothing under way and nothing fetched for later. */
static int queue_pass(void *arg)
{
    struct recorded *r = arg;
    struct plait_model *model = r->model;

    plait_model_expect(model, 0, true);
    if (plait_model_forward(model, 0, 0, &r->batch, NULL, NULL, r->loss, true) <
        0)
        return -1;
    plait_model_expect(model, -1, false);
    if (plait_model_backward(model, 0, 0, r->microbatch, NULL, NULL) < 0)
        return -1;
    return r->travel ? model->hooks.settle(model->hooks.arg) : 0;
}

/* Where gradients do not travel, their owner is told after the pass: a
 * recorded one does nothing on the host. */
static int run_pass(struct recorded *r)
{
    struct plait_model *model = r->model;
    plait_region_fn ready = model->hooks.grad_ready;
    int rc, i;

    if (r->travel)
        return plait_replay_run(&r->replay, model->par, queue_pass, r);
    model->hooks.grad_ready = NULL;
    rc = plait_replay_run(&r->replay, model->par, queue_pass, r);
    model->hooks.grad_ready = ready;
    for (i = model->nregions - 1; i >= 0 && rc == 0; i--)
        rc = ready(model->hooks.arg, &model->regions[i], r->microbatch);
    return rc;
}

/* Gradients travel in each pass with ZeRO 2 and 3, else in the last one, if
 * other ranks share the weights. */
static struct recorded *recording_of(struct plait_pipeline *pipe,
                                     int microbatch)
{
    const struct plait_model *model = pipe->model;
    const int *size = model->par->layout.size;
    bool shared = size[PLAIT_DP] * size[PLAIT_CP] > 1;
    bool each = model->config->parallel.zero > 1;
    bool last = shared && !each && microbatch == pipe->microbatches - 1;
    struct recorded *r = last ? &pipe->last : &pipe->pass;

    r->model = pipe->model;
    r->travel = last || each;
    r->microbatch = microbatch;
    return r;
}

/* The loss scale is a number inside the recording. */
static int repeat(struct plait_pipeline *pipe, int microbatch,
                  const struct plait_batch *batch, double *loss)
{
    struct recorded *r = recording_of(pipe, microbatch);
    struct plait_parallel *par = pipe->model->par;
    double start = plait_trace_now();
    char name[64];
    int rc;

    if (r->batch.loss_scale != batch->loss_scale || r->loss != loss)
        plait_replay_forget(&r->replay, par);
    if (plait_model_load(pipe->model, 0, 0, batch) < 0)
        return -1;
    r->batch = *batch;
    r->batch.tokens = r->batch.targets = NULL;
    r->loss = loss;
    plait_range_begin(par->ops, "forward and backward");
    rc = run_pass(r);
    plait_range_end(par->ops);
    if (rc < 0 || !par->trace)
        return rc;
    snprintf(name, sizeof(name), "forward and backward %d", microbatch);
    plait_trace_span(par->trace, "compute", name, start);
    return 0;
}

/* Whether this forward and the backward behind it are recorded. */
static bool is_recorded(const struct plait_pipeline *pipe,
                        const struct plait_action *a)
{
    const struct plait_graphs *g = &pipe->model->par->graphs;

    return g->passes && a->kind == PLAIT_FORWARD &&
           (g->last || a->microbatch < pipe->microbatches - 1);
}

/* -- a step -------------------------------------------------------------- */

int plait_pipeline_train(struct plait_pipeline *pipe,
                         const struct plait_batch *batch, double *loss)
{
    struct plait_comm *comm = pipe->model->par->group[PLAIT_GROUP_PP];
    const struct plait_action *a = pipe->schedule->actions;
    int i, n = pipe->schedule->nactions;

    for (i = 0; i < n; i++) {
        if (is_recorded(pipe, &a[i])) {
            if (repeat(pipe, a[i].microbatch, &batch[a[i].microbatch], loss) <
                0)
                return -1;
            i++; /* its backward */
            continue;
        }
        announce(pipe, i);
        if (act(pipe, &a[i], batch, loss) < 0)
            return -1;
        /* Messages side by side are one group; here it ends. */
        if (is_message(&a[i]) && (i + 1 == n || !is_message(&a[i + 1])) &&
            plait_comm_progress(comm) < 0)
            return -1;
    }
    return drain(pipe);
}

/* One chunk of one micro-batch, with the messages around it. One at a time:
 * the first buffer of each port will do. */
static int pass(struct plait_pipeline *pipe, int chunk, int microbatch,
                const struct plait_batch *batch, double *loss)
{
    struct buffer *in = NULL, *out = NULL;

    if (has_port(pipe, chunk, PORT_IN)) {
        in = &pipe->port[PORT_IN].buffer[0];
        if (post(pipe, in, chunk, PORT_IN, microbatch) < 0)
            return -1;
    }
    if (has_port(pipe, chunk, PORT_OUT))
        out = &pipe->port[PORT_OUT].buffer[0];
    if (forward(pipe, in, out, chunk, 0, batch, loss, false) < 0)
        return -1;
    return out ? post(pipe, out, chunk, PORT_OUT, microbatch) : 0;
}

int plait_pipeline_eval(struct plait_pipeline *pipe,
                        const struct plait_batch *batch, double *loss)
{
    int chunk, i;

    for (i = 0; i < pipe->microbatches; i++)
        for (chunk = 0; chunk < pipe->model->chunks; chunk++)
            if (pass(pipe, chunk, i, &batch[i], loss) < 0)
                return -1;
    return drain(pipe);
}

int plait_pipeline_logits(struct plait_pipeline *pipe,
                          const struct plait_batch *batch, float *logits)
{
    struct buffer *in = NULL;
    int chunk;

    for (chunk = 0; chunk < pipe->model->chunks; chunk++) {
        if (has_port(pipe, chunk, PORT_OUT)) {
            if (pass(pipe, chunk, 0, batch, NULL) < 0)
                return -1;
            continue;
        }
        if (has_port(pipe, chunk, PORT_IN)) {
            in = &pipe->port[PORT_IN].buffer[0];
            if (post(pipe, in, chunk, PORT_IN, 0) < 0 ||
                wait_buffer(pipe, in) < 0)
                return -1;
        }
        if (plait_model_logits(pipe->model, chunk, 0, batch, data_of(in),
                               logits) < 0)
            return -1;
    }
    return drain(pipe);
}

/* -- life ---------------------------------------------------------------- */

/* Number what lives from an action of kind `first` to one of kind `last` or
 * `other` (the same where there is no other) by the lowest number that is
 * free. Fills of[chunks][microbatches]; *n counts the numbers: per chunk, or
 * `shared` by all. */
static int number(struct plait_pipeline *pipe, enum plait_action_kind first,
                  enum plait_action_kind last, enum plait_action_kind other,
                  bool shared, int *of, int *n)
{
    const struct plait_schedule *s = pipe->schedule;
    int m = s->microbatches, i, k;
    bool *taken = calloc((size_t)s->chunks * m, sizeof(*taken));

    if (!taken)
        return -1;
    for (i = 0; i < s->chunks * m; i++)
        of[i] = -1;
    for (i = 0; i < s->nactions; i++) {
        const struct plait_action *a = &s->actions[i];
        int *at = &of[a->chunk * m + a->microbatch];
        bool *group = taken + (shared ? 0 : a->chunk * m);

        if (a->kind == first) {
            for (k = 0; group[k]; k++)
                ;
            *at = k;
            group[k] = true;
            if (k >= *n)
                *n = k + 1;
        } else if ((a->kind == last || a->kind == other) && *at >= 0) {
            group[*at] = false;
        }
    }
    free(taken);
    return 0;
}

/* Messages out go through their buffers in turn. */
static void number_sends(struct plait_pipeline *pipe,
                         enum plait_action_kind kind, struct buffers *port)
{
    const struct plait_schedule *s = pipe->schedule;
    int i, sent = 0;

    for (i = 0; i < s->nactions; i++) {
        const struct plait_action *a = &s->actions[i];

        if (a->kind == kind)
            port->of[a->chunk * s->microbatches + a->microbatch] =
                sent++ % SENDS;
    }
    port->n = sent < SENDS ? sent : SENDS;
}

static int number_all(struct plait_pipeline *pipe)
{
    size_t n = (size_t)pipe->schedule->chunks * pipe->microbatches;
    struct buffers *in = &pipe->port[PORT_IN], *dout = &pipe->port[PORT_DOUT];
    int port;

    pipe->slot_of = calloc(n, sizeof(*pipe->slot_of));
    if (!pipe->slot_of)
        return -1;
    for (port = 0; port < NPORTS; port++) {
        pipe->port[port].of = calloc(n, sizeof(*pipe->port[port].of));
        if (!pipe->port[port].of)
            return -1;
    }
    number_sends(pipe, PLAIT_SEND_FORWARD, &pipe->port[PORT_OUT]);
    number_sends(pipe, PLAIT_SEND_BACKWARD, &pipe->port[PORT_DIN]);
    if (number(pipe, PLAIT_RECV_FORWARD, PLAIT_FORWARD, PLAIT_FORWARD, true,
               in->of, &in->n) < 0 ||
        number(pipe, PLAIT_RECV_BACKWARD, PLAIT_BACKWARD, PLAIT_BACKWARD_INPUT,
               true, dout->of, &dout->n) < 0)
        return -1;
    return number(pipe, PLAIT_FORWARD, PLAIT_BACKWARD, PLAIT_BACKWARD_WEIGHT,
                  false, pipe->slot_of, &pipe->nslots);
}

static int make_buffers(struct plait_pipeline *pipe)
{
    struct plait_parallel *par = pipe->model->par;
    size_t bytes = pipe->boundary * plait_dtype_size(pipe->model->type);
    int i, port;

    for (port = 0; port < NPORTS; port++) {
        struct buffers *b = &pipe->port[port];

        b->buffer = calloc(b->n + 1, sizeof(*b->buffer));
        if (!b->buffer)
            return -1;
        for (i = 0; i < b->n; i++) {
            b->buffer[i].data = par->ops->alloc(par->dev, bytes);
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
    int p = model->par->layout.size[PLAIT_PP];

    if (!pipe)
        goto no_memory;
    pipe->model = model;
    pipe->microbatches = microbatches;
    pipe->stages = p * model->chunks;
    pipe->boundary = plait_model_boundary(model, micro_batch);
    pipe->schedule =
        plait_schedule_create(c->schedule, p, model->chunks, microbatches,
                              model->par->coord.at[PLAIT_PP], err);
    if (!pipe->schedule)
        goto error;
    if (number_all(pipe) < 0)
        goto no_memory;
    if (plait_model_reserve(model, pipe->nslots, micro_batch, err) < 0)
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
    struct plait_parallel *par;
    int saved = errno;
    int i, port;

    if (!pipe)
        return;
    par = pipe->model->par;
    plait_replay_forget(&pipe->pass.replay, par);
    plait_replay_forget(&pipe->last.replay, par);
    for (port = 0; port < NPORTS; port++) {
        struct buffers *b = &pipe->port[port];

        for (i = 0; b->buffer && i < b->n; i++)
            par->ops->free(par->dev, b->buffer[i].data);
        free(b->buffer);
        free(b->of);
    }
    free(pipe->slot_of);
    plait_schedule_destroy(pipe->schedule);
    free(pipe);
    errno = saved;
}

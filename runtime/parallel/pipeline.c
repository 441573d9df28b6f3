/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/pipeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/comm/trace.h"

/* What crosses a stage's ends. */
enum port { PORT_IN, PORT_OUT, PORT_DOUT, PORT_DIN, NPORTS };

/* The buffers of one micro-batch in flight on one chunk. They live as long
 * as its activations: the model may read its input again in backward. */
struct slot {
    void *buffer[NPORTS]; /* NULL at the ends of the pipeline */
    struct plait_request *req[NPORTS];
};

struct plait_pipeline {
    struct plait_model *model;
    struct plait_schedule *schedule;
    int stages; /* of the whole pipeline, chunks included */
    int microbatches;
    int nslots;         /* per chunk */
    struct slot *slot;  /* [chunks][nslots] */
    int *slot_of;       /* [chunks][microbatches] */
    size_t boundary;    /* elements of a buffer */
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

static int post(struct plait_pipeline *pipe, struct slot *slot, int chunk,
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
    void *buffer = slot->buffer[port];

    if (port == PORT_IN || port == PORT_DOUT)
        return plait_comm_recv(comm, buffer, pipe->boundary, type, peer, tag,
                               q, &slot->req[port]);
    return plait_comm_send(comm, buffer, pipe->boundary, type, peer, tag, q,
                           &slot->req[port]);
}

static int wait_port(struct plait_pipeline *pipe, struct slot *slot,
                     enum port port)
{
    return plait_comm_wait(&slot->req[port], pipe->model->par->q);
}

/* -- actions ------------------------------------------------------------- */

static int forward(struct plait_pipeline *pipe, struct slot *slot, int chunk,
                   int index, const struct plait_batch *batch, double *loss,
                   bool train)
{
    /* The output of the micro-batch that had this slot may still be on its
     * way out. */
    if (wait_port(pipe, slot, PORT_IN) < 0 ||
        wait_port(pipe, slot, PORT_OUT) < 0)
        return -1;
    return plait_model_forward(pipe->model, chunk, index, batch,
                               slot->buffer[PORT_IN], slot->buffer[PORT_OUT],
                               loss, train);
}

static int backward(struct plait_pipeline *pipe, struct slot *slot, int index,
                    const struct plait_action *a)
{
    struct plait_model *model = pipe->model;
    const void *dout = slot->buffer[PORT_DOUT];
    void *din = slot->buffer[PORT_DIN];

    if (a->kind == PLAIT_BACKWARD_WEIGHT)
        return plait_model_backward_weight(model, a->chunk, index,
                                           a->microbatch);
    if (wait_port(pipe, slot, PORT_DOUT) < 0 ||
        wait_port(pipe, slot, PORT_DIN) < 0)
        return -1;
    if (a->kind == PLAIT_BACKWARD)
        return plait_model_backward(model, a->chunk, index, a->microbatch,
                                    dout, din);
    return plait_model_backward_input(model, a->chunk, index, a->microbatch,
                                      dout, din);
}

static int do_action(struct plait_pipeline *pipe,
                     const struct plait_action *a,
                     const struct plait_batch *batch, double *loss)
{
    int index = pipe->slot_of[a->chunk * pipe->microbatches + a->microbatch];
    struct slot *slot = &pipe->slot[a->chunk * pipe->nslots + index];

    switch (a->kind) {
    case PLAIT_FORWARD:
        return forward(pipe, slot, a->chunk, index, &batch[a->microbatch],
                       loss, true);
    case PLAIT_BACKWARD:
    case PLAIT_BACKWARD_INPUT:
    case PLAIT_BACKWARD_WEIGHT:
        return backward(pipe, slot, index, a);
    case PLAIT_SEND_FORWARD:
        return post(pipe, slot, a->chunk, PORT_OUT, a->microbatch);
    case PLAIT_RECV_FORWARD:
        return post(pipe, slot, a->chunk, PORT_IN, a->microbatch);
    case PLAIT_SEND_BACKWARD:
        return post(pipe, slot, a->chunk, PORT_DIN, a->microbatch);
    case PLAIT_RECV_BACKWARD:
        return post(pipe, slot, a->chunk, PORT_DOUT, a->microbatch);
    case PLAIT_NACTIONS:
        break;
    }
    errno = EINVAL;
    return -1;
}

static bool is_message(const struct plait_action *a)
{
    return a->kind == PLAIT_SEND_FORWARD || a->kind == PLAIT_RECV_FORWARD ||
           a->kind == PLAIT_SEND_BACKWARD || a->kind == PLAIT_RECV_BACKWARD;
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
    struct plait_trace *trace = pipe->model->par->trace;
    double start = plait_trace_now();
    char name[64];

    if (do_action(pipe, a, batch, loss) < 0)
        return -1;
    if (!trace || is_message(a))
        return 0;
    snprintf(name, sizeof(name), "%s %d.%d", names[a->kind], a->chunk,
             a->microbatch);
    plait_trace_span(trace, "compute", name, start);
    return 0;
}

/* What was sent has left its buffers. */
static int drain(struct plait_pipeline *pipe)
{
    int i, port;

    for (i = 0; i < pipe->nslots * pipe->model->chunks; i++)
        for (port = 0; port < NPORTS; port++)
            if (wait_port(pipe, &pipe->slot[i], port) < 0)
                return -1;
    return 0;
}

int plait_pipeline_train(struct plait_pipeline *pipe,
                         const struct plait_batch *batch, double *loss)
{
    struct plait_comm *comm = pipe->model->par->group[PLAIT_GROUP_PP];
    const struct plait_action *a = pipe->schedule->actions;
    int i, n = pipe->schedule->nactions;

    for (i = 0; i < n; i++) {
        if (act(pipe, &a[i], batch, loss) < 0)
            return -1;
        /* Messages side by side are one group; here it ends. */
        if (is_message(&a[i]) && (i + 1 == n || !is_message(&a[i + 1])) &&
            plait_comm_progress(comm) < 0)
            return -1;
    }
    return drain(pipe);
}

/* One chunk of one micro-batch, with the messages around it. */
static int pass(struct plait_pipeline *pipe, int chunk, int microbatch,
                const struct plait_batch *batch, double *loss)
{
    struct slot *slot = &pipe->slot[chunk * pipe->nslots];

    if (has_port(pipe, chunk, PORT_IN) &&
        post(pipe, slot, chunk, PORT_IN, microbatch) < 0)
        return -1;
    if (forward(pipe, slot, chunk, 0, batch, loss, false) < 0)
        return -1;
    if (has_port(pipe, chunk, PORT_OUT))
        return post(pipe, slot, chunk, PORT_OUT, microbatch);
    return 0;
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
    int chunk;

    for (chunk = 0; chunk < pipe->model->chunks; chunk++) {
        struct slot *slot = &pipe->slot[chunk * pipe->nslots];

        if (has_port(pipe, chunk, PORT_OUT)) {
            if (pass(pipe, chunk, 0, batch, NULL) < 0)
                return -1;
            continue;
        }
        if (has_port(pipe, chunk, PORT_IN) &&
            (post(pipe, slot, chunk, PORT_IN, 0) < 0 ||
             wait_port(pipe, slot, PORT_IN) < 0))
            return -1;
        if (plait_model_logits(pipe->model, chunk, 0, batch,
                               slot->buffer[PORT_IN], logits) < 0)
            return -1;
    }
    return drain(pipe);
}

/* -- life ---------------------------------------------------------------- */

/* A slot is taken by the first of RECV_FORWARD and FORWARD, and free again
 * after the backward that ends it. Fills slot_of and counts the slots. */
static int assign_slots(struct plait_pipeline *pipe)
{
    const struct plait_schedule *s = pipe->schedule;
    int m = s->microbatches, i, k;
    bool *taken = calloc((size_t)s->chunks * m, sizeof(*taken));

    if (!taken)
        return -1;
    for (i = 0; i < s->chunks * m; i++)
        pipe->slot_of[i] = -1;
    for (i = 0; i < s->nactions; i++) {
        const struct plait_action *a = &s->actions[i];
        int *slot = &pipe->slot_of[a->chunk * m + a->microbatch];
        bool *in_chunk = &taken[a->chunk * m];

        if (*slot < 0) {
            for (k = 0; in_chunk[k]; k++)
                ;
            *slot = k;
            in_chunk[k] = true;
            if (k >= pipe->nslots)
                pipe->nslots = k + 1;
        } else if (a->kind == PLAIT_BACKWARD ||
                   a->kind == PLAIT_BACKWARD_WEIGHT) {
            in_chunk[*slot] = false;
        }
    }
    free(taken);
    return 0;
}

static int make_buffers(struct plait_pipeline *pipe)
{
    struct plait_parallel *par = pipe->model->par;
    size_t bytes = pipe->boundary * plait_dtype_size(pipe->model->type);
    int chunk, i, port;

    pipe->slot = calloc((size_t)pipe->model->chunks * pipe->nslots,
                        sizeof(*pipe->slot));
    if (!pipe->slot)
        return -1;
    for (chunk = 0; chunk < pipe->model->chunks; chunk++)
        for (i = 0; i < pipe->nslots; i++)
            for (port = 0; port < NPORTS; port++) {
                struct slot *slot = &pipe->slot[chunk * pipe->nslots + i];

                if (!has_port(pipe, chunk, port))
                    continue;
                slot->buffer[port] = par->ops->alloc(par->dev, bytes);
                if (!slot->buffer[port])
                    return -1;
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
    pipe->schedule = plait_schedule_create(c->schedule, p, model->chunks,
                                           microbatches,
                                           model->par->coord.at[PLAIT_PP],
                                           err);
    if (!pipe->schedule)
        goto error;
    pipe->slot_of = calloc((size_t)model->chunks * microbatches,
                           sizeof(*pipe->slot_of));
    if (!pipe->slot_of || assign_slots(pipe) < 0)
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
    for (i = 0; pipe->slot && i < pipe->model->chunks * pipe->nslots; i++)
        for (port = 0; port < NPORTS; port++)
            if (pipe->slot[i].buffer[port])
                par->ops->free(par->dev, pipe->slot[i].buffer[port]);
    free(pipe->slot);
    free(pipe->slot_of);
    plait_schedule_destroy(pipe->schedule);
    free(pipe);
    errno = saved;
}

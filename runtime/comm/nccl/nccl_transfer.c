/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers of the NCCL backend: events put each on the communicator's stream,
 * after the caller's work. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "kernels/products.h"
#include "kernels/queue.h"
#include "runtime/comm/nccl/nccl_private.h"

struct nccl_request {
    struct plait_request base;
    struct plait_event *done;             /* recorded after the transfer */
    struct nccl_request *next;            /* among those held back */
    struct nccl_request *following, **at; /* among those not waited for */
    struct plait_transfer transfer;
    struct plait_queue *q; /* while it is held back */
    bool takes_room;       /* it is counted in nopen[each] */
    int each;
};

struct nccl_event {
    struct nccl_event *next;
    struct plait_event *event;
};

/* Fails the communicator for the queue's error. */
static int fail_by_queue(struct nccl_comm *c, struct plait_queue *q)
{
    const struct plait_queue_head *head = (const void *)q;

    return plait_comm_fail(&c->base, "%s: %s", c->base.name,
                           head->failed != 0 ? head->error : "no memory");
}

/* -- events --------------------------------------------------------------- */

static struct plait_event *event_take(struct nccl_comm *c)
{
    struct nccl_event *e = c->idle;
    struct plait_event *event;

    if (e == NULL)
        return c->base.ops->event_create(c->base.dev, 0);
    c->idle = e->next;
    event = e->event;
    free(e);
    return event;
}

static void event_give(struct nccl_comm *c, struct plait_event *event)
{
    struct nccl_event *e = malloc(sizeof(*e));

    if (e == NULL) {
        c->base.ops->event_destroy(event);
        return;
    }
    e->event = event;
    e->next = c->idle;
    c->idle = e;
}

/* Products that are queued while a collective is under way leave it room. When
 * a message ends is not known before its buffer is used again, often long
 * after: those are not counted. */
static void count_open(struct nccl_comm *c, int each, int change)
{
    const struct plait_product_ops *products = c->base.ops->products;
    int any = c->nopen[0] + c->nopen[1] > 0, forward = c->nopen[1] > 0;

    c->nopen[each] += change;
    any = (c->nopen[0] + c->nopen[1] > 0) - any;
    forward = (c->nopen[1] > 0) - forward;
    if (products != NULL && products->leave_room != NULL && (any || forward))
        products->leave_room(c->base.dev, any * c->room, forward * c->room);
}

static void open_request(struct nccl_comm *c, struct nccl_request *r)
{
    r->following = c->open;
    r->at = &c->open;
    if (r->following != NULL)
        r->following->at = &r->following;
    c->open = r;
    r->takes_room =
        r->transfer.kind != PLAIT_SEND && r->transfer.kind != PLAIT_RECV;
    /* ZeRO 3 gathers weights before each forward. */
    r->each = c->of_passes || r->transfer.kind == PLAIT_ALL_GATHER;
    if (r->takes_room)
        count_open(c, r->each, 1);
}

static void close_request(struct nccl_request *r)
{
    *r->at = r->following;
    if (r->following != NULL)
        r->following->at = r->at;
    if (r->takes_room)
        count_open(nccl_of(r->base.comm), r->each, -1);
}

void nccl_events_destroy(struct nccl_comm *c)
{
    while (c->open != NULL) {
        struct nccl_request *r = c->open;

        close_request(r);
        c->base.ops->event_destroy(r->done);
        free(r);
    }
    while (c->idle != NULL) {
        struct nccl_event *e = c->idle;

        c->idle = e->next;
        c->base.ops->event_destroy(e->event);
        free(e);
    }
}

/* Work on `later` from now on waits for the work on `first`. The event may be
 * recorded again at once: a wait keeps the record it saw. */
static int order_queues(struct nccl_comm *c, struct plait_event *event,
                        struct plait_queue *first, struct plait_queue *later)
{
    if (c->base.ops->event_record(event, first) < 0)
        return fail_by_queue(c, first);
    if (c->base.ops->event_wait(event, later) < 0)
        return fail_by_queue(c, later);
    return 0;
}

/* -- transfers ------------------------------------------------------------ */

static ncclDataType_t nccl_type(enum plait_dtype type)
{
    switch (type) {
    case PLAIT_BF16_T:
        return ncclBfloat16;
    case PLAIT_FP16_T:
        return ncclFloat16;
    case PLAIT_I32:
        return ncclInt32;
    case PLAIT_F64:
        return ncclFloat64;
    default:
        return ncclFloat32;
    }
}

/* Passes one transfer to NCCL; the lock is held. */
static ncclResult_t launch_transfer(struct nccl_comm *c,
                                    const struct plait_transfer *t)
{
    cudaStream_t stream = c->base.ops->queue_native(c->q);
    ncclDataType_t type = nccl_type(t->type);
    ncclRedOp_t op = t->op == PLAIT_MAX ? ncclMax : ncclSum;

    atomic_store(&c->last, (int)t->kind + 1);
    if (c->nccl == NULL)
        return ncclInvalidUsage;
    switch (t->kind) {
    case PLAIT_ALL_REDUCE:
        return ncclAllReduce(t->send, t->recv, t->n, type, op, c->nccl, stream);
    case PLAIT_REDUCE_SCATTER:
        return ncclReduceScatter(t->send, t->recv, t->n, type, op, c->nccl,
                                 stream);
    case PLAIT_ALL_GATHER:
        return ncclAllGather(t->send, t->recv, t->n, type, c->nccl, stream);
    case PLAIT_BROADCAST:
        return ncclBroadcast(t->send, t->recv, t->n, type, t->peer, c->nccl,
                             stream);
    case PLAIT_SEND:
        return ncclSend(t->send, t->n, type, t->peer, c->nccl, stream);
    case PLAIT_RECV:
        return ncclRecv(t->recv, t->n, type, t->peer, c->nccl, stream);
    }
    return ncclInvalidArgument;
}

/* Passes all held transfers as one group; takes the lock. */
static ncclResult_t launch_held(struct nccl_comm *c)
{
    ncclResult_t r, end;

    pthread_mutex_lock(&c->lock);
    r = ncclGroupStart();
    for (struct nccl_request *h = c->held; h != NULL && r == ncclSuccess;
         h = h->next) {
        r = launch_transfer(c, &h->transfer);
        if (r == ncclInProgress)
            r = ncclSuccess;
    }
    end = ncclGroupEnd();
    pthread_mutex_unlock(&c->lock);
    return r != ncclSuccess ? r : end;
}

/* Passes the held transfers to NCCL. They are not held any more even if that
 * fails: whoever waits for a request frees it. */
int nccl_flush(struct nccl_comm *c)
{
    struct plait_queue *last = NULL;
    int rc = 0;

    if (c->held == NULL)
        return 0;
    for (struct nccl_request *h = c->held; h != NULL && rc == 0; h = h->next) {
        if (h->q != last)
            rc = order_queues(c, h->done, h->q, c->q);
        last = h->q;
    }
    if (rc == 0)
        rc = nccl_settle(c, "send, receive", launch_held(c));
    for (struct nccl_request *h = c->held; h != NULL && rc == 0; h = h->next)
        if (c->base.ops->event_record(h->done, c->q) < 0)
            rc = fail_by_queue(c, c->q);
    c->held = NULL;
    c->held_end = &c->held;
    return rc;
}

/* Starts the transfer after q's work; `done` is recorded after it. */
static int start_transfer(struct nccl_comm *c, const struct plait_transfer *t,
                          struct plait_queue *q, struct plait_event *done)
{
    ncclResult_t r;

    if (nccl_flush(c) < 0 || nccl_memory_use(c, t) < 0 ||
        order_queues(c, done, q, c->q) < 0)
        return -1;
    pthread_mutex_lock(&c->lock);
    r = launch_transfer(c, t);
    pthread_mutex_unlock(&c->lock);
    if (nccl_settle(c, plait_transfer_names[t->kind], r) < 0)
        return -1;
    if (c->base.ops->event_record(done, c->q) < 0)
        return fail_by_queue(c, c->q);
    return 0;
}

static int run_now(struct nccl_comm *c, const struct plait_transfer *t,
                   struct plait_queue *q)
{
    struct plait_event *event = event_take(c);
    int rc;

    if (event == NULL)
        return plait_comm_fail(&c->base, "%s: no event", c->base.name);
    rc = start_transfer(c, t, q, event);
    if (rc == 0 && c->base.ops->event_wait(event, q) < 0)
        rc = fail_by_queue(c, q);
    event_give(c, event);
    return rc;
}

int nccl_run(struct plait_comm *comm, const struct plait_transfer *t,
             struct plait_queue *q, struct plait_request **req)
{
    struct nccl_comm *c = nccl_of(comm);
    struct nccl_request *r;

    if (req == NULL)
        return run_now(c, t, q);
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return plait_comm_fail(comm, "%s: out of memory", comm->name);
    r->base.comm = comm;
    r->done = event_take(c);
    if (r->done == NULL) {
        free(r);
        return plait_comm_fail(comm, "%s: no event", comm->name);
    }
    r->transfer = *t;
    if (t->kind == PLAIT_SEND || t->kind == PLAIT_RECV) {
        r->q = q;
        *c->held_end = r;
        c->held_end = &r->next;
    } else if (start_transfer(c, t, q, r->done) < 0) {
        event_give(c, r->done);
        free(r);
        return -1;
    }
    open_request(c, r);
    *req = &r->base;
    return 0;
}

int nccl_progress(struct plait_comm *comm)
{
    struct nccl_comm *c = nccl_of(comm);
    ncclResult_t state;

    if (nccl_flush(c) < 0)
        return -1;
    state = nccl_state(c);
    if (state == ncclSuccess || state == ncclInProgress)
        return 0;
    return nccl_failed(c, "a transfer", state);
}

int nccl_wait(struct plait_request *req, struct plait_queue *q)
{
    struct nccl_request *r = (struct nccl_request *)req;
    struct nccl_comm *c = nccl_of(req->comm);
    int rc = nccl_progress(req->comm);

    close_request(r);
    if (rc == 0 && c->base.ops->event_wait(r->done, q) < 0)
        rc = fail_by_queue(c, q);
    event_give(c, r->done);
    return rc;
}

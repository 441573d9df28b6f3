/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL, as the module plait_nccl.so. Each communicator has a stream of its
 * own, tied by events to the queues of its callers. Communicators are
 * non-blocking, so that a peer that is gone cannot hold this process: calls
 * that are still in progress are polled, and abort() ends them. NCCL rounds
 * to the type after each addition: sums of 16-bit types are made in fp32 one
 * pair at a time only. */
#include "config.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/queue.h"
#include "runtime/comm/nccl_private.h"
#include "runtime/comm/policy.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 19, 1)
#error "NCCL 2.19 or later is needed (ncclCommSplit, ncclMemAlloc)"
#endif

/* One unique id serves this many ranks: more than that connect slowly. */
#define RANKS_PER_ID 1024
/* How often to ask whether NCCL is through before sleeping: for a millisecond
 * at most. */
#define AWAKE_POLLS 1000

struct nccl_request {
    struct plait_request base;
    struct plait_event *done; /* recorded behind the transfer */
    struct nccl_request *next;
    struct plait_transfer transfer; /* while it is held back */
    struct plait_queue *q;          /* likewise */
};

struct nccl_event {
    struct nccl_event *next;
    struct plait_event *event;
};

static const struct plait_comm_vtable nccl_vtable;

static struct nccl_comm *nccl_of(struct plait_comm *comm)
{
    return (struct nccl_comm *)comm;
}

/* -- results ----------------------------------------------------------------
 */

/* The state of the communicator; the lock is not held. */
static ncclResult_t state_of(struct nccl_comm *c)
{
    ncclResult_t state = ncclInvalidUsage, r;

    pthread_mutex_lock(&c->lock);
    r = c->nccl != NULL ? ncclCommGetAsyncError(c->nccl, &state)
                        : ncclInvalidUsage;
    pthread_mutex_unlock(&c->lock);
    return r != ncclSuccess ? r : state;
}

static int nccl_failed(struct nccl_comm *c, const char *what, ncclResult_t r)
{
    struct plait_comm *comm = &c->base;
    const char *detail = "";

    pthread_mutex_lock(&c->lock);
    if (c->nccl != NULL)
        detail = ncclGetLastError(c->nccl);
    pthread_mutex_unlock(&c->lock);
    return plait_comm_fail(comm, "%s: NCCL: %s: %s%s%s", comm->name, what,
                           ncclGetErrorString(r), *detail != '\0' ? ": " : "",
                           detail);
}

/* A call is handed over by a thread of NCCL's own: mostly within the time that
 * falling asleep would take, but what connects takes long. The communicator is
 * asked even after success: ncclCommWindowRegister() of NCCL 2.28 says so while
 * it is still at it. */
int nccl_settle(struct nccl_comm *c, const char *what, ncclResult_t r)
{
    const struct timespec pause = {.tv_nsec = 10000};
    int polls = 0;

    if (r == ncclSuccess)
        r = ncclInProgress;
    while (r == ncclInProgress && !c->base.failed) {
        r = state_of(c);
        if (r == ncclInProgress && polls++ < AWAKE_POLLS)
            sched_yield();
        else if (r == ncclInProgress)
            nanosleep(&pause, NULL);
    }
    if (c->base.failed) {
        errno = EIO;
        return -1;
    }
    return r == ncclSuccess ? 0 : nccl_failed(c, what, r);
}

/* The queue's own failure becomes the communicator's. */
static int queue_failed(struct nccl_comm *c, struct plait_queue *q)
{
    const struct plait_queue_head *head = (const void *)q;

    return plait_comm_fail(&c->base, "%s: %s", c->base.name,
                           head->failed != 0 ? head->error : "no memory");
}

/* -- events -----------------------------------------------------------------
 */

static struct plait_event *event_take(struct nccl_comm *c)
{
    struct nccl_event *e = c->idle;
    struct plait_event *event;

    if (e == NULL)
        return c->base.ops->event_create(c->base.dev);
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

/* Work on `later` from here on waits for the work on `first`. The event may
 * be recorded again at once: waits keep the record they saw. */
static int order(struct nccl_comm *c, struct plait_event *event,
                 struct plait_queue *first, struct plait_queue *later)
{
    if (c->base.ops->event_record(event, first) < 0)
        return queue_failed(c, first);
    if (c->base.ops->event_wait(event, later) < 0)
        return queue_failed(c, later);
    return 0;
}

/* -- transfers --------------------------------------------------------------
 */

static ncclDataType_t nccl_type(enum plait_dtype type)
{
    switch (type) {
    case PLAIT_BF16_T:
        return ncclBfloat16;
    case PLAIT_FP16_T:
        return ncclFloat16;
    case PLAIT_I32:
        return ncclInt32;
    default:
        return ncclFloat32;
    }
}

static ncclResult_t all_to_all(const struct nccl_comm *c,
                               const struct plait_transfer *t,
                               cudaStream_t stream)
{
    size_t bytes = t->n * plait_dtype_size(t->type);
    ncclDataType_t type = nccl_type(t->type);
    ncclResult_t r = ncclGroupStart(), end;

    for (int i = 0; i < c->base.size && r == ncclSuccess; i++) {
        r = ncclSend((const char *)t->send + i * bytes, t->n, type, i, c->nccl,
                     stream);
        if (r == ncclSuccess || r == ncclInProgress)
            r = ncclRecv((char *)t->recv + i * bytes, t->n, type, i, c->nccl,
                         stream);
        if (r == ncclInProgress)
            r = ncclSuccess;
    }
    end = ncclGroupEnd();
    return r != ncclSuccess ? r : end;
}

/* Hands one transfer to NCCL; the lock is held. */
static ncclResult_t launch(struct nccl_comm *c, const struct plait_transfer *t)
{
    cudaStream_t stream = c->base.ops->queue_native(c->q);
    ncclDataType_t type = nccl_type(t->type);
    ncclRedOp_t op = t->op == PLAIT_MAX ? ncclMax : ncclSum;

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
    case PLAIT_ALL_TO_ALL:
        return all_to_all(c, t, stream);
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

static const char *const transfer_names[] = {
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all",
    "broadcast",  "send",           "receive",
};

/* Every held transfer in one group; the lock is taken here. */
static ncclResult_t launch_held(struct nccl_comm *c)
{
    ncclResult_t r, end;

    pthread_mutex_lock(&c->lock);
    r = ncclGroupStart();
    for (struct nccl_request *h = c->held; h != NULL && r == ncclSuccess;
         h = h->next) {
        r = launch(c, &h->transfer);
        if (r == ncclInProgress)
            r = ncclSuccess;
    }
    end = ncclGroupEnd();
    pthread_mutex_unlock(&c->lock);
    return r != ncclSuccess ? r : end;
}

/* Hands over what was held back. It is held no longer even where that fails:
 * whoever waits for a request frees it. */
static int flush(struct nccl_comm *c)
{
    struct plait_queue *last = NULL;
    struct nccl_request *h;
    int rc = 0;

    if (c->held == NULL)
        return 0;
    for (h = c->held; h != NULL && rc == 0; h = h->next) {
        if (h->q != last)
            rc = order(c, h->done, h->q, c->q);
        last = h->q;
    }
    if (rc == 0)
        rc = nccl_settle(c, "send, receive", launch_held(c));
    for (h = c->held; h != NULL && rc == 0; h = h->next)
        if (c->base.ops->event_record(h->done, c->q) < 0)
            rc = queue_failed(c, c->q);
    c->held = NULL;
    c->held_end = &c->held;
    return rc;
}

/* Starts the transfer behind q's work; `done` is recorded behind it. */
static int start(struct nccl_comm *c, const struct plait_transfer *t,
                 struct plait_queue *q, struct plait_event *done)
{
    ncclResult_t r;

    if (flush(c) < 0 || nccl_memory_use(c, t) < 0 ||
        order(c, done, q, c->q) < 0)
        return -1;
    pthread_mutex_lock(&c->lock);
    r = launch(c, t);
    pthread_mutex_unlock(&c->lock);
    if (nccl_settle(c, transfer_names[t->kind], r) < 0)
        return -1;
    if (c->base.ops->event_record(done, c->q) < 0)
        return queue_failed(c, c->q);
    return 0;
}

static int run_now(struct nccl_comm *c, const struct plait_transfer *t,
                   struct plait_queue *q)
{
    struct plait_event *event = event_take(c);
    int rc;

    if (event == NULL)
        return plait_comm_fail(&c->base, "%s: no event", c->base.name);
    rc = start(c, t, q, event);
    if (rc == 0 && c->base.ops->event_wait(event, q) < 0)
        rc = queue_failed(c, q);
    event_give(c, event);
    return rc;
}

static int nccl_run(struct plait_comm *comm, const struct plait_transfer *t,
                    struct plait_queue *q, struct plait_request **req)
{
    struct nccl_comm *c = nccl_of(comm);
    struct nccl_request *r;

    if (t->kind == PLAIT_ALL_TO_ALL && t->send == t->recv)
        return plait_comm_fail(comm, "%s: NCCL has no all-to-all in place",
                               comm->name);
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
    if (t->kind == PLAIT_SEND || t->kind == PLAIT_RECV) {
        r->transfer = *t;
        r->q = q;
        *c->held_end = r;
        c->held_end = &r->next;
    } else if (start(c, t, q, r->done) < 0) {
        event_give(c, r->done);
        free(r);
        return -1;
    }
    *req = &r->base;
    return 0;
}

static int nccl_progress(struct plait_comm *comm)
{
    struct nccl_comm *c = nccl_of(comm);
    ncclResult_t state;

    if (flush(c) < 0)
        return -1;
    state = state_of(c);
    if (state == ncclSuccess || state == ncclInProgress)
        return 0;
    return nccl_failed(c, "a transfer", state);
}

static int nccl_wait(struct plait_request *req, struct plait_queue *q)
{
    struct nccl_request *r = (struct nccl_request *)req;
    struct nccl_comm *c = nccl_of(req->comm);
    int rc = nccl_progress(req->comm);

    if (rc == 0 && c->base.ops->event_wait(r->done, q) < 0)
        rc = queue_failed(c, q);
    event_give(c, r->done);
    return rc;
}

/* -- life -------------------------------------------------------------------
 */

/* policy.h in NCCL's words, as far as its version has them. */
static void apply_policy(const struct plait_group_policy *p,
                         ncclConfig_t *config)
{
    if (p->min_ctas > 0)
        config->minCTAs = p->min_ctas;
    if (p->max_ctas > 0)
        config->maxCTAs = p->max_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 2)
    if (p->traffic_class >= 0)
        config->trafficClass = p->traffic_class;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
    if (p->collnet >= 0)
        config->collnetEnable = p->collnet;
    if (p->nvls_ctas > 0)
        config->nvlsCTAs = p->nvls_ctas;
    if (p->efficient)
        config->CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
    if (p->channels_per_peer > 0)
        config->nChannelsPerNetPeer = p->channels_per_peer;
#endif
}

static ncclConfig_t choose_config(struct nccl_comm *c,
                                  const struct plait_group_site *site)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct plait_group_policy policy;

    config.blocking = 0;
    config.splitShare = 0; /* a group must be able to fail alone */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
    config.commName = c->base.name;
#endif
    plait_group_policy_choose(c->base.name, site, &policy);
    apply_policy(&policy, &config);
    c->windows = policy.windows;
    return config;
}

/* Gradients and pipeline messages go ahead of compute where they compete:
 * others wait for them. */
static struct nccl_comm *comm_create(const struct plait_ops *ops,
                                     struct plait_device *dev, int rank,
                                     int size, const char *name)
{
    struct nccl_comm *c = malloc(sizeof(*c));

    if (c == NULL)
        return NULL;
    plait_comm_init(&c->base, &nccl_vtable, ops, dev, rank, size, name);
    c->nccl = NULL;
    c->memory = NULL;
    c->owns_memory = false;
    c->windows = false;
    c->idle = NULL;
    c->held = NULL;
    c->held_end = &c->held;
    c->q = ops->queue_create(dev, 1);
    if (c->q == NULL) {
        free(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void comm_free(struct nccl_comm *c)
{
    while (c->idle != NULL) {
        struct nccl_event *e = c->idle;

        c->idle = e->next;
        c->base.ops->event_destroy(e->event);
        free(e);
    }
    if (c->owns_memory)
        nccl_memory_destroy(c->memory);
    c->base.ops->queue_destroy(c->q);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void nccl_abort(struct plait_comm *comm)
{
    struct nccl_comm *c = nccl_of(comm);
    ncclComm_t nccl;

    pthread_mutex_lock(&c->lock);
    nccl = c->nccl;
    c->nccl = NULL;
    pthread_mutex_unlock(&c->lock);
    if (nccl != NULL)
        ncclCommAbort(nccl);
}

static void nccl_destroy(struct plait_comm *comm)
{
    struct nccl_comm *c = nccl_of(comm);

    nccl_memory_leave(c);
    if (!comm->failed && c->nccl != NULL && comm->ops->queue_sync(c->q) == 0 &&
        nccl_settle(c, "finalize", ncclCommFinalize(c->nccl)) == 0) {
        ncclCommDestroy(c->nccl);
        c->nccl = NULL;
    }
    nccl_abort(comm);
    comm_free(c);
}

/* A fresh communicator becomes usable; `first` is what its creation said. */
static int comm_connect(struct nccl_comm *c, ncclResult_t first,
                        struct plait_error *err)
{
    if (nccl_settle(c, "connect", first) == 0)
        return 0;
    plait_errorf(err, "%s", c->base.error);
    errno = EIO;
    return -1;
}

/* The ids of a world, each made by the first of the ranks it serves. */
static ncclUniqueId *share_ids(struct plait_comm *host, int n,
                               struct plait_error *err)
{
    ncclUniqueId *ids = calloc(n, sizeof(*ids));
    ncclResult_t r = ncclSuccess;

    for (int i = 0; ids != NULL && i < n; i++) {
        int root = (int)((int64_t)i * host->size / n);

        if (host->rank == root)
            r = ncclGetUniqueId(&ids[i]);
        if (host->vtable->host_broadcast(host, &ids[i], sizeof(ids[i]), root) <
            0)
            r = ncclSystemError;
    }
    if (ids == NULL || r != ncclSuccess) {
        plait_errorf(err, "NCCL: no unique id: %s",
                     ids == NULL ? "out of memory" : ncclGetErrorString(r));
        free(ids);
        return NULL;
    }
    return ids;
}

static ncclResult_t init_rank(struct nccl_comm *c, int nids, ncclUniqueId *ids,
                              ncclConfig_t *config)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 4)
    if (nids > 1)
        return ncclCommInitRankScalable(&c->nccl, c->base.size, c->base.rank,
                                        nids, ids, config);
#endif
    (void)nids;
    return ncclCommInitRankConfig(&c->nccl, c->base.size, ids[0], c->base.rank,
                                  config);
}

static int id_count(int size)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 4)
    return (size + RANKS_PER_ID - 1) / RANKS_PER_ID;
#else
    (void)size;
    return 1;
#endif
}

__attribute__((visibility("default"))) struct plait_comm *
plait_nccl_create(struct plait_comm *host, const struct plait_ops *ops,
                  struct plait_device *dev, const struct plait_launch *launch,
                  struct plait_error *err)
{
    struct nccl_comm *c =
        comm_create(ops, dev, host->rank, host->size, "world");
    const struct plait_group_site unknown = {.known = false};
    int n = id_count(host->size);
    ncclUniqueId *ids = NULL;
    ncclConfig_t config;
    ncclResult_t r;

    (void)launch;
    if (c == NULL) {
        plait_errorf(err, "NCCL: no stream");
        errno = ENOMEM;
        return NULL;
    }
    c->memory = nccl_memory_create();
    c->owns_memory = true;
    if (c->memory == NULL) {
        plait_errorf(err, "NCCL: out of memory");
        goto error;
    }
    ids = share_ids(host, n, err);
    /* Any op on a queue makes its device this thread's. */
    if (ids == NULL || ops->queue_sync(c->q) < 0)
        goto error;
    config = choose_config(c, &unknown);
    r = init_rank(c, n, ids, &config);
    if (comm_connect(c, r, err) < 0)
        goto error;
    free(ids);
    return &c->base;

error:
    free(ids);
    c->base.failed = true;
    nccl_destroy(&c->base);
    errno = EIO;
    return NULL;
}

/* The rank and size of the group that ncclCommSplit made. */
static int group_identity(struct nccl_comm *c)
{
    ncclResult_t r = ncclCommUserRank(c->nccl, &c->base.rank);

    if (r == ncclSuccess)
        r = ncclCommCount(c->nccl, &c->base.size);
    return r == ncclSuccess ? 0 : nccl_failed(c, "rank", r);
}

static int nccl_split(struct plait_comm *parent, int color, int key,
                      const char *name, const struct plait_group_site *site,
                      struct plait_comm **comm, struct plait_error *err)
{
    struct nccl_comm *p = nccl_of(parent), *c;
    ncclConfig_t config;
    ncclResult_t r;

    *comm = NULL;
    c = comm_create(parent->ops, parent->dev, 0, 0, name);
    if (c == NULL)
        return plait_errorf(err, "%s: no stream", name);
    if (flush(p) < 0 || parent->ops->queue_sync(c->q) < 0)
        goto error;
    config = choose_config(c, site);
    c->memory = p->memory;
    pthread_mutex_lock(&p->lock);
    r = ncclCommSplit(p->nccl, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key,
                      &c->nccl, &config);
    pthread_mutex_unlock(&p->lock);
    /* The new communicator is there once the parent is through. */
    if (nccl_settle(p, "split", r) < 0)
        goto error;
    if (c->nccl == NULL) {
        comm_free(c);
        return 0;
    }
    if (nccl_settle(c, "connect", ncclSuccess) < 0 || group_identity(c) < 0)
        goto error;
    *comm = &c->base;
    return 0;

error:
    plait_errorf(err, "%s",
                 parent->failed   ? parent->error
                 : c->base.failed ? c->base.error
                                  : "no CUDA stream");
    c->base.failed = true;
    nccl_destroy(&c->base);
    errno = EIO;
    return -1;
}

static void *alloc_memory(struct plait_comm *comm, size_t bytes)
{
    return nccl_memory_alloc(nccl_of(comm), bytes);
}

static void free_memory(struct plait_comm *comm, void *ptr)
{
    nccl_memory_free(nccl_of(comm), ptr);
}

static const struct plait_comm_vtable nccl_vtable = {
    .name = "nccl",
    .records = true,
    .destroy = nccl_destroy,
    .abort = nccl_abort,
    .split = nccl_split,
    .run = nccl_run,
    .wait = nccl_wait,
    .progress = nccl_progress,
    .alloc = alloc_memory,
    .free = free_memory,
};

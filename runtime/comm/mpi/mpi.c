/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/mpi/mpi_private.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/shm/engine.h"

/* MPI, for ranks whose buffers are plain memory, and for GPUs whose buffers are
 * copied through the host. */

/* Smaller transfers are as fast by MPI's messages, bytes. */
#define LEAST_SHARED ((size_t)32 << 10)

struct mpi_request {
    struct plait_request base;
    struct plait_engine_job job;
    MPI_Request mpi;
    int rc; /* MPI's result */
    struct plait_shm_transfer shm;
    void *stage; /* host copies of the buffers; NULL: none */
    /* What wait() copies from the stage to the receive buffer. */
    const void *from;
    void *to;
    size_t bytes;
};

static const struct plait_comm_vtable mpi_vtable;

int plait_mpi_failed(struct plait_comm *comm, const char *what, int rc)
{
    char text[MPI_MAX_ERROR_STRING];
    int len;

    if (MPI_Error_string(rc, text, &len) != MPI_SUCCESS)
        strcpy(text, "unknown error");
    return plait_comm_fail(comm, "%s: %s: %s", comm->name, what, text);
}

/* -- life ---------------------------------------------------------------- */

/* MPI moves large messages only during its calls. Threads that wait for
 * something else call this, so that peers get this rank's messages
 * meanwhile. */
static void let_mpi_progress(void *arg)
{
    int flag;

    (void)arg;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag,
               MPI_STATUS_IGNORE);
}

static void world_destroy(struct mpi_world *world)
{
    plait_engine_destroy(world->engine);
    plait_bells_destroy(world->shm.bells);
    plait_mpi_ops_free(&world->ops);
    if (world->finalize)
        plait_mpi_finalize();
    free(world);
}

static struct mpi_world *world_create(int finalize)
{
    struct mpi_world *world = calloc(1, sizeof(*world));
    int level;

    if (!world)
        return NULL;
    world->finalize = finalize;
    world->shm.least = LEAST_SHARED;
    MPI_Query_thread(&level);
    world->engine = plait_engine_create(level == MPI_THREAD_MULTIPLE,
                                        let_mpi_progress, NULL);
    if (!world->engine) {
        free(world);
        return NULL;
    }
    plait_mpi_ops_create(&world->ops);
    return world;
}

static void mpi_destroy(struct plait_comm *comm)
{
    struct mpi_comm *c = mpi_of(comm);

    /* Freeing and finalising are collective and would wait for peers that are
     * gone. */
    if (!comm->failed) {
        plait_shm_destroy(c->shm);
        MPI_Comm_free(&c->mpi);
        if (c->owner)
            world_destroy(c->world);
    }
    free(c);
}

static void mpi_abort(struct plait_comm *comm)
{
    (void)comm;
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Internal to Open MPI, in no header; NULL with another MPI. */
extern bool opal_progress_set_yield_when_idle(bool yields)
    __attribute__((weak));

/* The calls that make communicators block. Where ranks share a core and reach
 * such a call together, it takes microseconds if they yield, but ticks of the
 * scheduler if they do not. They do not yield in other calls: at 100,000 yields
 * a second Linux 6.18 lets other processes starve (engine.c). */
static void yield_in_mpi(bool yields)
{
    if (opal_progress_set_yield_when_idle)
        opal_progress_set_yield_when_idle(yields);
}

/* Collective over a world: all ranks must agree, since blocking calls do not
 * match nonblocking ones, and a comparison needs all. */
static int agree_on_calls(struct mpi_comm *c)
{
    int ranks, asleep = plait_bells_crowded(c->world->shm.bells, &ranks) > 0;
    int has[2] = {asleep, plait_call_strict()};
    int rc = MPI_Allreduce(MPI_IN_PLACE, has, 2, MPI_INT, MPI_MAX, c->mpi);

    c->world->asleep = has[0];
    plait_call_be_strict(has[1]);
    return rc == MPI_SUCCESS ? 0 : plait_mpi_failed(&c->base, "all-reduce", rc);
}

/* Memory for a communicator, on all ranks of `mpi` or on none. */
static struct mpi_comm *alloc_comm(MPI_Comm mpi, struct mpi_world *world)
{
    struct mpi_comm *c = calloc(1, sizeof(*c));
    int failed = !c;

    if (MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, mpi) !=
            MPI_SUCCESS ||
        failed) {
        free(c);
        return NULL;
    }
    c->mpi = mpi;
    c->world = world;
    return c;
}

/* Collective; frees `c` on failure. */
static struct plait_comm *make_comm(struct mpi_comm *c,
                                    const struct plait_ops *ops,
                                    struct plait_device *dev, const char *name,
                                    int owner)
{
    struct plait_shm_world *shm = c ? &c->world->shm : NULL;
    struct plait_identity self = {.name = name};

    if (!c)
        return NULL;
    MPI_Comm_rank(c->mpi, &self.rank);
    MPI_Comm_size(c->mpi, &self.size);
    plait_comm_init(&c->base, &mpi_vtable, ops, dev, &self);
    MPI_Comm_set_errhandler(c->mpi, MPI_ERRORS_RETURN);
    MPI_Comm_set_name(c->mpi, name);
    if ((owner &&
         (plait_shm_world_init(&c->base, shm) < 0 || agree_on_calls(c) < 0)) ||
        plait_shm_create(&c->base, shm, &c->shm) < 0) {
        free(c);
        return NULL;
    }
    c->owner = owner;
    return &c->base;
}

/* Orders the ranks as in the launch. Only here it turns out whether they share
 * cores. */
static struct plait_comm *make_world(int rank, int finalize,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     struct plait_error *err)
{
    struct plait_comm *comm = NULL;
    struct mpi_world *world;
    MPI_Comm mpi;

    if (MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &mpi) != MPI_SUCCESS ||
        !(world = world_create(finalize))) {
        plait_errorf(err, "the world of MPI could not be set up");
        errno = EIO;
        return NULL;
    }
    comm = make_comm(alloc_comm(mpi, world), ops, dev, "world", 1);
    if (!comm) {
        plait_errorf(err, "out of memory");
        world_destroy(world);
    }
    return comm;
}

struct plait_comm *plait_mpi_create(const struct plait_ops *ops,
                                    struct plait_device *dev,
                                    const struct plait_launch *launch,
                                    struct plait_error *err)
{
    struct plait_comm *comm;
    int ready, provided, rank;

    MPI_Initialized(&ready);
    if (!ready) {
        plait_mpi_choose_transport(launch);
        plait_mpi_forbid_yields();
    }
    if (!ready && MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) !=
                      MPI_SUCCESS) {
        plait_errorf(err, "MPI could not be initialised");
        errno = EIO;
        return NULL;
    }
    if (plait_mpi_check_world(launch, err) < 0)
        return NULL;
    if (!ready) /* errors of nonblocking calls go there */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (launch)
        rank = launch->rank;
    yield_in_mpi(true);
    comm = make_world(rank, !ready, ops, dev, err);
    yield_in_mpi(false);
    return comm;
}

static int mpi_split(struct plait_comm *parent, const struct plait_split *into,
                     const struct plait_group_site *site,
                     struct plait_comm **comm, struct plait_error *err)
{
    struct mpi_comm *p = mpi_of(parent), *c = NULL;
    MPI_Comm mpi;
    int color = into->color < 0 ? MPI_UNDEFINED : into->color, rc;

    (void)site;
    *comm = NULL;
    if (p->world->asleep && plait_mpi_barrier(parent) < 0)
        return plait_errorf(err, "%s", parent->error);
    yield_in_mpi(p->world->asleep);
    rc = MPI_Comm_split(p->mpi, color, into->key, &mpi);
    if (rc == MPI_SUCCESS && mpi != MPI_COMM_NULL)
        c = alloc_comm(mpi, p->world);
    yield_in_mpi(false);
    if (rc != MPI_SUCCESS) {
        plait_mpi_failed(parent, "split", rc);
        return plait_errorf(err, "%s", parent->error);
    }
    if (mpi == MPI_COMM_NULL)
        return 0;
    *comm = make_comm(c, parent->ops, parent->dev, into->name, 0);
    return *comm ? 0 : plait_errorf(err, "out of memory");
}

/* -- transfers ----------------------------------------------------------- */

/* Replace device buffers of *t by host copies. */
static int stage_device(struct plait_comm *comm, struct plait_transfer *t,
                        struct plait_queue *q, struct mpi_request *r)
{
    size_t size = plait_dtype_size(t->type);
    size_t send = plait_transfer_send_count(comm, t) * size;
    size_t recv = plait_transfer_recv_count(comm, t) * size;
    char *stage = malloc(send + recv + 1);

    if (!stage)
        return -1;
    r->stage = stage;
    if (send && comm->ops->to_host(q, stage, t->send, send) < 0)
        return -1;
    r->from = stage + send;
    r->to = t->recv;
    r->bytes = recv;
    t->send = stage;
    t->recv = t->kind == PLAIT_BROADCAST && send ? stage : stage + send;
    return 0;
}

/* MPI forbids overlapping buffers: use MPI_IN_PLACE, or reduce-scatter into a
 * copy. *t is on the host. */
static int make_in_place(struct plait_comm *comm, struct plait_transfer *t,
                         struct mpi_request *r)
{
    if (!plait_mpi_in_place(comm, t))
        return 0;
    if (t->kind == PLAIT_ALL_GATHER) {
        t->send = NULL;
    } else if (t->kind == PLAIT_REDUCE_SCATTER) {
        r->bytes = t->n * plait_dtype_size(t->type);
        r->from = r->stage = malloc(r->bytes + 1);
        r->to = t->recv;
        t->recv = r->stage;
        return r->stage ? 0 : -1;
    }
    return 0;
}

/* Copy a staged result to the receive buffer; free the stage. */
static int finish_transfer(struct plait_comm *comm, struct mpi_request *r,
                           struct plait_queue *q)
{
    int rc = 0;

    if (r->bytes && plait_comm_on_host(comm))
        memcpy(r->to, r->from, r->bytes);
    else if (r->bytes)
        rc = comm->ops->to_device(q, r->to, r->from, r->bytes);
    free(r->stage);
    r->stage = NULL;
    return rc;
}

static struct mpi_request *request_of(struct plait_engine_job *job)
{
    return (struct mpi_request *)((char *)job -
                                  offsetof(struct mpi_request, job));
}

static enum plait_moved advance_mpi(struct plait_engine_job *job)
{
    struct mpi_request *r = request_of(job);
    int done = 0;

    r->rc = MPI_Test(&r->mpi, &done, MPI_STATUS_IGNORE);
    return done || r->rc != MPI_SUCCESS ? PLAIT_DONE : PLAIT_STUCK;
}

static enum plait_moved advance_shm(struct plait_engine_job *job)
{
    struct mpi_request *r = request_of(job);
    enum plait_moved now = plait_shm_advance(&r->shm);

    if (now == PLAIT_DONE && plait_shm_difference(&r->shm))
        r->rc = MPI_ERR_OTHER;
    return now;
}

/* What the ranks have entered instead of one transfer. */
int plait_mpi_differ(struct plait_comm *comm, const char *why)
{
    struct mpi_world *world = mpi_of(comm)->world;

    if (!world->difference[0])
        snprintf(world->difference, sizeof(world->difference), "%s", why);
    return plait_comm_fail(comm, "%s", why);
}

int plait_mpi_wait_asleep(struct mpi_comm *c, int rc, const MPI_Request *mpi)
{
    struct mpi_request r = {.base = {.comm = &c->base}, .mpi = *mpi};

    if (rc != MPI_SUCCESS || *mpi == MPI_REQUEST_NULL)
        return rc;
    r.job.advance = advance_mpi;
    plait_engine_run(c->world->engine, &r.job);
    return r.rc;
}

static int start_shm(struct mpi_comm *c, const struct plait_transfer *t,
                     struct mpi_request *r, bool block)
{
    plait_shm_begin(c->shm, &r->shm, t, &c->base.call);
    r->job.advance = advance_shm;
    if (block)
        plait_engine_run(c->world->engine, &r->job);
    else
        plait_engine_start(c->world->engine, &r->job);
    return block && plait_shm_difference(&r->shm)
               ? plait_mpi_differ(&c->base, plait_shm_difference(&r->shm))
               : 0;
}

static int start_mpi(struct mpi_comm *c, struct plait_transfer *t,
                     struct mpi_request *r, bool block)
{
    const char *what = plait_transfer_names[t->kind];
    bool asleep = block && c->world->asleep;
    struct plait_comm *comm = &c->base;
    int rc;

    if (t->n > INT_MAX)
        return plait_comm_fail(comm,
                               "%s: %s of %zu elements: MPI takes at "
                               "most %d",
                               comm->name, what, t->n, INT_MAX);
    if (!r->stage && make_in_place(comm, t, r) < 0)
        return plait_comm_fail(comm, "%s: %s: out of memory", comm->name, what);
    rc = plait_mpi_transfer(c->mpi, &c->world->ops, t,
                            block && !asleep ? NULL : &r->mpi);
    if (asleep)
        rc = plait_mpi_wait_asleep(c, rc, &r->mpi);
    if (rc != MPI_SUCCESS)
        return plait_mpi_failed(comm, what, rc);
    r->job.advance = advance_mpi;
    if (!block)
        plait_engine_start(c->world->engine, &r->job);
    return 0;
}

static int start_transfer(struct plait_comm *comm,
                          const struct plait_transfer *given,
                          struct plait_queue *q, struct mpi_request *r,
                          bool block)
{
    struct mpi_comm *c = mpi_of(comm);
    struct plait_transfer t = *given;

    if (!plait_comm_on_host(comm) && stage_device(comm, &t, q, r) < 0)
        return plait_comm_fail(comm, "%s: %s: out of memory", comm->name,
                               plait_transfer_names[t.kind]);
    if (!plait_shm_takes(c->shm, &t))
        return start_mpi(c, &t, r, block);
    return start_shm(c, &t, r, block);
}

static int mpi_run(struct plait_comm *comm, const struct plait_transfer *t,
                   struct plait_queue *q, struct plait_request **req)
{
    struct mpi_request local = {.base = {.comm = comm}}, *r = &local;

    /* One that blocks here may be compared; others must not block. */
    if (!req && t->kind < PLAIT_SEND && plait_mpi_compare(comm) < 0)
        return -1;
    if (req) {
        r = malloc(sizeof(*r));
        if (!r)
            return plait_comm_fail(comm, "%s: out of memory", comm->name);
        *r = local;
    }
    if (start_transfer(comm, t, q, r, !req) < 0)
        goto error;
    if (req)
        *req = &r->base;
    else
        return finish_transfer(comm, r, q);
    return 0;

error:
    free(r->stage);
    if (r != &local)
        free(r);
    return -1;
}

static int mpi_wait(struct plait_request *req, struct plait_queue *q)
{
    struct mpi_request *r = (struct mpi_request *)req;
    struct plait_comm *comm = req->comm;

    plait_engine_wait(mpi_of(comm)->world->engine, &r->job);
    req->ended = r->job.ended;
    if (r->job.advance == advance_shm) /* MPI hides when it began */
        req->begun = r->job.begun;
    if (r->rc != MPI_SUCCESS) {
        r->bytes = 0;
        finish_transfer(comm, r, q);
        return plait_shm_difference(&r->shm)
                   ? plait_mpi_differ(comm, plait_shm_difference(&r->shm))
                   : plait_mpi_failed(comm, "wait", r->rc);
    }
    return finish_transfer(comm, r, q);
}

static int mpi_progress(struct plait_comm *comm)
{
    plait_engine_poke(mpi_of(comm)->world->engine);
    return 0;
}

static const struct plait_comm_vtable mpi_vtable = {
    .name = "mpi",
    .advances = plait_mpi_advances,
    .difference = plait_mpi_difference,
    .destroy = mpi_destroy,
    .abort = mpi_abort,
    .split = mpi_split,
    .run = mpi_run,
    .wait = mpi_wait,
    .progress = mpi_progress,
    .barrier = plait_mpi_barrier,
    .host_broadcast = plait_mpi_host_broadcast,
    .host_all_gather = plait_mpi_host_all_gather,
    .host_all_reduce = plait_mpi_host_all_reduce,
};

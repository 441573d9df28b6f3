/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/comm/members.h"

/* -- life ---------------------------------------------------------------- */

void plait_comm_set_network(struct plait_comm *comm,
                            const struct plait_site_network *network,
                            uint64_t domain)
{
    comm->sited = true;
    comm->network = *network;
    comm->domain = domain;
}

void plait_comm_set_record(struct plait_comm *world,
                           struct plait_record *record)
{
    struct plait_record_group *group = plait_record_add_group(
        record, world->name, 0, world->size, world->rank);

    world->listeners.record = record;
    world->listeners.group = group ? group : &world->own;
}

struct plait_record *plait_comm_record(const struct plait_comm *comm)
{
    return comm->listeners.record;
}

void plait_comm_destroy(struct plait_comm *comm)
{
    struct plait_comm *host;
    int saved = errno;

    if (!comm)
        return;
    plait_watch_destroy(comm->watch, comm);
    host = comm->host;
    comm->vtable->destroy(comm);
    plait_comm_destroy(host);
    errno = saved;
}

void plait_comm_abort(struct plait_comm *comm)
{
    plait_comm_fail(comm, "%s: aborted", comm->name);
    if (comm->vtable->abort)
        comm->vtable->abort(comm);
    if (comm->host)
        plait_comm_abort(comm->host);
}

int plait_comm_rank(const struct plait_comm *comm)
{
    return comm->rank;
}

int plait_comm_size(const struct plait_comm *comm)
{
    return comm->size;
}

int plait_comm_domains(const struct plait_comm *comm)
{
    return comm->domains;
}

bool plait_comm_describe(struct plait_comm *comm, char *text, size_t size)
{
    *text = '\0';
    if (!comm->vtable->describe)
        return false;
    comm->vtable->describe(comm, text, size);
    return true;
}

bool plait_comm_failed(const struct plait_comm *comm)
{
    return comm->failed || (comm->host && comm->host->failed);
}

bool plait_comm_agreed(const struct plait_comm *met)
{
    return met->agreed && !plait_comm_failed(met);
}

bool plait_comm_lost(const struct plait_comm *comm)
{
    return (comm->vtable->lost && comm->vtable->lost(comm)) ||
           (comm->host && plait_comm_lost(comm->host));
}

const char *plait_comm_difference(const struct plait_comm *comm)
{
    const char *why =
        comm->vtable->difference ? comm->vtable->difference(comm) : NULL;

    if (!why && comm->differs)
        why = comm->error;
    return why || !comm->host ? why : plait_comm_difference(comm->host);
}

bool plait_comm_look(struct plait_comm *comm)
{
    return comm->vtable->look && comm->vtable->look(comm);
}

struct plait_members *plait_comm_take_members(struct plait_comm *comm)
{
    return comm->vtable->take_members ? comm->vtable->take_members(comm) : NULL;
}

int plait_comm_shared_cores(const struct plait_comm *comm, int *ranks)
{
    *ranks = 0;
    return comm->vtable->shared_cores ? comm->vtable->shared_cores(comm, ranks)
                                      : 0;
}

void plait_comm_rest(struct plait_comm *comm)
{
    if (comm->vtable->rest)
        comm->vtable->rest(comm);
}

void plait_comm_break(struct plait_comm *comm)
{
    if (comm->host)
        comm = comm->host;
    if (comm->vtable->break_all)
        comm->vtable->break_all(comm);
}

struct plait_comm *plait_comm_of_hosts(struct plait_comm *comm)
{
    return comm->host ? comm->host : comm;
}

const char *plait_comm_error(const struct plait_comm *comm)
{
    if (comm->failed)
        return comm->error;
    if (comm->host && comm->host->failed)
        return comm->host->error;
    return strerror(errno);
}

void plait_comm_stats(const struct plait_comm *comm,
                      struct plait_comm_stats *stats)
{
    *stats = comm->stats;
}

void plait_comm_set_stats(struct plait_comm *comm,
                          const struct plait_comm_stats *stats)
{
    comm->stats = *stats;
}

bool plait_comm_records(const struct plait_comm *comm)
{
    return comm->vtable->records;
}

bool plait_comm_advances(const struct plait_comm *comm)
{
    return !comm->vtable->advances || comm->vtable->advances(comm);
}

bool plait_comm_orders(const struct plait_comm *comm)
{
    return comm->vtable->orders && comm->vtable->orders();
}

const char *plait_comm_remark(const struct plait_comm *world)
{
    return world->vtable->remark ? world->vtable->remark(world) : NULL;
}

bool plait_comm_overlaps(const struct plait_comm *comm, int driver)
{
    return !comm->vtable->overlaps || comm->vtable->overlaps(driver);
}

void plait_comm_set_trace(struct plait_comm *comm, struct plait_trace *trace)
{
    comm->listeners.trace = trace;
}

void *plait_comm_alloc(struct plait_comm *world, const struct plait_ops *ops,
                       struct plait_device *dev, size_t bytes)
{
    return world && world->vtable->alloc ? world->vtable->alloc(world, bytes)
                                         : ops->alloc(dev, bytes);
}

void plait_comm_free(struct plait_comm *world, const struct plait_ops *ops,
                     struct plait_device *dev, void *ptr)
{
    int saved = errno;

    if (ptr && world && world->vtable->free)
        world->vtable->free(world, ptr);
    else if (ptr)
        ops->free(dev, ptr);
    errno = saved;
}

/* -- transfers ----------------------------------------------------------- */

static uint64_t transfer_bytes(const struct plait_comm *comm,
                               const struct plait_transfer *t)
{
    uint64_t bytes = t->n * plait_dtype_size(t->type);
    uint64_t others = comm->size - 1;

    switch (t->kind) {
    case PLAIT_ALL_REDUCE:
        return 2 * bytes * others / comm->size;
    case PLAIT_REDUCE_SCATTER:
    case PLAIT_ALL_GATHER:
        return bytes * others; /* n is 1/size of the whole buffer S */
    case PLAIT_BROADCAST:
        return others ? bytes : 0;
    default:
        return bytes;
    }
}

static struct plait_activity begin_transfer(const struct plait_comm *comm,
                                            const struct plait_transfer *t)
{
    const struct plait_doing doing = {
        .track = comm->name,
        .name = plait_transfer_names[t->kind],
        .range = comm->name,
        .op = (enum plait_op)t->kind,
        .peer = t->peer,
        .bytes = t->n * plait_dtype_size(t->type),
    };

    return plait_activity_begin(&comm->listeners, &doing);
}

/* With PLAIT_CHECK_COLLECTIVES=1 the hosts compare what they start. */
static int show(struct plait_comm *comm)
{
    struct plait_comm *host = comm->host;

    if (comm->vtable->shows || !host || !plait_call_strict())
        return 0;
    host->call = comm->call;
    host->call.number = ++host->ncalls;
    return host->vtable->barrier(host);
}

/* Notes a collective, which is not a message. */
static int note_call(struct plait_comm *comm, const struct plait_transfer *t,
                     const char *place)
{
    struct plait_call *past;

    comm->call = plait_call_make(
        &(struct plait_operation){.op = (enum plait_op)t->kind,
                                  .type = (int)t->type,
                                  .reduction = (int)t->op,
                                  .root = t->peer,
                                  .bytes = t->n * plait_dtype_size(t->type)},
        ++comm->ncalls, place);
    past = &comm->past[++comm->npast % PLAIT_PAST];
    *past = comm->call;
    past->number = comm->npast;
    plait_tally_add(&comm->stats.tally, comm->call.what);
    return show(comm);
}

/* `place` is NULL for messages, which are no collectives. */
static int run_transfer(struct plait_comm *comm, const struct plait_transfer *t,
                        const char *place, struct plait_queue *q,
                        struct plait_request **req)
{
    struct plait_activity a;
    int rc;

    if (req)
        *req = NULL;
    if (comm->failed) {
        errno = EIO;
        return -1;
    }
    a = begin_transfer(comm, t);
    rc = place ? note_call(comm, t, place) : 0;
    if (rc == 0)
        rc = comm->vtable->run(comm, t, q, req);
    if (rc < 0 || req)
        plait_activity_drop(&a);
    else
        comm->stats.wait_s += plait_activity_end(&a);
    if (rc < 0)
        return -1;
    comm->stats.calls++;
    /* A message is counted by its sender only, so that a sum over all ranks
     * counts it once. */
    if (t->kind != PLAIT_RECV)
        comm->stats.bytes += transfer_bytes(comm, t);
    if (req && *req) {
        (*req)->kind = t->kind;
        (*req)->tag = a.tag;
        (*req)->bytes = a.what.bytes;
        (*req)->peer = t->peer;
        (*req)->begun = a.begin;
        (*req)->ended = 0;
    }
    return 0;
}

static struct plait_transfer transfer_of(enum plait_transfer_kind kind,
                                         const struct plait_buffers *b)
{
    return (struct plait_transfer){.kind = kind,
                                   .send = kind == PLAIT_RECV ? NULL : b->send,
                                   .recv = kind == PLAIT_SEND ? NULL : b->recv,
                                   .n = b->n,
                                   .type = b->type,
                                   .op = PLAIT_SUM};
}

int plait_comm_all_reduce_at(const char *place, struct plait_comm *comm,
                             const struct plait_buffers *b,
                             enum plait_reduce op, struct plait_queue *q,
                             struct plait_request **req)
{
    struct plait_transfer t = transfer_of(PLAIT_ALL_REDUCE, b);

    t.op = op;
    return run_transfer(comm, &t, place, q, req);
}

int plait_comm_reduce_scatter_at(const char *place, struct plait_comm *comm,
                                 const struct plait_buffers *b,
                                 enum plait_reduce op, struct plait_queue *q,
                                 struct plait_request **req)
{
    struct plait_transfer t = transfer_of(PLAIT_REDUCE_SCATTER, b);

    t.op = op;
    return run_transfer(comm, &t, place, q, req);
}

int plait_comm_all_gather_at(const char *place, struct plait_comm *comm,
                             const struct plait_buffers *b,
                             struct plait_queue *q, struct plait_request **req)
{
    struct plait_transfer t = transfer_of(PLAIT_ALL_GATHER, b);

    return run_transfer(comm, &t, place, q, req);
}

int plait_comm_broadcast_at(const char *place, struct plait_comm *comm,
                            const struct plait_buffers *b, int root,
                            struct plait_queue *q, struct plait_request **req)
{
    struct plait_transfer t = transfer_of(PLAIT_BROADCAST, b);

    t.peer = root;
    return run_transfer(comm, &t, place, q, req);
}

int plait_comm_send(struct plait_comm *comm, const struct plait_buffers *b,
                    int peer, int tag, struct plait_queue *q,
                    struct plait_request **req)
{
    struct plait_transfer t = transfer_of(PLAIT_SEND, b);

    t.peer = peer;
    t.tag = tag;
    return run_transfer(comm, &t, NULL, q, req);
}

int plait_comm_recv(struct plait_comm *comm, const struct plait_buffers *b,
                    int peer, int tag, struct plait_queue *q,
                    struct plait_request **req)
{
    struct plait_transfer t = transfer_of(PLAIT_RECV, b);

    t.peer = peer;
    t.tag = tag;
    return run_transfer(comm, &t, NULL, q, req);
}

/* How long a collective ran while this rank computed. 0 for messages: the time
 * until a peer sends is not transfer time. */
static double hidden_time(const struct plait_request *r, double waited)
{
    double took = r->ended - r->begun;

    if (r->ended == 0 || r->kind >= PLAIT_SEND || took < waited)
        return 0;
    return took - waited;
}

static struct plait_activity begin_wait(const struct plait_request *r)
{
    const struct plait_doing doing = {
        .track = r->comm->name,
        .name = "wait",
        .peer = r->peer,
        .bytes = r->bytes,
        .tag = r->tag,
    };

    return plait_activity_begin(&r->comm->listeners, &doing);
}

int plait_comm_wait(struct plait_request **req, struct plait_queue *q)
{
    struct plait_request *r = *req;
    struct plait_comm *comm;
    struct plait_activity a;
    double waited;
    int rc;

    if (!r)
        return 0;
    comm = r->comm;
    *req = NULL;
    a = begin_wait(r);
    rc = comm->vtable->wait(r, q);
    waited = plait_activity_end(&a);
    comm->stats.wait_s += waited;
    comm->stats.hidden_s += hidden_time(r, waited);
    plait_activity_beside(&comm->listeners, comm->name,
                          plait_transfer_names[r->kind], r->begun,
                          r->ended ? r->ended : a.begin + waited);
    free(r);
    return rc;
}

int plait_comm_progress(struct plait_comm *comm)
{
    if (comm->failed) {
        errno = EIO;
        return -1;
    }
    return comm->vtable->progress ? comm->vtable->progress(comm) : 0;
}
